"""Answers and streams of `POST /v1/messages`. Pure."""

from __future__ import annotations

from clisup.client.raw import JsonObject
from clisup.doors.gateway.answers import AnswerInfo, Dialect, WholeAnswer, arguments, sse
from clisup.doors.gateway.anthropic_messages.request import read_messages
from clisup.doors.gateway.failures import HttpFailure
from clisup.llm.answers import FinishReason
from clisup.llm.messages import ToolUseBlock
from clisup.model.usage import UNKNOWN_USAGE, Usage

__all__ = ["MESSAGES"]

_REASONS = {
    FinishReason.LENGTH: "max_tokens",
    FinishReason.MAX_TURNS: "max_tokens",
    FinishReason.REFUSAL: "refusal",
    FinishReason.TOOL_CALLS: "tool_use",
}
_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class MessagesWriter:
    """Writer of events. The text is the only block before the calls."""

    def __init__(self, info: AnswerInfo) -> None:
        self._info = info
        self._said = False

    def begin(self) -> bytes:
        """Return the event of a message that begins. Its usage comes at the end."""
        return _event("message_start", message=_message(self._info, UNKNOWN_USAGE))

    def text(self, piece: str) -> bytes:
        """Return the event of a piece, after that of the beginning of the text."""
        frames = b""
        if not self._said:
            self._said = True
            frames = _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        return frames + _event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})

    def end(self, answer: WholeAnswer) -> bytes:
        """Return the events of the calls, and of the end."""
        frames = _event("content_block_stop", index=0) if self._said else b""
        for index, call in enumerate(answer.calls, 1 if self._said else 0):
            delta = {"type": "input_json_delta", "partial_json": arguments(call)}
            frames += _event("content_block_start", index=index, content_block={**_use(call), "input": {}})
            frames += _event("content_block_delta", index=index, delta=delta)
            frames += _event("content_block_stop", index=index)
        ending: JsonObject = {"stop_reason": _REASONS.get(answer.reason, "end_turn"), "stop_sequence": None}
        frames += _event("message_delta", delta=ending, usage=_usage(answer.usage))
        return frames + _event("message_stop")

    def fail(self, failure: HttpFailure) -> bytes:
        """Return the error."""
        return sse(_error_body(failure), "error")


def _whole(info: AnswerInfo, answer: WholeAnswer) -> JsonObject:
    content: list[JsonObject] = [{"type": "text", "text": answer.text}] if answer.text else []
    content += [{**_use(call), "input": call.input} for call in answer.calls]
    reason = _REASONS.get(answer.reason, "end_turn")
    return {**_message(info, answer.usage), "content": content, "stop_reason": reason}


def _error_body(failure: HttpFailure) -> JsonObject:
    other = "invalid_request_error" if failure.status < 500 else "api_error"
    error = {"type": _ERRORS.get(failure.status, other), "message": failure.message}
    return {"type": "error", "error": error}


def _event(type_: str, **fields: object) -> bytes:
    return sse({"type": type_, **fields}, type_)


def _message(info: AnswerInfo, usage: Usage) -> JsonObject:
    return {
        "id": f"msg_{info.id}", "type": "message", "role": "assistant", "model": info.model, "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": _usage(usage),
    }  # fmt: skip


def _use(call: ToolUseBlock) -> JsonObject:
    return {"type": "tool_use", "id": call.id, "name": call.name}


def _usage(usage: Usage) -> JsonObject:
    """Return the counts. The API has no word for unknown: then they are zero."""
    found: JsonObject = {"input_tokens": usage.input_tokens or 0, "output_tokens": usage.output_tokens or 0}
    for name in ("cache_creation_input_tokens", "cache_read_input_tokens"):
        if (count := getattr(usage, name)) is not None:
            found[name] = count
    return found


MESSAGES = Dialect("messages", "toolu_", read_messages, _whole, MessagesWriter, _error_body)
"""Messages of Anthropic."""
