"""Chunks of the Chat Completions API as events of the Anthropic Messages API. Pure.

Source of the shapes: `ChatCompletionChunk` of the `openai` SDK (3.54.0). Compatible servers add fields: thinking is in
`reasoning_content` (DeepSeek, vLLM) or `reasoning` (OpenRouter, Groq, Ollama), an error in `error` (OpenRouter), usage in
`x_groq` (Groq).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from clisup.worker.apis.events import AnswerBuilder, Event, StreamError, shape_errors, usage_of

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "function_call": "tool_use",
                 "content_filter": "refusal"}  # fmt: skip
_REASONING_FIELDS = ("reasoning_content", "reasoning")


class ChatStream:
    """Decoder of one answer: `take` each chunk, then `end`."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._answer = AnswerBuilder()
        self._finish: str | None = None
        self._refused = False
        self._usage: Event | None = None
        self._keys: dict[str, tuple[str, str]] = {}  # a call's index: its key in the answer, and its id
        self.cost_usd: float | None = None
        """Cost of the answer as the provider reports it (OpenRouter), or None."""

    def take(self, chunk: Mapping[str, Any]) -> list[Event]:
        """Return the events of one chunk. Raises `StreamError` for an error in the chunk."""
        with shape_errors():
            return self._take(chunk)

    def end(self) -> list[Event]:
        """Return the events that end the answer. Raises `StreamError` if no chunk had a finish reason."""
        if self._finish is None:
            raise StreamError("the API's answer was cut: its stream ended without a finish_reason", code="cut_stream")
        reason = "refusal" if self._refused else _STOP_REASONS.get(self._finish, self._finish)
        if reason == "end_turn" and self._answer.has_tool():
            reason = "tool_use"  # some servers end an answer with calls by "stop"
        return self._answer.end(reason, self._usage or {})

    def _take(self, chunk: Mapping[str, Any]) -> list[Event]:
        groq = chunk.get("x_groq") or {}
        _check(chunk.get("error"))
        _check(groq.get("error"))
        events = self._answer.start(str(chunk.get("id") or ""), str(chunk.get("model") or self._model))
        usage = chunk.get("usage") or groq.get("usage")
        if usage:
            self._usage, self.cost_usd = chat_usage(usage), usage.get("cost", self.cost_usd)
        for choice in chunk.get("choices") or ():
            _check(choice.get("error"))
            events += self._delta(choice.get("delta") or {})
            self._finish = choice.get("finish_reason") or self._finish
        return events

    def _delta(self, delta: Mapping[str, Any]) -> list[Event]:
        answer, events = self._answer, self._reasoning(delta)
        events += answer.text(delta.get("content") or "")
        if refusal := delta.get("refusal"):
            self._refused = True
            events += answer.text(refusal)
        for call in delta.get("tool_calls") or ():
            events += self._call(call)
        return events

    def _reasoning(self, delta: Mapping[str, Any]) -> list[Event]:
        """Sign the thinking with the name of its field, because the next request sends it back in the same field."""
        for field in _REASONING_FIELDS:
            if piece := delta.get(field):
                fresh = not self._answer.is_thinking
                events = self._answer.thinking(piece)
                if fresh:
                    events[-1:] = [_sign(events[-1]["index"], field), events[-1]]
                return events
        return []

    def _call(self, call: Mapping[str, Any]) -> list[Event]:
        """Read a piece of a call. Some servers repeat id and name in each piece; some give all calls the same index."""
        function, index, call_id = call.get("function") or {}, str(call.get("index") or 0), call.get("id")
        key, known = self._keys.get(index, (index, None))
        events: list[Event] = []
        if known is None or (call_id and call_id != known):
            key = f"{index}.{len(self._keys)}.{call_id}"
            known = str(call_id or f"call_{self._answer.message_id}_{index}")
            self._keys[index] = (key, known)
            events = self._answer.tool(key, known, str(function.get("name") or ""))
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments)
        return [*events, *self._answer.arguments(key, arguments)]


def reasoning_field(block: Mapping[str, Any]) -> str | None:
    """Return the field of a message in which the thinking block goes back; None for thinking of another API."""
    signature = str(block.get("signature") or "")
    return signature if signature in _REASONING_FIELDS else None


def chat_usage(usage: Mapping[str, Any]) -> Event:
    """Return a `CompletionUsage` in the form of the Anthropic API."""
    prompt, output = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    return usage_of(
        int(usage.get("prompt_tokens") or 0),
        int(usage.get("completion_tokens") or 0),
        cache_read=int(prompt.get("cached_tokens") or 0),
        cache_write=int(prompt.get("cache_write_tokens") or 0),
        thinking=output.get("reasoning_tokens"),
    )


def _check(error: Any) -> None:
    if error:
        raise StreamError.of(error)


def _sign(index: int, field: str) -> Event:
    return {"type": "content_block_delta", "index": index, "delta": {"type": "signature_delta", "signature": field}}
