"""Events of OpenAI's Responses API, as events of the Anthropic Messages API. Pure.

Source of the shapes: `ResponseStreamEvent` of the `openai` SDK (3.54.0).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from clisup.worker.events import Answer, Event, StreamError, usage_of

__all__ = ["ResponsesStream", "reasoning_item", "responses_usage"]

_CUT = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


class ResponsesStream:
    """One answer's events. `take` each event of the API, then `end`."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._answer = Answer()
        self._ended: list[Event] | None = None
        self._calls = self._refused = False

    @property
    def begun(self) -> bool:
        """Tell whether the model has said anything yet."""
        return self._answer.begun

    def take(self, event: Mapping[str, Any]) -> list[Event]:
        """Return the events of one event of the API. Raises `StreamError` where it tells of an error."""
        answer = self._answer
        match event.get("type"):
            case "response.created":
                response = event.get("response") or {}
                return answer.message(str(response.get("id") or ""), str(response.get("model") or self._model))
            case "response.output_text.delta":
                return answer.text(event["delta"])
            case "response.refusal.delta":
                self._refused = True
                return answer.text(event["delta"])
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return answer.thinking(event["delta"])
            case "response.output_item.added":
                return self._added(str(event["output_index"]), event["item"])
            case "response.function_call_arguments.delta":
                return answer.arguments(str(event["output_index"]), event["delta"])
            case "response.output_item.done":
                return self._done(event["item"])
            case "response.completed" | "response.incomplete":
                self._ended = self._end(event["response"])
            case "response.failed":
                _fail((event.get("response") or {}).get("error") or {})
            case "error":
                _fail(event)
        return []

    def end(self) -> list[Event]:
        """Return the events that end the answer. Raises `StreamError` where the stream was cut."""
        if self._ended is None:
            raise StreamError(
                "the API's answer was cut: its stream ended without response.completed", word="cut_stream"
            )
        return self._ended

    def _added(self, key: str, item: Mapping[str, Any]) -> list[Event]:
        if item.get("type") != "function_call":
            return []
        self._calls = True
        return [
            *self._answer.tool(key, item["call_id"], item["name"]),
            *self._answer.arguments(key, item.get("arguments") or ""),
        ]

    def _done(self, item: Mapping[str, Any]) -> list[Event]:
        """What the model thought comes back encrypted with the item's end: the next request sends it again."""
        if item.get("type") != "reasoning" or not item.get("encrypted_content"):
            return []
        proof = {"id": item.get("id"), "encrypted_content": item["encrypted_content"]}
        return self._answer.signature(json.dumps(proof, separators=(",", ":")))

    def _end(self, response: Mapping[str, Any]) -> list[Event]:
        why = (response.get("incomplete_details") or {}).get("reason")
        if why is not None:
            reason = _CUT.get(why, why)
        elif self._refused:
            reason = "refusal"
        else:
            reason = "tool_use" if self._calls else "end_turn"
        return self._answer.end(reason, responses_usage(response.get("usage") or {}))


def reasoning_item(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a block of thinking as the reasoning item that it was; None where its proof is of another API."""
    try:
        proof = json.loads(block.get("signature") or "")
        return {"type": "reasoning", "id": proof["id"], "encrypted_content": proof["encrypted_content"],
                "summary": [{"type": "summary_text", "text": block["thinking"]}] if block.get("thinking") else []}  # fmt: skip
    except (ValueError, KeyError, TypeError):
        return None


def responses_usage(usage: Mapping[str, Any]) -> Event:
    """Return a `ResponseUsage` in the form of the Anthropic API; empty where the API tells none."""
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


def _fail(error: Mapping[str, Any]) -> None:
    raise StreamError(str(error.get("message") or "the API sent an error"), word=error.get("code"))
