"""Answers and streams of `POST /v1/responses`. Pure."""

from __future__ import annotations

from itertools import count

from clisup.client.raw import JsonObject
from clisup.doors.gateway.answers import AnswerInfo, Dialect, WholeAnswer, arguments, sse
from clisup.doors.gateway.failures import HttpFailure
from clisup.doors.gateway.openai_errors import error_body, openai_code
from clisup.doors.gateway.openai_responses.request import read_responses
from clisup.llm.answers import FinishReason
from clisup.llm.messages import ToolUseBlock
from clisup.model.usage import Usage

__all__ = ["RESPONSES"]

_INCOMPLETE = {
    FinishReason.LENGTH: "max_output_tokens",
    FinishReason.MAX_TURNS: "max_output_tokens",
    FinishReason.REFUSAL: "content_filter",
}


class ResponsesWriter:
    """Writer of events. The text is the only item before the calls."""

    def __init__(self, info: AnswerInfo) -> None:
        self._info, self._numbers = info, count()
        self._item = f"msg_{info.id}"
        self._said: list[str] = []

    def begin(self) -> bytes:
        """Return the events of a response that begins."""
        begun = _response(self._info, None)
        return self._event("response.created", response=begun) + self._event("response.in_progress", response=begun)

    def text(self, piece: str) -> bytes:
        """Return the event of a piece, after those of the beginning of the text."""
        frames = b""
        if not self._said:
            frames = self._event("response.output_item.added", output_index=0, item=_message(self._info, None))
            frames += self._event("response.content_part.added", **self._place, part=_part(""))
        self._said.append(piece)
        return frames + self._event("response.output_text.delta", **self._place, delta=piece, logprobs=[])

    def end(self, answer: WholeAnswer) -> bytes:
        """Return the events of the whole text, of the calls, and of the end."""
        frames = b""
        if self._said:
            text = "".join(self._said)
            frames += self._event("response.output_text.done", **self._place, text=text, logprobs=[])
            frames += self._event("response.content_part.done", **self._place, part=_part(text))
            item = _message(self._info, text, _status(answer))
            frames += self._event("response.output_item.done", output_index=0, item=item)
        for index, call in enumerate(answer.calls, 1 if self._said else 0):
            frames += self._call(index, call)
        response = _response(self._info, answer)
        return frames + self._event(f"response.{response['status']}", response=response)

    def fail(self, failure: HttpFailure) -> bytes:
        """Return the event of a failed response."""
        code = openai_code(failure)
        known = code if code == "rate_limit_exceeded" else "server_error"
        error = {"code": known, "message": failure.message}
        response = {**_response(self._info, None), "status": "failed", "error": error}
        return self._event("response.failed", response=response)

    def _call(self, index: int, call: ToolUseBlock) -> bytes:
        text, item = arguments(call), _call_item(call)
        begun = {**item, "arguments": "", "status": "in_progress"}
        at = {"output_index": index, "item_id": item["id"]}
        frames = self._event("response.output_item.added", output_index=index, item=begun)
        frames += self._event("response.function_call_arguments.delta", **at, delta=text)
        frames += self._event("response.function_call_arguments.done", **at, arguments=text, name=call.name)
        return frames + self._event("response.output_item.done", output_index=index, item=item)

    @property
    def _place(self) -> JsonObject:
        return {"item_id": self._item, "output_index": 0, "content_index": 0}

    def _event(self, type_: str, **fields: object) -> bytes:
        return sse({"type": type_, "sequence_number": next(self._numbers), **fields}, type_)


def _status(answer: WholeAnswer | None) -> str:
    if answer is None:
        return "in_progress"
    return "incomplete" if answer.reason in _INCOMPLETE else "completed"


def _response(info: AnswerInfo, answer: WholeAnswer | None) -> JsonObject:
    """Return the response, with its output once the answer is there."""
    asked, status = info.request, _status(answer)
    output = []
    if answer is not None:
        output = [_message(info, answer.text, status)] if answer.text else []
        output += [_call_item(call) for call in answer.calls]
    reason = _INCOMPLETE.get(answer.reason) if answer is not None else None
    return {
        "id": f"resp_{info.id}", "object": "response", "created_at": info.created, "status": status, "error": None,
        "incomplete_details": {"reason": reason} if reason else None, "instructions": asked.system, "metadata": {},
        "model": info.model, "output": output, "parallel_tool_calls": True,
        "previous_response_id": asked.previous, "store": asked.keep, "temperature": asked.sampling.get("temperature"),
        "top_p": asked.sampling.get("top_p"), "max_output_tokens": asked.sampling.get("max_tokens"),
        "tool_choice": "auto", "tools": [_tool(tool.name, tool.description, tool.input_schema) for tool in asked.tools],
        "usage": _usage(answer.usage) if answer is not None else None,
    }  # fmt: skip


def _tool(name: str, description: str, schema: JsonObject) -> JsonObject:
    return {"type": "function", "name": name, "description": description, "parameters": schema, "strict": False}


def _message(info: AnswerInfo, text: str | None, status: str = "in_progress") -> JsonObject:
    content = [] if text is None else [_part(text)]
    return {"id": f"msg_{info.id}", "type": "message", "role": "assistant", "status": status, "content": content}


def _part(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call_item(call: ToolUseBlock) -> JsonObject:
    return {"id": f"fc_{call.id.removeprefix('call_')}", "type": "function_call", "status": "completed",
            "call_id": call.id, "name": call.name, "arguments": arguments(call)}  # fmt: skip


def _usage(usage: Usage) -> JsonObject | None:
    """Return the counts, or None if the backend has not reported them."""
    read, written = usage.total_input_tokens, usage.output_tokens
    if read is None or written is None:
        return None
    cached = {
        "cached_tokens": usage.cache_read_input_tokens or 0,
        "cache_write_tokens": usage.cache_creation_input_tokens or 0,
    }
    return {"input_tokens": read, "input_tokens_details": cached, "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0}, "total_tokens": read + written}  # fmt: skip


RESPONSES = Dialect("responses", "call_", read_responses, _response, ResponsesWriter, error_body)
"""Responses."""
