"""Chunks and events as the `openai` SDK types them, and what an answer made of them says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anthropic.types import RawMessageStreamEvent
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from clisup.worker.apis.chat_stream import ChatStream
from clisup.worker.apis.events import ApiMessage, Event
from clisup.worker.apis.responses_stream import ResponsesStream

_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
_RESPONSES: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A chunk that the SDK's own type takes."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    made = {"id": "chat-1", "object": "chat.completion.chunk", "created": 1, "model": "m-1", "choices": choices, **more}
    ChatCompletionChunk.model_validate(made)
    return made


def called(index: int, arguments: str = "", **more: Any) -> dict[str, Any]:
    """The delta of a call."""
    name = more.pop("name", None)
    return {
        "tool_calls": [
            {"index": index, **more, "function": {"arguments": arguments, **({"name": name} if name else {})}}
        ]
    }


def chat(*chunks: dict[str, Any]) -> list[Event]:
    """The events of whole answers; each of them is one of the Anthropic API's by its SDK."""
    stream = ChatStream("asked-for")
    return checked([event for one in chunks for event in stream.take(one)] + stream.end())


def responses(*events: dict[str, Any]) -> list[Event]:
    """As `chat`."""
    stream = ResponsesStream("asked-for")
    return checked([event for one in events for event in stream.take(one)] + stream.end())


def told(kind: str, **fields: Any) -> dict[str, Any]:
    """An event of the Responses API that the SDK's own type takes."""
    made = {"type": kind, "sequence_number": 0, **fields}
    _RESPONSES.validate_python(made)
    return made


def response(**fields: Any) -> dict[str, Any]:
    return {"id": "resp-1", "created_at": 1, "model": "m-1", "object": "response", "output": [], "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": [], **fields}  # fmt: skip


def checked(events: list[Event]) -> list[Event]:
    """The events, which have the types of the Anthropic SDK; except that an OpenAI API may report no usage."""
    for event in events:
        whole = {"input_tokens": 0, "output_tokens": 0}
        if event["type"] == "message_start":
            _EVENT.validate_python({**event, "message": {**event["message"], "usage": whole}})
        else:
            _EVENT.validate_python({**event, "usage": event["usage"] or whole} if "usage" in event else event)
    return events


def message(events: Iterable[Event]) -> ApiMessage:
    """The answer, folded."""
    folded = ApiMessage()
    for event in events:
        folded.take(event)
    return folded
