"""Answer in no dialect's own form, and the frames of a stream. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from clisup.client.raw import JsonObject
from clisup.doors.gateway.failures import HttpFailure
from clisup.doors.gateway.requests import AnswerRequest
from clisup.llm.answers import FinishReason
from clisup.llm.messages import ToolUseBlock
from clisup.model.usage import UNKNOWN_USAGE, Usage

__all__ = ["AnswerInfo", "AnswerStream", "Dialect", "WholeAnswer", "arguments", "encode", "sse"]


@dataclass(frozen=True, slots=True)
class AnswerInfo:
    """Facts of an answer that are known at its beginning. `id` and `created` are the same when the answer comes again."""

    id: str
    model: str
    created: int
    session_id: str
    request: AnswerRequest


@dataclass(slots=True)
class WholeAnswer:
    """Complete answer. The ids of `calls` are those that the program gets."""

    text: str = ""
    calls: tuple[ToolUseBlock, ...] = ()
    reason: FinishReason = FinishReason.STOP
    usage: Usage = UNKNOWN_USAGE


class AnswerStream(Protocol):
    """Writer of one stream. Each method returns frames."""

    def begin(self) -> bytes:
        """Return the frames before the first piece."""

    def text(self, piece: str) -> bytes:
        """Return the frames of a piece of text."""

    def end(self, answer: WholeAnswer) -> bytes:
        """Return the last frames, after all pieces of the text."""

    def fail(self, failure: HttpFailure) -> bytes:
        """Return the last frames of a stream that broke."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API: its requests, answers, streams and errors. `read` raises `GatewayError`."""

    name: str
    call_prefix: str
    read: Callable[[bytes, float], AnswerRequest]
    whole: Callable[[AnswerInfo, WholeAnswer], JsonObject]
    stream: Callable[[AnswerInfo], AnswerStream]
    error: Callable[[HttpFailure], JsonObject]


def sse(data: JsonObject | str, event: str | None = None) -> bytes:
    """Return one frame of server-sent events."""
    text = data if isinstance(data, str) else encode(data)
    return (f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode("utf-8", "replace")


def encode(value: Any) -> str:
    """Return compact JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def arguments(call: ToolUseBlock) -> str:
    """Return the input of a call as a text of JSON."""
    return encode(call.input)
