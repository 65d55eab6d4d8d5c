"""Chunks of OpenAI's Chat Completions API and of its likes, as events of the Anthropic Messages API. Pure.

Source of the shapes: `ChatCompletionChunk` of the `openai` SDK (3.54.0). `reasoning_content` (DeepSeek, vLLM) and `reasoning`
(OpenRouter, Groq, Ollama) are thinking, `error` in a chunk is OpenRouter's, `x_groq` is Groq's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clisup.worker.events import Answer, Event, StreamError, usage_of

__all__ = ["ChatStream", "chat_usage"]

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "function_call": "tool_use",
                 "content_filter": "refusal"}  # fmt: skip


class ChatStream:
    """One answer's chunks. `take` each chunk, then `end`."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._answer = Answer()
        self._finish: str | None = None
        self._refused = False
        self._usage: Event | None = None
        self.cost_usd: float | None = None
        """The provider's own cost of the answer (OpenRouter), None where it tells none."""

    @property
    def begun(self) -> bool:
        """Tell whether the model has said anything yet."""
        return self._answer.begun

    def take(self, chunk: Mapping[str, Any]) -> list[Event]:
        """Return the events of one chunk. Raises `StreamError` where it tells of an error."""
        _check(chunk.get("error"))
        _check((chunk.get("x_groq") or {}).get("error"))
        events = self._answer.message(str(chunk.get("id") or ""), str(chunk.get("model") or self._model))
        usage = chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage")
        if usage:
            self._usage, self.cost_usd = chat_usage(usage), usage.get("cost", self.cost_usd)
        for choice in chunk.get("choices") or ():
            _check(choice.get("error"))
            events += self._delta(choice.get("delta") or {})
            self._finish = choice.get("finish_reason") or self._finish
        return events

    def end(self) -> list[Event]:
        """Return the events that end the answer. Raises `StreamError` where the stream was cut: no chunk told why it ends."""
        if self._finish is None:
            raise StreamError("the API's answer was cut: its stream ended without a finish_reason", word="cut_stream")
        reason = "refusal" if self._refused else _STOP_REASONS.get(self._finish, self._finish)
        return self._answer.end(reason, self._usage or {})

    def _delta(self, delta: Mapping[str, Any]) -> list[Event]:
        answer = self._answer
        events = answer.thinking(delta.get("reasoning_content") or delta.get("reasoning") or "")
        events += answer.text(delta.get("content") or "")
        if refusal := delta.get("refusal"):
            self._refused = True
            events += answer.text(refusal)
        for call in delta.get("tool_calls") or ():
            events += self._call(call)
        return events

    def _call(self, call: Mapping[str, Any]) -> list[Event]:
        """A call's first chunk has its id and name; some servers send both again, with each piece of the arguments."""
        function, key = call.get("function") or {}, str(call.get("index", 0))
        events: list[Event] = []
        if not self._answer.has_tool(key):
            events = self._answer.tool(key, str(call.get("id") or f"call_{key}"), str(function.get("name") or ""))
        return [*events, *self._answer.arguments(key, function.get("arguments") or "")]


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
    if not error:
        return
    told = error if isinstance(error, Mapping) else {"message": str(error)}
    code = told.get("code")
    word = told.get("type") or (code if isinstance(code, str) else None)
    raise StreamError(
        str(told.get("message") or "the API sent an error"), word=word, status=code if isinstance(code, int) else None
    )
