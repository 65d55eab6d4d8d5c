"""Format of a journal line, and the reader of a journal that a crash has cut.

A line is `{"crc": ..., "src": ..., "memo": ..., "event": <envelope>}\\n`, in this order. `crc` is the CRC-32 of the
bytes after it, in 8 hex digits. The envelope's bytes are made once and go unchanged to every client, so they are cut
out of the line, never re-encoded. `src` names the line and the spool of an event; events of the daemon itself have
none. `memo` is the daemon's own and never leaves it.

The first line of a segment is `{"crc": ..., "v": 2, "snapshot": {...}}`: the session's state at that point, so that a
start reads only the last segment. Version 1 is the same without `crc` and `v`: it can be read, and a segment may begin
with version 1 and go on in version 2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple
from zlib import crc32

import msgspec

from clisup.model.lines.literals import is_json

__all__ = [
    "JOURNAL_VERSION",
    "DamagedLine",
    "Record",
    "Source",
    "encode_line",
    "encode_snapshot",
    "event_seq",
    "event_slice",
    "event_type",
    "is_intact",
    "read_lines",
    "stored_event",
    "version_of",
    "whole_lines",
]

JOURNAL_VERSION = 2
"""Version of the format. A journal of a later version is not read at all; each version keeps `crc` and `v` in their
places."""

Spool = Literal["out", "err"]
_encode = msgspec.json.Encoder().encode
_CRC = b'{"crc":"'
_SEALED = len(b'{"crc":"0a1b2c3d",')  # offset of the bytes that the checksum covers
_UNSEALED = (b'{"event":', b'{"src":[', b'{"memo":{', b'{"snapshot":{')  # beginnings of a line of version 1
_VERSION = b'"v":'
_MEMO = b'"memo":'
_STDERR = b',"err",'
_EVENT = b'"event":'
_TYPE = b'"type":"'
_SEQ = b'"seq":'


class Source(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Origin of an event: its line's place in a spool (`end` after the newline) and its ordinal `k` within that line."""

    run: int
    spool: Spool
    start: int
    end: int
    k: int


class Record(NamedTuple):
    """Parsed journal line. `event` holds the envelope's fields, or None for a snapshot."""

    event: dict[str, Any] | None
    src: Source | None = None
    memo: dict[str, Any] | None = None
    snapshot: dict[str, Any] | None = None


class DamagedLine(ValueError):
    """Line that is no journal line, or that has changed since it was written. `offset` is its place in the data."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"{why} at offset {offset}")
        self.offset = offset
        self.why = why


def encode_line(event: bytes, *, src: Source | None = None, memo: Mapping[str, Any] | None = None) -> bytes:
    """Return one journal line, newline included."""
    head = b"" if src is None else b'"src":%b,' % _encode(src)
    if memo is not None:
        head += b'"memo":%b,' % _encode(memo)
    rest = b'%b"event":%b}' % (head, event)
    return b'{"crc":"%08x",%b\n' % (crc32(rest), rest)


def encode_snapshot(state: dict[str, Any]) -> bytes:
    """Return the first line of a segment."""
    rest = b'"v":%d,"snapshot":%b}' % (JOURNAL_VERSION, _encode(state))
    return b'{"crc":"%08x",%b\n' % (crc32(rest), rest)


def is_intact(line: bytes) -> bool:
    """Tell whether a line (without its newline) is as it was written. For version 1 it need only be valid JSON."""
    if line[:_SEALED] == b'{"crc":"%08x",' % crc32(line[_SEALED:]):
        return True
    return line.startswith(_UNSEALED) and is_json(line)


def version_of(head: bytes) -> int:
    """Return the format's version from a segment's first line, even if the line itself is of a later format."""
    if not head.startswith(_VERSION, _SEALED):
        return 1
    digits = head[_SEALED + len(_VERSION) :].partition(b",")[0]
    return int(digits) if digits.isdigit() else 1


def event_slice(line: bytes) -> bytes | None:
    """Return the envelope's bytes in a journal line (with or without its newline), or None for a snapshot."""
    at = line.find(_EVENT)
    if at < 0 or line.startswith(_VERSION, _SEALED) or line.startswith(b'{"snapshot"'):
        return None
    return line[at + len(_EVENT) : line.rindex(b"}")]


