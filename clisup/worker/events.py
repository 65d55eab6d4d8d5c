"""Events of one answer in the form of the Anthropic Messages API, which claude's frames carry as they are. Pure.

Source of the shapes: the types of the `anthropic` SDK (2.12.0), `RawMessageStreamEvent`.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["Answer", "Event", "Message", "StreamError", "usage_of"]

Event = dict[str, Any]
_DELTAS = {
    "text": "text_delta",
    "thinking": "thinking_delta",
    "signature": "signature_delta",
    "partial_json": "input_json_delta",
}


class StreamError(Exception):
    """The API ended its answer with an error. `word` is its own name for the error, None where it gives none."""

    def __init__(self, message: str, *, word: str | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.message, self.word, self.status = message, word, status


class Answer:
    """Events of one answer, in order: the message, its blocks, its end.

    A text or thinking block closes as soon as another block begins. Blocks of tools stay open until the end, because some
    APIs send the arguments of parallel calls in turns.
    """

    def __init__(self) -> None:
        self._begun = False
        self._next = 0
        self._open: tuple[str, int] | None = None  # the text or thinking block, and its index
        self._tools: dict[str, int] = {}  # the API's key of a call, and the index of its block

    @property
    def begun(self) -> bool:
        """Tell whether the model has said anything yet: from then on a failure cannot be tried again in silence."""
        return self._next > 0

    def message(self, message_id: str, model: str) -> list[Event]:
        """Begin the message. A second call gives nothing."""
        if self._begun:
            return []
        self._begun = True
        head: Event = {"id": message_id, "type": "message", "role": "assistant", "model": model, "content": [],
                "stop_reason": None, "stop_sequence": None, "usage": usage_of(0, 0)}  # fmt: skip
        return [{"type": "message_start", "message": head}]

    def text(self, piece: str) -> list[Event]:
        """Say a piece of the answer's text."""
        return self._said("text", {"type": "text", "text": ""}, "text", piece)

    def thinking(self, piece: str) -> list[Event]:
        """Say a piece of the model's thinking."""
        return self._said("thinking", {"type": "thinking", "thinking": "", "signature": ""}, "thinking", piece)

    def signature(self, signature: str) -> list[Event]:
        """Give the proof of the thinking, which the next request sends again. It ends the thinking."""
        block: Event = {"type": "thinking", "thinking": "", "signature": ""}
        return [*self._said("thinking", block, "signature", signature), *self.close()]

    def tool(self, key: str, call_id: str, name: str) -> list[Event]:
        """Begin a call of a tool. The API names it by `key` from now on."""
        closed, self._tools[key] = self.close(), self._next
        return [*closed, self._start({"type": "tool_use", "id": call_id, "name": name, "input": {}})]

    def arguments(self, key: str, piece: str) -> list[Event]:
        """Say a piece of a call's arguments, which are JSON."""
        return [_delta(self._tools[key], "partial_json", piece)] if piece else []

    def has_tool(self, key: str) -> bool:
        """Tell whether the call of this key has begun."""
        return key in self._tools

    def close(self) -> list[Event]:
        """End the text or thinking that is open."""
        if self._open is None:
            return []
        index, self._open = self._open[1], None
        return [{"type": "content_block_stop", "index": index}]

    def end(self, stop_reason: str, usage: Event) -> list[Event]:
        """End all blocks and the message."""
        blocks = [{"type": "content_block_stop", "index": index} for index in sorted(self._tools.values())]
        delta = {"stop_reason": stop_reason, "stop_sequence": None}
        return [
            *self.close(),
            *blocks,
            {"type": "message_delta", "delta": delta, "usage": usage},
            {"type": "message_stop"},
        ]

    def _said(self, kind: str, block: Event, field: str, piece: str) -> list[Event]:
        if not piece:
            return []
        events: list[Event] = []
        if self._open is None or self._open[0] != kind:
            events += self.close()
            self._open = (kind, self._next)
            events.append(self._start(block))
        return [*events, _delta(self._open[1], field, piece)]

    def _start(self, block: Event) -> Event:
        index, self._next = self._next, self._next + 1
        return {"type": "content_block_start", "index": index, "content_block": block}


class Message:
    """One answer, folded from its events: for the history, and for the frames that claude prints for whole blocks."""

    def __init__(self) -> None:
        self.head: Event = {}
        self.blocks: dict[int, Event] = {}
        self.stop_reason: str | None = None
        self.usage: Event = {}
        self.broken: dict[str, str] = {}
        """Calls by their ids whose arguments are no JSON object, with what was said in their place."""
        self._input: dict[int, list[str]] = {}

    def take(self, event: Event) -> Event | None:
        """Fold one event, and return the block that it ended."""
        match event["type"]:
            case "message_start":
                self.head = event["message"]
                self.usage = dict(self.head.get("usage") or {})
            case "content_block_start":
                self.blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta":
                self._add(event["index"], event["delta"])
            case "content_block_stop":
                return self._whole(event["index"])
            case "message_delta":
                self.stop_reason = event["delta"].get("stop_reason")
                self.usage |= {name: count for name, count in (event.get("usage") or {}).items() if count is not None}
        return None

    @property
    def content(self) -> list[Event]:
        """The blocks, in order."""
        return [self.blocks[index] for index in sorted(self.blocks)]

    def _add(self, index: int, delta: Event) -> None:
        block = self.blocks[index]
        match delta["type"]:
            case "input_json_delta":
                self._input.setdefault(index, []).append(delta["partial_json"])
            case "citations_delta":
                block.setdefault("citations", []).append(delta["citation"])
            case kind:
                field = kind.removesuffix("_delta")
                block[field] = block.get(field, "") + delta[field]

    def _whole(self, index: int) -> Event:
        block = self.blocks[index]
        if index in self._input:
            said = "".join(self._input.pop(index))
            value = _arguments(said)
            block["input"] = {} if value is None else value
            if value is None:
                self.broken[block["id"]] = said
        return block


def usage_of(
    prompt: int, output: int, *, cache_read: int = 0, cache_write: int = 0, thinking: int | None = None
) -> Event:
    """Return usage in the API's form. `prompt` counts all tokens of the prompt, those of the cache among them."""
    usage: Event = {
        "input_tokens": max(0, prompt - cache_read - cache_write), "cache_creation_input_tokens": cache_write,
        "cache_read_input_tokens": cache_read, "output_tokens": output,
    }  # fmt: skip
    return usage if thinking is None else {**usage, "output_tokens_details": {"thinking_tokens": thinking}}


def _delta(index: int, field: str, piece: str) -> Event:
    return {"type": "content_block_delta", "index": index, "delta": {"type": _DELTAS[field], field: piece}}


def _arguments(text: str) -> Event | None:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
