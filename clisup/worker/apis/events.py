"""Events of one answer in the form of the Anthropic Messages API. Claude's frames carry these events unchanged. Pure.

Source of the shapes: the types of the `anthropic` SDK (2.12.0), `RawMessageStreamEvent`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from clisup.worker import JsonObject

Event = JsonObject
_DELTAS = {
    "text": "text_delta",
    "thinking": "thinking_delta",
    "signature": "signature_delta",
    "partial_json": "input_json_delta",
}


class StreamError(Exception):
    """Error inside an answer's stream. `code` and `kind` are the API's own names for the error, or None."""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        kind: str | None = None,
        status: int | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.code, self.kind, self.status = message, code, kind, status
        self.fields: Mapping[str, Any] = fields or {}
        """The API's error object, which may tell a time to wait."""

    @classmethod
    def of(cls, error: Any) -> StreamError:
        """Return the error that an API's error object describes. Some APIs use a status as the code."""
        fields = error if isinstance(error, Mapping) else {"message": str(error)}
        code, kind = fields.get("code"), fields.get("type")
        return cls(
            str(fields.get("message") or "the API sent an error"),
            code=code if isinstance(code, str) else None,
            kind=kind if isinstance(kind, str) else None,
            status=code if isinstance(code, int) else None,
            fields=fields,
        )


