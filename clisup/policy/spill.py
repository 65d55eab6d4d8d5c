"""Large payloads leave their event for a blob: the field keeps its head, and `blob` names the whole. Pure.

Names are made from the place in the spool, so that a second decoding of the same line names the same blob.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from clisup.model.events import Block, EventBase, Unparsed
from clisup.model.lines.cuts import NO_CUTS, Cuts, LongText
from clisup.model.lines.framing import Line

__all__ = ["Blob", "is_over", "raw_name", "spill"]

_HEAD = 4096  # characters of a spilled payload that stay in its event
_Updates = dict[str, Any]


class Blob(NamedTuple):
    """A payload to be written before its event."""

    name: str
    data: bytes | LongText


def raw_name(run: int, spool: str, line: Line) -> str:
    """The name of a raw line: it stays in the spool and nothing is copied."""
    return f"raw-{run}-{spool}-{line.start}-{line.end}"


def spill(event: EventBase, *, run: int, spool: str, line: Line, k: int, limit: int) -> tuple[EventBase, list[Blob]]:
    """The event with its payloads over `limit` characters cut to their heads, and the blobs that hold them whole."""
    if type(event) is Unparsed:
        return event.model_copy(update={"blob": raw_name(run, spool, line)}), []
    if not event.payload or line.end - line.start <= limit:  # no payload can be longer than the line it came in
        return event, []
    spilling = _Spilling(limit, line.cuts or NO_CUTS)
    for name in event.payload:
        spilling.field(getattr(event, name), name, f"blob-{run}-{spool}-{line.end}-{k}")
    return (event.model_copy(update=spilling.updates), spilling.blobs) if spilling.updates else (event, [])


class _Spilling:
    """One event's. `cuts` is what was cut out of its line before it was decoded: it counts, and is in the blobs."""

    def __init__(self, limit: int, cuts: Cuts) -> None:
        self._limit = limit
        self._cuts = cuts
        self.updates: _Updates = {}
        self.blobs: list[Blob] = []

    def field(self, value: Any, name: str, blob: str) -> None:
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
                return block.model_copy(update={field: value[:_HEAD], "blob": name})
        if block.input is not None and is_over(block.input, self._limit, self._cuts):
            text = _json(block.input)
            self._put(name, text, quoted=True)
            return block.model_copy(update={"input": {"_head": text[:_HEAD]}, "blob": name})
        return block

    def _put(self, name: str, text: str, *, quoted: bool = False) -> None:
        long = self._cuts.whole(text, quoted=quoted)
        self.blobs.append(Blob(name, text.encode("utf-8", "replace") if long is None else long))


def _json(value: dict[str, Any]) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "[nested too deeply]"  # the CLI's own line still has it (`raw: true`)


def is_over(value: Any, limit: int, cuts: Cuts = NO_CUTS) -> bool:
    """Does a JSON value take more than about so many characters? Copies no text, does not mind how deep the value is nested, and
    looks no further than it has to."""
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
