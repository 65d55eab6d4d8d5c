"""Answers and streams of `POST /v1/chat/completions`. Pure."""

from __future__ import annotations

from typing import Any

from clisup.client.raw import JsonObject
from clisup.doors.gateway.answers import AnswerInfo, Dialect, WholeAnswer, arguments, sse
from clisup.doors.gateway.failures import HttpFailure
from clisup.doors.gateway.openai_chat.request import read_chat
from clisup.doors.gateway.openai_errors import error_body
from clisup.llm.answers import FinishReason
from clisup.llm.messages import ToolUseBlock
from clisup.model.usage import Usage

__all__ = ["CHAT"]

_REASONS = {
    FinishReason.LENGTH: "length",
    FinishReason.MAX_TURNS: "length",
    FinishReason.REFUSAL: "content_filter",
    FinishReason.TOOL_CALLS: "tool_calls",
}


class ChatWriter:
    """Writer of chunks."""

    def __init__(self, info: AnswerInfo) -> None:
        self._info = info
        self._head = _head(info, "chat.completion.chunk")

    def begin(self) -> bytes:
        """Return the chunk with the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def text(self, piece: str) -> bytes:
        """Return the chunk of a piece."""
        return self._chunk({"content": piece})

    def end(self, answer: WholeAnswer) -> bytes:
        """Return the chunks of the calls, the reason, the usage if the request asked for it, and the mark of the end."""
        frames = [
            self._chunk({"tool_calls": [{"index": number, **_call(call)}]}) for number, call in enumerate(answer.calls)
        ]
        frames.append(self._chunk({}, _REASONS.get(answer.reason, "stop")))
        if self._info.request.tell_usage and (usage := _usage(answer.usage)):
            frames.append(sse({**self._head, "choices": [], "usage": usage}))
        return b"".join([*frames, sse("[DONE]")])

    def fail(self, failure: HttpFailure) -> bytes:
        """Return the error."""
        return sse(error_body(failure))

    def _chunk(self, delta: JsonObject, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return sse({**self._head, "choices": [choice]})


def _whole(info: AnswerInfo, answer: WholeAnswer) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": answer.text or None, "refusal": None}
    if answer.calls:
        message["tool_calls"] = [_call(call) for call in answer.calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _REASONS.get(answer.reason, "stop")}
    return {**_head(info, "chat.completion"), "choices": [choice], "usage": _usage(answer.usage)}


def _head(info: AnswerInfo, object_: str) -> JsonObject:
    return {"id": f"chatcmpl-{info.id}", "object": object_, "created": info.created, "model": info.model}


def _call(call: ToolUseBlock) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments(call)}}


def _usage(usage: Usage) -> JsonObject | None:
    """Return the counts, or None if the backend has not reported them."""
    read, written = usage.total_input_tokens, usage.output_tokens
    if read is None or written is None:
        return None
    found: JsonObject = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    if usage.cache_read_input_tokens is not None:
        found["prompt_tokens_details"] = {"cached_tokens": usage.cache_read_input_tokens}
    if usage.reasoning_tokens is not None:
        found["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return found


CHAT = Dialect("chat", "call_", read_chat, _whole, ChatWriter, error_body)
"""Chat Completions."""
