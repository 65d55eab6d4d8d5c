"""Events of the Responses API as events of the Anthropic Messages API. Pure.

Source of the shapes: `ResponseStreamEvent` of the `openai` SDK (3.54.0).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from clisup.worker import JsonObject
from clisup.worker.apis.events import AnswerBuilder, Event, StreamError, shape_errors, usage_of

_INCOMPLETE = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


class ResponsesStream:
    """Decoder of one answer: `take` each event of the API, then `end`."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._answer = AnswerBuilder()
        self._ended: list[Event] | None = None
        self._refused = False
        self._with_arguments: set[str] = set()  # calls with at least one piece of arguments
        self._said: set[str] = set()  # messages with at least one piece of text

    def take(self, event: Mapping[str, Any]) -> list[Event]:
        """Return the events of one event of the API. Raises `StreamError` for an error of the API."""
        with shape_errors():
            return self._take(event)

    def end(self) -> list[Event]:
        """Return the events that end the answer. Raises `StreamError` for a cut stream."""
        if self._ended is None:
            raise StreamError(
                "the API's answer was cut: its stream ended without response.completed", code="cut_stream"
            )
        return self._ended

    def _take(self, event: Mapping[str, Any]) -> list[Event]:
        if event.get("object") == "response" and "type" not in event:  # a whole answer in place of a stream
            event = {"type": f"response.{event.get('status') or 'completed'}", "response": event}
        response = event.get("response") or {}
        match event["type"]:
            case "error":
                raise StreamError.of(event.get("error") or event)
            case "response.failed":
                raise StreamError.of(response.get("error") or {})
            case "response.completed" | "response.incomplete":
                started = self._start(response)
                for place, item in enumerate(response.get("output") or ()):
                    started += self._done(str(place), item)
                self._ended = self._end(response)
                return started
        return [*self._start(response), *self._content(event)]

    def _start(self, response: Mapping[str, Any]) -> list[Event]:
        return self._answer.start(str(response.get("id") or ""), str(response.get("model") or self._model))

    def _content(self, event: Mapping[str, Any]) -> list[Event]:
        answer = self._answer
        match event["type"]:
            case "response.output_text.delta":
                return self._text(_key(event), event["delta"])
            case "response.refusal.delta":
                self._refused = True
                return self._text(_key(event), event["delta"])
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return answer.thinking(event["delta"])
            case "response.function_call_arguments.delta":
                return self._arguments(_key(event), event["delta"])
            case "response.output_item.added":
                return self._call(_key(event), event["item"])
            case "response.output_item.done":
                return self._done(_key(event), event["item"])
        return []

    def _call(self, key: str, item: Mapping[str, Any]) -> list[Event]:
        """Read a call. Some servers send its arguments with its first or last event instead of in pieces."""
        if item.get("type") != "function_call":
            return []
        begun = [] if self._answer.has_tool(key) else self._answer.tool(key, item["call_id"], item["name"])
        return begun if key in self._with_arguments else [*begun, *self._arguments(key, item.get("arguments") or "")]

    def _arguments(self, key: str, piece: str) -> list[Event]:
        if piece:
            self._with_arguments.add(key)
        return self._answer.arguments(key, piece)

    def _done(self, key: str, item: Mapping[str, Any]) -> list[Event]:
        """Read a finished item. The next request sends encrypted reasoning back."""
        if item.get("type") == "message":
            return self._message(key, item)
        if item.get("type") == "reasoning" and item.get("encrypted_content"):
            if key in self._said:
                return []
            self._said.add(key)
            proof = {"id": item.get("id"), "encrypted_content": item["encrypted_content"]}
            return self._answer.signature(json.dumps(proof, separators=(",", ":")))
        return self._call(key, item)

    def _message(self, key: str, item: Mapping[str, Any]) -> list[Event]:
        """Read a finished message. Some servers send no pieces of its text."""
        if key in self._said:
            return []
        events: list[Event] = []
        for part in item.get("content") or ():
            self._refused = self._refused or part.get("type") == "refusal"
            events += self._text(key, part.get("text") or part.get("refusal") or "")
        return events

    def _text(self, key: str, piece: str) -> list[Event]:
        if piece:
            self._said.add(key)
        return self._answer.text(piece)

    def _end(self, response: Mapping[str, Any]) -> list[Event]:
        why = (response.get("incomplete_details") or {}).get("reason")
        if why is not None:
            reason = _INCOMPLETE.get(why, "max_tokens")  # an answer that is not whole, for a reason without a name
        elif self._refused:
            reason = "refusal"
        else:
            reason = "tool_use" if self._answer.has_tool() else "end_turn"
        return self._answer.end(reason, responses_usage(response.get("usage") or {}))


def _key(event: Mapping[str, Any]) -> str:
    """Return the place of an item in the answer. Some servers give none."""
    return str(event.get("output_index") or 0)


def reasoning_item(block: Mapping[str, Any]) -> JsonObject | None:
    """Return a thinking block as the API's reasoning item; None if its signature is from another API."""
    try:
        proof = json.loads(block.get("signature") or "")
        return {"type": "reasoning", "id": proof["id"], "encrypted_content": proof["encrypted_content"],
                "summary": [{"type": "summary_text", "text": block["thinking"]}] if block.get("thinking") else []}  # fmt: skip
    except (ValueError, KeyError, TypeError):
        return None


def responses_usage(usage: Mapping[str, Any]) -> Event:
    """Return a `ResponseUsage` in the form of the Anthropic API; empty if the API reports none."""
    if not usage:
        return {}
    prompt, output = usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {}
    return usage_of(
        int(usage.get("input_tokens") or 0),
        int(usage.get("output_tokens") or 0),
        cache_read=int(prompt.get("cached_tokens") or 0),
        cache_write=int(prompt.get("cache_write_tokens") or 0),
        thinking=output.get("reasoning_tokens"),
    )
