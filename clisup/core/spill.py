"""Large payloads leave their event for a blob: the field keeps its head, and `blob` names the whole. Pure.

Names are made from the place in the spool, so that a second decoding of the same line names the same blob.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from clisup.core.events import Block, EventBase, Unparsed
from clisup.core.framing import Line

__all__ = ["Blob", "payload_size", "raw_name", "spill"]

_HEAD = 4096  # characters of a spilled payload that stay in its event
_Updates = dict[str, Any]


class Blob(NamedTuple):
    """A payload to be written before its event."""

    name: str
    data: bytes


def raw_name(run: int, spool: str, line: Line) -> str:
    """The name of a raw line: it stays in the spool and nothing is copied."""
    return f"raw-{run}-{spool}-{line.start}-{line.end}"


def spill(event: EventBase, *, run: int, spool: str, line: Line, k: int, limit: int) -> tuple[EventBase, list[Blob]]:
    """The event with its payloads over `limit` characters cut to their heads, and the blobs that hold them whole."""
    if type(event) is Unparsed:
        return event.model_copy(update={"blob": raw_name(run, spool, line)}), []
    if not event.payload or line.end - line.start <= limit:  # no payload can be longer than the line it came in
        return event, []
    base = f"blob-{run}-{spool}-{line.end}-{k}"
    updates: _Updates = {}
    blobs: list[Blob] = []
    for name in event.payload:
        _spill_field(getattr(event, name), name, base, limit, updates, blobs)
    return (event.model_copy(update=updates), blobs) if updates else (event, [])


def _spill_field(value: Any, name: str, base: str, limit: int, updates: _Updates, blobs: list[Blob]) -> None:
    if isinstance(value, str) and len(value) > limit:
        updates |= {name: value[:_HEAD], "blob": base}
        if name == "content":
            updates["truncated"] = True
        blobs.append(Blob(base, value.encode("utf-8", "replace")))
    elif isinstance(value, dict) and payload_size(value) > limit:
        text = _json(value)
        updates |= {name: {"_head": text[:_HEAD]}, "blob": base}
        blobs.append(Blob(base, text.encode("utf-8", "replace")))
    elif isinstance(value, tuple) and value:
        blocks = [_spill_block(block, f"{base}.{at}", limit, blobs) for at, block in enumerate(value)]
        if any(new is not old for new, old in zip(blocks, value, strict=True)):
            updates[name] = tuple(blocks)


def _spill_block(block: Block, name: str, limit: int, blobs: list[Blob]) -> Block:
    for field in ("text", "data"):
        value = getattr(block, field)
        if value is not None and len(value) > limit:
            blobs.append(Blob(name, value.encode("utf-8", "replace")))
            return block.model_copy(update={field: value[:_HEAD], "blob": name})
    if block.input is not None and payload_size(block.input) > limit:
        text = _json(block.input)
        blobs.append(Blob(name, text.encode("utf-8", "replace")))
        return block.model_copy(update={"input": {"_head": text[:_HEAD]}, "blob": name})
    return block


def _json(value: dict[str, Any]) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "[nested too deeply]"  # the CLI's own line still has it (`raw: true`)


def payload_size(value: Any) -> int:
    """About how many characters a JSON value takes. Copies no text, and does not mind how deep the value is nested."""
    size, todo = 0, [value]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            size += len(item) + 2
        elif isinstance(item, dict):
            size += 2 + sum(len(key) + 4 for key in item)
            todo.extend(item.values())
        elif isinstance(item, list | tuple):
            size += 2 + len(item)
            todo.extend(item)
        else:
            size += 8
    return size