def stored_event(line: bytes) -> tuple[int, bytes] | None:
    """Return the seq and the envelope's bytes of a line without its newline.

    Return None for a snapshot or a damaged line. Three functions in one step, for the common line (`is_intact`,
    `event_slice`, `event_seq`): a reader of history reads thousands of lines.
    """
    at = line.find(_EVENT, _SEALED)
    if at < 0 or line[:_SEALED] != b'{"crc":"%08x",' % crc32(line[_SEALED:]) or line.startswith(_VERSION, _SEALED):
        event = event_slice(line) if is_intact(line) else None
    else:
        event = line[at + len(_EVENT) : -1]
    try:
        return None if event is None else (event_seq(event), event)
    except ValueError:
        return None


def event_type(event: bytes) -> str:
    """Return the type of an envelope from its fixed head. No text of a client or a CLI stands before it."""
    start = event.index(_TYPE) + len(_TYPE)
    return event[start : event.index(b'"', start)].decode()


def event_seq(event: bytes) -> int:
    """Return the seq of an envelope from its fixed head."""
    start = event.index(_SEQ) + len(_SEQ)
    return int(event[start : event.index(b",", start)])


def read_lines(data: bytes, wanted: Collection[str] | None = None) -> list[Record]:
    """Return the records of whole lines.

    Raises `DamagedLine` for the first line that is invalid or has another checksum. With `wanted`, the events of other
    types between two wanted ones are reduced to the last of each type. Events with a memo and events of stderr are
    never left out. The reduced events are most of a journal, and checking only their checksums takes half the time.
    """
    records, at = [], 0
    names = None if wanted is None else frozenset(type_.encode() for type_ in wanted)
    passed: dict[bytes, tuple[int, bytes]] = {}
    for line in data.split(b"\n")[:-1]:
        if not is_intact(line):
            raise DamagedLine(at, "a wrong checksum" if line.startswith(_CRC) else "no journal line")
        if names is not None and (type_ := _bare_type(line)) and type_ not in names:
            passed.pop(type_, None)
            passed[type_] = (at, line)
        else:
            if passed:
                records += [_decoded(*left) for left in passed.values()]
                passed = {}
            records.append(_decoded(at, line))
        at += len(line) + 1
    return records + [_decoded(*left) for left in passed.values()]


def _decoded(at: int, line: bytes) -> Record:
    try:
        return _record(msgspec.json.decode(line))
    except (TypeError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise DamagedLine(at, "no journal line") from error


def _bare_type(line: bytes) -> bytes:
    """Return the type of an event of stdout or of the daemon without a memo, from the fixed head of its line.

    Return an empty value for all other lines.
    """
    at = line.find(_TYPE, _SEALED)
    if at < 0 or not line.startswith(_CRC) or line.startswith(_VERSION, _SEALED):
        return b""
    if line.find(_MEMO, _SEALED, at) >= 0 or line.find(_STDERR, _SEALED, at) >= 0:
        return b""
    return line[at + len(_TYPE) : line.find(b'"', at + len(_TYPE))]


def _record(fields: Any) -> Record:
    if not isinstance(fields, dict):
        raise ValueError("no object")
    if isinstance(snapshot := fields.get("snapshot"), dict):
        return Record(event=None, snapshot=snapshot)
    event, src = fields.get("event"), fields.get("src")
    if not isinstance(event, dict):
        raise ValueError("no event")
    if not (
        isinstance(event.get("seq"), int) and isinstance(event.get("ts"), str) and isinstance(event.get("type"), str)
    ):
        raise ValueError("no event")  # every fold relies on these fields
    return Record(event, Source(*src) if src else None, fields.get("memo"))


def whole_lines(data: bytes) -> int:
    """Return the number of bytes in whole lines.

    The bytes after them are a torn tail, to be cut off and made again.
    """
    return data.rfind(b"\n") + 1
