"""Spill of large payloads: the event keeps the head of the field, and `blob` names the whole payload. Pure.

Names come from the place in the spool, so that decoding the same line again names the same blob.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from msgspec.structs import replace

from clisup.model.events import Block, EventBase, Unparsed
from clisup.model.lines.framing import NO_CUTS, Cuts, Line, LongText
from clisup.model.structs import JsonObject

_HEAD = 4096  # characters of a spilled payload that stay in its event
_Updates = JsonObject


class Blob(NamedTuple):
    """Payload that is written before its event."""

    name: str
    data: bytes | LongText


def raw_name(run: int, spool: str, line: Line) -> str:
    """Return the name of a raw line. The line stays in the spool, without a copy."""
    return f"raw-{run}-{spool}-{line.start}-{line.end}"


def spill(event: EventBase, *, run: int, spool: str, line: Line, k: int, limit: int) -> tuple[EventBase, list[Blob]]:
    """Return the event with payloads over `limit` characters cut to their heads, and blobs of the whole payloads."""
    if type(event) is Unparsed:
        return replace(event, blob=raw_name(run, spool, line)), []
    if not event.payload or line.end - line.start <= limit:  # no payload can be longer than its line
        return event, []
    spilling = _Spilling(limit, line.cuts or NO_CUTS)
    for name in event.payload:
        spilling.field(getattr(event, name), name, f"blob-{run}-{spool}-{line.end}-{k}")
    return (replace(event, **spilling.updates), spilling.blobs) if spilling.updates else (event, [])


class _Spilling:
    """Spill of one event.

    `cuts` are parts of the line that were cut out before decoding. The parts count and go to the blobs.
    """

    def __init__(self, limit: int, cuts: Cuts) -> None:
        self._limit = limit
        self._cuts = cuts
        self.updates: _Updates = {}
        self.blobs: list[Blob] = []

    def field(self, value: Any, name: str, blob: str) -> None:
        """Spill one field if its value is over the limit."""
        if isinstance(value, str) and self._cuts.length(value) > self._limit:
            self.updates |= {name: value[:_HEAD], "blob": blob}
            if name == "content":
                self.updates["truncated"] = True
            self._put(blob, value)
        elif isinstance(value, dict) and is_over(value, self._limit, self._cuts):
            text = _json(value)
            self.updates |= {name: {"_head": text[:_HEAD]}, "blob": blob}
            self._put(blob, text, quoted=True)
        elif isinstance(value, tuple) and value:
            blocks = [self._block(block, f"{blob}.{at}") for at, block in enumerate(value)]
            if any(new is not old for new, old in zip(blocks, value, strict=True)):
                self.updates[name] = tuple(blocks)

    def _block(self, block: Block, name: str) -> Block:
        for field in ("text", "data"):
            value = getattr(block, field)
            if value is not None and self._cuts.length(value) > self._limit:
                self._put(name, value)
                return replace(block, **{field: value[:_HEAD], "blob": name})
        if block.input is not None and is_over(block.input, self._limit, self._cuts):
            text = _json(block.input)
            self._put(name, text, quoted=True)
            return replace(block, input={"_head": text[:_HEAD]}, blob=name)
        return block

    def _put(self, name: str, text: str, *, quoted: bool = False) -> None:
        long = self._cuts.whole(text, quoted=quoted)
        self.blobs.append(Blob(name, text.encode("utf-8", "replace") if long is None else long))


def _json(value: JsonObject) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "[nested too deeply]"  # the CLI's own line still has it (`raw: true`)


def is_over(value: Any, limit: int, cuts: Cuts = NO_CUTS) -> bool:
    """Tell whether a JSON value takes more than about `limit` characters.

    The count copies no text, works at any depth of nesting, and stops as soon as the result is certain.
    """
    size, todo = 0, [value]
    while todo and size <= limit:
        item = todo.pop()
        if isinstance(item, str):
            size += cuts.length(item) + 2
        elif isinstance(item, dict):
            size += 2 + sum(len(key) + 4 for key in item)
            todo.extend(item.values())
        elif isinstance(item, list | tuple):
            size += 2 + len(item)
            todo.extend(item)
        else:
            size += 8
    return size > limit