@contextmanager
def shape_errors() -> Iterator[None]:
    """Turn the errors of reading an event of an unexpected shape into a `StreamError`."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        words = f"the API sent an event of an unknown shape ({type(error).__name__}: {error})"
        raise StreamError(words, code="malformed_chunk") from None


class AnswerBuilder:
    """Builder of one answer's events, in order: message start, blocks, message end.

    A text or thinking block closes when another block begins. Tool blocks stay open until the end, because some APIs
    interleave the arguments of parallel calls.
    """

    def __init__(self) -> None:
        self.message_id: str | None = None
        self._next = 0
        self._open: tuple[str, int] | None = None  # kind and index of the open text or thinking block
        self._tools: dict[str, int] = {}  # the API's key of a call, and the index of its block

    def start(self, message_id: str, model: str) -> list[Event]:
        """Begin the message. Later calls return no event."""
        if self.message_id is not None:
            return []
        self.message_id = message_id
        head: Event = {"id": message_id, "type": "message", "role": "assistant", "model": model, "content": [],
                "stop_reason": None, "stop_sequence": None, "usage": {}}  # fmt: skip
        return [{"type": "message_start", "message": head}]

    def text(self, piece: str) -> list[Event]:
        """Add a piece of the answer's text."""
        return self._delta("text", {"type": "text", "text": ""}, "text", piece)

    def thinking(self, piece: str) -> list[Event]:
        """Add a piece of the model's thinking."""
        return self._delta("thinking", {"type": "thinking", "thinking": "", "signature": ""}, "thinking", piece)

    def signature(self, signature: str) -> list[Event]:
        """Sign the thinking and close its block. The next request sends the signature back."""
        block: Event = {"type": "thinking", "thinking": "", "signature": ""}
        return [*self._delta("thinking", block, "signature", signature), *self.close()]

    @property
    def is_thinking(self) -> bool:
        """Return whether the open block is one of thinking."""
        return self._open is not None and self._open[0] == "thinking"

    def tool(self, key: str, call_id: str, name: str) -> list[Event]:
        """Begin a tool call. The API names the call by `key` from now on."""
        closed, self._tools[key] = self.close(), self._next
        return [*closed, self._start({"type": "tool_use", "id": call_id, "name": name, "input": {}})]

    def arguments(self, key: str, piece: str) -> list[Event]:
        """Add a piece of a call's JSON arguments."""
        return [_delta_event(self._tools[key], "partial_json", piece)] if piece else []

    def has_tool(self, key: str | None = None) -> bool:
        """Return whether the call with this key has begun, or any call without a key."""
        return bool(self._tools) if key is None else key in self._tools

    def close(self) -> list[Event]:
        """End the open text or thinking block."""
        if self._open is None:
            return []
        index, self._open = self._open[1], None
        return [{"type": "content_block_stop", "index": index}]

    def end(self, stop_reason: str, usage: Event) -> list[Event]:
        """End all blocks and the message."""
        closed = self.close()
        blocks = [{"type": "content_block_stop", "index": index} for index in sorted(self._tools.values())]
        delta = {"stop_reason": stop_reason, "stop_sequence": None}
        return [*closed, *blocks, {"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]

    def _delta(self, kind: str, block: Event, field: str, piece: str) -> list[Event]:
        if not piece:
            return []
        events: list[Event] = []
        if self._open is None or self._open[0] != kind:
            events += self.close()
            self._open = (kind, self._next)
            events.append(self._start(block))
        return [*events, _delta_event(self._open[1], field, piece)]

    def _start(self, block: Event) -> Event:
        index, self._next = self._next, self._next + 1
        return {"type": "content_block_start", "index": index, "content_block": block}


class ApiMessage:
    """One answer, assembled from its events for the history and for claude's frames of whole blocks."""

    def __init__(self) -> None:
        self.head: Event = {}
        self.blocks: dict[int, Event] = {}
        self.stop_reason: str | None = None
        self.usage: Event = {}
        self.ended = False
        self.counted = False
        """Set when the turn has counted the usage."""
        self.broken: dict[str, str] = {}
        """Raw arguments, by call id, of calls whose arguments are no JSON object."""
        self._input: dict[int, list[str]] = {}

    def take(self, event: Event) -> Event | None:
        """Add one event, and return the block that the event ends. Raises `StreamError` for an unknown shape."""
        with shape_errors():
            return self._take(event)

    @property
    def id(self) -> str:
        """Return the API's id of the message."""
        return str(self.head.get("id") or "")

    @property
    def content(self) -> list[Event]:
        """Return the blocks, in order."""
        return [self.blocks[index] for index in sorted(self.blocks)]

    @property
    def text(self) -> str:
        """Return the text of all text blocks."""
        return "".join(block["text"] for block in self.content if block["type"] == "text")

    @property
    def calls(self) -> list[Event]:
        """Return the tool calls."""
        return [block for block in self.content if block["type"] == "tool_use"]

    def _take(self, event: Event) -> Event | None:
        match event["type"]:
            case "message_start":
                self.head = event["message"]
                self.usage = dict(self.head.get("usage") or {})
            case "content_block_start":
                self.blocks[event["index"]] = self._begun(event["content_block"])
            case "content_block_delta":
                self._add(event["index"], event["delta"])
            case "content_block_stop":
                return self._end_block(event["index"])
            case "message_delta":
                self.stop_reason = event["delta"].get("stop_reason")
                self.usage |= {name: count for name, count in (event.get("usage") or {}).items() if count is not None}
            case "message_stop":
                self.ended = True
        return None

    def _begun(self, block: Event) -> Event:
        """Return a block. A call without an id, or with the id of another call of the answer, gets an id of its own."""
        if block["type"] != "tool_use":
            return dict(block)
        name, taken = str(block.get("id") or ""), {call["id"] for call in self.calls}
        own = name or f"call_{self.id}"
        number = 1
        while not name or name in taken:
            name, number = f"{own}_{number}", number + 1
        return {**block, "id": name}

    def _add(self, index: int, delta: Event) -> None:
        block = self.blocks[index]
        match delta["type"]:
            case "input_json_delta":
                self._input.setdefault(index, []).append(delta["partial_json"])
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
            case kind:
                field = kind.removesuffix("_delta")
                block[field] = block.get(field, "") + delta[field]

    def _end_block(self, index: int) -> Event:
        block = self.blocks[index]
        if index in self._input:
            raw = "".join(self._input.pop(index))
            value = _arguments(raw)
            block["input"] = {} if value is None else value
            if value is None:
                self.broken[block["id"]] = raw
        return block


def usage_of(
    prompt: int, output: int, *, cache_read: int = 0, cache_write: int = 0, thinking: int | None = None
) -> Event:
    """Return usage in the API's form. `prompt` counts all tokens of the prompt, cached tokens included."""
    usage: Event = {
        "input_tokens": max(0, prompt - cache_read - cache_write), "cache_creation_input_tokens": cache_write,
        "cache_read_input_tokens": cache_read, "output_tokens": output,
    }  # fmt: skip
    return usage if thinking is None else {**usage, "output_tokens_details": {"thinking_tokens": thinking}}


def _delta_event(index: int, field: str, piece: str) -> Event:
    return {"type": "content_block_delta", "index": index, "delta": {"type": _DELTAS[field], field: piece}}


def _arguments(text: str) -> Event | None:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
