"""The format of a journal line, and how a journal that was cut by a crash is read.

A line is `{"src": ..., "memo": ..., "event": <envelope>}\\n`, in this order. The envelope's bytes are made once and are what
every client gets, so they are cut out of the line, never re-encoded. `src` says which line of which spool an event came
from; what the daemon decides by itself carries none. `memo` is the daemon's own and never leaves it. The first line of a
segment is `{"snapshot": {...}}`: the session's state at that point, so that only the last segment is read at start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec

__all__ = [
    "Record",
    "Source",
    "encode_line",
    "encode_snapshot",
    "event_seq",
    "event_slice",
    "event_type",
    "read_lines",
    "whole_lines",
]

Spool = Literal["out", "err"]
_EVENT = b'"event":'
_TYPE = b'"type":"'
_SEQ = b'"seq":'
_HEAD = {"seq": int, "ts": str, "type": str}  # what every fold relies on


class Source(NamedTuple):
    """Where an event came from: its line's place in a spool (`end` after the newline) and its ordinal `k` within that line."""

    run: int
    spool: Spool
    start: int
    end: int
    k: int


@dataclass(frozen=True, slots=True)
class Record:
    """One journal line, read. `event` holds the envelope's fields, or None for a snapshot."""

    event: dict[str, Any] | None
    src: Source | None = None
    memo: dict[str, Any] | None = None
    snapshot: dict[str, Any] | None = None


def encode_line(event: bytes, *, src: Source | None = None, memo: dict[str, Any] | None = None) -> bytes:
    """One journal line, newline included."""
    head = b"{"
    if src is not None:
        head += f'"src":[{src.run},"{src.spool}",{src.start},{src.end},{src.k}],'.encode()
    if memo is not None:
        head += b'"memo":' + msgspec.json.encode(memo) + b","
    return head + _EVENT + event + b"}\n"


def encode_snapshot(state: dict[str, Any]) -> bytes:
    """The first line of a segment."""
    return b'{"snapshot":' + msgspec.json.encode(state) + b"}\n"


def event_slice(line: bytes) -> bytes | None:
    """The envelope's bytes in a journal line (with or without its newline); None for a snapshot."""
    at = line.find(_EVENT)
    if at < 0 or line.startswith(b'{"snapshot"'):
        return None
    return line[at + len(_EVENT) : line.rindex(b"}")]


def event_type(event: bytes) -> str:
    """The type of an envelope, from its fixed head: nothing before it is a client's or a CLI's text."""
    start = event.index(_TYPE) + len(_TYPE)
    return event[start : event.index(b'"', start)].decode()


def event_seq(event: bytes) -> int:
    """The seq of an envelope, from its fixed head."""
    start = event.index(_SEQ) + len(_SEQ)
    return int(event[start : event.index(b",", start)])


def read_lines(data: bytes) -> list[Record]:
    """The records of whole lines. Raises `ValueError` with the offset of the first line that is none of ours."""
    records, at = [], 0
    for line in data.splitlines(keepends=True):  # JSON escapes control characters: no line of ours holds a \\r
        try:
            records.append(_record(msgspec.json.decode(line)))
        except (TypeError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            raise ValueError(f"no journal line at offset {at}") from error
        at += len(line)
    return records


def _record(fields: Any) -> Record:
    if not isinstance(fields, dict):
        raise ValueError("no object")
    if isinstance(snapshot := fields.get("snapshot"), dict):
        return Record(event=None, snapshot=snapshot)
    event, src = fields.get("event"), fields.get("src")
    if not isinstance(event, dict) or any(not isinstance(event.get(name), kind) for name, kind in _HEAD.items()):
        raise ValueError("no event")
    return Record(event=event, src=Source(*src) if src else None, memo=fields.get("memo"))


def whole_lines(data: bytes) -> int:
    """How many bytes of a segment are whole lines: what comes after is a torn tail, to be cut and made again."""
    return data.rfind(b"\n") + 1
