"""What a scripted model is told to say: replies of text, thinking and tool calls, or errors. Data alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from clisup.errors import UsageError
from clisup.llm.chat import UNKNOWN_USAGE, Cost, FinishReason
from clisup.llm.testing.asked import Asked
from clisup.llm.tools import ToolOutput
from clisup.model.usage import Usage

__all__ = ["Part", "Reply", "Step", "Thinking", "ToolCall"]


@dataclass(frozen=True, slots=True)
class Thinking:
    """A part of a reply: a thinking block."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A part of a reply: the model calls a tool.

    With a `result` it is a tool of the CLI's own that gave this (an exception: an error with its text). Without one, the tool of
    this name that the chat was opened with is really run; where there is none, the model is told that.
    `inside` makes it a sub-agent: those parts are what it says and calls, with this call as their `parent`.
    """

    name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    result: str | ToolOutput | Exception | None = None
    id: str | None = None
    inside: Sequence[Part] = ()


Part = str | Thinking | ToolCall | list[ToolCall] | tuple[ToolCall, ...] | Callable[[], Awaitable[object]]
"""Text, thinking, a tool call, several tool calls in one message that run side by side, or an async function that is awaited
there: a test steps the stream with it."""


class Reply:
    """One whole answer, part by part. A tool call ends a message, and what comes after its result is the next one.

    `usage` is unknown unless given. `structured` is what the CLI's own structured output would be. With `error`, the stream raises
    it after the parts; where a tool was called before, its `side_effects` are set, as with a real model.
    """

    def __init__(
        self,
        *parts: Part,
        usage: Usage = UNKNOWN_USAGE,
        cost: Cost | None = None,
        structured: Any = None,
        finish_reason: FinishReason = FinishReason.STOP,
        error: Exception | None = None,
    ) -> None:
        self.parts: tuple[Part, ...] = parts
        self.usage, self.cost, self.structured = usage, cost, structured
        self.finish_reason, self.error = finish_reason, error

    def __repr__(self) -> str:
        return f"Reply({', '.join(map(repr, self.parts))})"


Answer = str | Reply | Mapping[str, Any] | BaseModel | Exception
Step = Answer | Callable[[Asked], Answer | Awaitable[Answer]]
"""One answer: its text, a `Reply`, a value that is said as JSON (or as structured output, where that is asked for), an exception,
or a function, sync or async, that is given what was asked and gives one of them."""


def reply_of(answer: Answer) -> Reply:
    """Any answer as a `Reply`. Raises `UsageError` for what is none."""
    if isinstance(answer, Reply):
        return answer
    if isinstance(answer, Exception):
        return Reply(error=answer)
    if isinstance(answer, str):
        return Reply(answer)
    if not isinstance(answer, Mapping | BaseModel):
        raise UsageError(
            f"cannot answer with a value of type {type(answer).__name__}",
            hint="a step is a text, a Reply, a dict or pydantic object, an exception, or a function that gives one",
        )
    value = answer if isinstance(answer, BaseModel) else dict(answer)
    return Reply(_json(value), structured=value.model_dump(mode="json") if isinstance(value, BaseModel) else value)


def _json(value: Any) -> str:
    import json

    if isinstance(value, BaseModel):
        return value.model_dump_json()
    return json.dumps(value, ensure_ascii=False)
