"""Chunks of the Chat Completions API as events of the Anthropic Messages API. Pure.

Source of the shapes: `ChatCompletionChunk` of the `openai` SDK (3.54.0). Compatible servers add fields: thinking is in
`reasoning_content` (DeepSeek, vLLM) or `reasoning` (OpenRouter, Groq, Ollama), an error in `error` (OpenRouter), usage in
`x_groq` (Groq). What a server needs back in the next request is opaque: signatures beside a call (Gemini) or beside a message
(OpenRouter's `reasoning_details`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from clisup.worker.apis.chat_calls import ChatCalls
from clisup.worker.apis.events import AnswerBuilder, Event, StreamError, shape_errors, usage_of

_ENDS = {
    "stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "function_call": "tool_use",
    "content_filter": "refusal",
    # Words of other servers, in lower case: mlx-lm, Anthropic's behind a proxy, Hugging Face, Mistral, Gemini.
    "tool_call": "tool_use", "tool_use": "tool_use", "end_turn": "end_turn", "stop_sequence": "end_turn", "eos": "end_turn",
    "eos_token": "end_turn", "complete": "end_turn", "completed": "end_turn", "max_tokens": "max_tokens",
    "model_length": "max_tokens", "safety": "refusal", "recitation": "refusal", "prohibited_content": "refusal",
}  # fmt: skip
_CUT = ("max_tokens", "refusal")  # ends after which the calls of an answer may be incomplete
_BROKEN = re.compile(r"error|fail|cancel|abort|time_?out|interrupt|malformed|overload", re.IGNORECASE)
_REASONING_FIELDS = ("reasoning_content", "reasoning")
_OPAQUE = re.compile(r"reason|think|thought|signature|extra_content", re.IGNORECASE)
"""Names of fields of a message that a server may need back."""


class ChatStream:
    """Decoder of one answer: `take` each chunk, then `end`."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._answer = AnswerBuilder()
        self._calls = ChatCalls(self._answer)
        self._finish: str | None = None
        self._refused = False
        self._usage: Event | None = None
        self._opaque: dict[str, Any] = {}
        self.cost_usd: float | None = None
        """Cost of the answer as the provider reports it (OpenRouter), or None."""

    def take(self, chunk: Mapping[str, Any]) -> list[Event]:
        """Return the events of one chunk. Raises `StreamError` for an error in the chunk."""
        with shape_errors():
            return self._take(chunk)

    def end(self) -> list[Event]:
        """Return the events that end the answer. Raises `StreamError` if no chunk had a finish reason, or one of a failure."""
        if self._finish is None:
            raise StreamError("the API's answer was cut: its stream ended without a finish_reason", code="cut_stream")
        word = self._finish.lower()
        if word not in _ENDS and _BROKEN.search(word):
            message = f"the API broke its answer off: its finish_reason is {self._finish[:100]!r}"
            raise StreamError(message, code="server_error")
        reason = "refusal" if self._refused else _ENDS.get(word, self._finish)
        events = self._calls.finish()
        if self._answer.has_tool() and reason not in _CUT:
            reason = "tool_use"  # some servers end an answer with calls by "stop", or by a word of their own
        if self._opaque or self._calls.opaque:
            back = {"message": self._opaque, "calls": self._calls.opaque}
            events += self._answer.signature(json.dumps(back, separators=(",", ":")))
        return [*events, *self._answer.end(reason, self._usage or {})]

    def _take(self, chunk: Mapping[str, Any]) -> list[Event]:
        groq = chunk.get("x_groq") or {}
        _check(chunk.get("error"))
        _check(groq.get("error"))
        events = self._answer.start(str(chunk.get("id") or ""), str(chunk.get("model") or self._model))
        self._count(chunk.get("usage") or groq.get("usage"))
        for choice in chunk.get("choices") or ():
            _check(choice.get("error"))
            events += self._delta(choice.get("delta") or choice.get("message") or {})
            self._finish = str(choice.get("finish_reason") or self._finish or "") or None
        return events

    def _count(self, usage: Any) -> None:
        """Take the usage. Some servers repeat it with zeros at the end."""
        if usage:
            counted = chat_usage(usage)
            if self._usage is None or counted["input_tokens"] or counted["output_tokens"]:
                self._usage, self.cost_usd = counted, usage.get("cost", self.cost_usd)

    def _delta(self, delta: Mapping[str, Any]) -> list[Event]:
        answer, events = self._answer, self._reasoning(delta)
        for kind, piece in _parts(delta.get("content")):
            events += answer.text(piece) if kind == "text" else self._thought(piece, "reasoning_content")
        if refusal := delta.get("refusal"):
            self._refused = True
            events += answer.text(refusal)
        for call in delta.get("tool_calls") or ():
            events += self._calls.take(call)
        if isinstance(called := delta.get("function_call"), Mapping):  # the API before tools
            events += self._calls.take({"index": 0, "function": called})
        self._keep(delta)
        return events

    def _reasoning(self, delta: Mapping[str, Any]) -> list[Event]:
        for field in _REASONING_FIELDS:
            if piece := "".join(text for _, text in _parts(delta.get(field))):
                return self._thought(piece, field)
        return []

    def _thought(self, piece: str, field: str) -> list[Event]:
        """Sign the thinking with the name of its field, because the next request sends it back in the same field."""
        fresh = not self._answer.is_thinking
        events = self._answer.thinking(piece)
        if fresh and events:
            events[-1:] = [_sign(events[-1]["index"], field), events[-1]]
        return events

    def _keep(self, delta: Mapping[str, Any]) -> None:
        """Keep what the server may need back: the pieces of a list in their order, the newest of other values."""
        for name, value in delta.items():
            if name in _REASONING_FIELDS or not value or not _OPAQUE.search(name):
                continue
            known = self._opaque.get(name)
            self._opaque[name] = [*known, *value] if isinstance(known, list) and isinstance(value, list) else value


class FieldsBack(NamedTuple):
    """Fields in which a thinking block goes back: of the message, and of its calls by their ids."""

    message: Event
    calls: dict[str, Event]


def fields_back(block: Mapping[str, Any]) -> FieldsBack:
    """Return the fields in which a thinking block goes back; none for thinking of another API."""
    signature = str(block.get("signature") or "")
    if signature in _REASONING_FIELDS:
        return FieldsBack({signature: block["thinking"]}, {})
    try:
        kept = json.loads(signature)
        return FieldsBack(dict(kept["message"]), {str(name): dict(fields) for name, fields in kept["calls"].items()})
    except (ValueError, KeyError, TypeError, AttributeError):
        return FieldsBack({}, {})


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


def _parts(content: Any) -> Iterator[tuple[str, str]]:
    """Yield the kinds and texts of a content: a text, one part, or a list of parts (Mistral)."""
    if isinstance(content, str):
        yield "text", content
    elif isinstance(content, Mapping):
        yield from _part(content)
    elif isinstance(content, Iterable):
        for part in content:
            yield from _parts(part)


def _part(part: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for field in ("thinking", "reasoning", "summary"):
        if field in part:
            yield from (("thinking", text) for _, text in _parts(part[field]))
            return
    yield from _parts(part.get("text", part.get("content")))


def _check(error: Any) -> None:
    if error:
        raise StreamError.of(error)


def _sign(index: int, field: str) -> Event:
    return {"type": "content_block_delta", "index": index, "delta": {"type": "signature_delta", "signature": field}}
