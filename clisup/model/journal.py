"""Format of a journal: blocks of events, and the reader of a journal that a crash has cut.

A *block* holds the events of one append: a head line, then one line for each event. The line of an event is its
`session/event` notification, byte for byte as every client gets it. The bytes are made once, stored once and sent as
they are.

    {"crc":"0a1b2c3d","first":101,"bytes":5210,"sum":912559,"src":[[1,"out",0,97,0],null],"memo":{"102":{"run":1}}}
    {"jsonrpc":"2.0","method":"session/event","params":{"session_id":"...","seq":101, ...}}
    {"jsonrpc":"2.0","method":"session/event","params":{"session_id":"...","seq":102, ...}}

`crc` is the CRC-32 of the rest of the head line, in 8 hex digits. `first` is the seq of the first event. `bytes` is the
length of the event lines and `sum` their CRC-32. `src` has an entry for each event: the line and the spool of an event
of the CLI, or null for an event of the daemon. `memo` is by seq; it is the daemon's own and never leaves it.

The first line of a segment is `{"crc": ..., "v": 3, "snapshot": {...}}`: the session's state at that point, so that a
start reads only the last segment.

Versions 1 and 2 can be read. There each event is a line `{"crc": ..., "src": ..., "memo": ..., "event": <envelope>}`;
version 1 has no `crc` and no `v`. A segment may begin with an earlier version and go on in a later one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple
from zlib import crc32

import msgspec

from clisup.model.envelope import FRAME_BEGIN, FRAME_END
from clisup.model.lines.literals import is_json

__all__ = [
    "BLOCK_BYTES",
    "JOURNAL_VERSION",
    "Damage",
    "DamagedEntry",
    "EventFrames",
    "JournalBlock",
    "Record",
    "Snapshot",
    "Source",
    "StoredEvent",
    "blocks_of",
    "encode_block",
    "encode_snapshot",
    "event_seq",
    "event_type",
    "first_seq_of",
    "joined",
    "read_entries",
    "scan",
    "version_of",
]

JOURNAL_VERSION = 3
"""Version of the format. A journal of a later version is not read at all; each version keeps `crc` and `v` in their
places."""
BLOCK_BYTES = 32 * 1024
"""Bytes of event lines after which a block ends. A reader reads whole blocks, and a damaged byte costs a whole block."""

Spool = Literal["out", "err"]
_encode = msgspec.json.Encoder().encode
_SEALED = len(b'{"crc":"0a1b2c3d",')  # offset of the bytes that the checksum covers
_UNSEALED = (b'{"event":', b'{"src":[', b'{"memo":{', b'{"snapshot":{')  # beginnings of a line of version 1
_BLOCK = b'"first":'
_VERSION = b'"v":'
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


class StoredEvent(NamedTuple):
    """Event as stored: its seq, its envelope, and its origin."""

    seq: int
    event: bytes
    src: Source | None


class EventFrames(NamedTuple):
    """Notifications of the events from seq `first` on and below `end`, one line each."""

    first: int
    end: int
    data: bytes

    @property
    def lines(self) -> list[bytes]:
        """Return the lines, without their newlines."""
        return self.data.split(b"\n")[:-1]

    def between(self, low: int, high: int) -> EventFrames:
        """Return the events from `low` on and below `high`."""
        low, high = max(low, self.first), min(high, self.end)
        if (low, high) == (self.first, self.end):
            return self
        lines = self.lines[low - self.first : max(0, high - self.first)]
        return EventFrames(low, max(low, high), b"".join([line + b"\n" for line in lines]))


class JournalBlock(NamedTuple):
    """Events of one append: their notifications, the origin of each, and the memos by seq."""

    frames: EventFrames
    sources: Sequence[Source | None]
    memos: Mapping[int, Mapping[str, Any]] = {}

    def events(self) -> list[StoredEvent]:
        """Return the events, each with its envelope."""
        lines, first = self.frames.lines, self.frames.first
        return [
            StoredEvent(seq, line[len(FRAME_BEGIN) : -1], src)
            for seq, line, src in zip(range(first, self.frames.end), lines, self.sources, strict=True)
        ]

    def between(self, low: int, high: int) -> JournalBlock:
        """Return the events from `low` on and below `high`."""
        frames = self.frames.between(low, high)
        if frames is self.frames:
            return self
        begin = self.frames.first
        return JournalBlock(frames, self.sources[frames.first - begin : frames.end - begin], self.memos)


class Snapshot(NamedTuple):
    """First entry of a segment: the session's state before the events of the segment."""

    state: dict[str, Any]


class Damage(NamedTuple):
    """Bytes that are no entry of a journal, or that have changed since they were written."""

    why: str


class DamagedEntry(ValueError):
    """Error of a damaged entry. `offset` is its place in the data."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"{why} at offset {offset}")
        self.offset = offset
        self.why = why


class Record(NamedTuple):
    """Parsed event or snapshot. `event` holds the envelope's fields, or None for a snapshot."""

    event: dict[str, Any] | None
    src: Source | None = None
    memo: Mapping[str, Any] | None = None
    snapshot: dict[str, Any] | None = None


class _BlockHead(msgspec.Struct, gc=False, omit_defaults=True):
    first: int
    bytes: int
    sum: int
    src: Sequence[Source | None]
    memo: Mapping[int, Mapping[str, Any]] = {}


class _FirstLine(msgspec.Struct):
    snapshot: dict[str, Any]


_decode_head = msgspec.json.Decoder(_BlockHead).decode
_decode_snapshot = msgspec.json.Decoder(_FirstLine).decode


# -- writing ------------------------------------------------------------------------------------------------------------


def blocks_of(
    first: int,
    frames: Sequence[bytes],
    sources: Sequence[Source | None],
    memos: Mapping[int, Mapping[str, Any]],
) -> list[JournalBlock]:
    """Return the blocks of these notifications, the first of which has the seq `first`. A block ends at `BLOCK_BYTES`."""
    blocks, begin, written = list[JournalBlock](), 0, 0
    for end, size in enumerate(accumulate(map(len, frames)), 1):
        if size - written >= BLOCK_BYTES or end == len(frames):
            seq = first + begin
            own = {at: memo for at, memo in memos.items() if seq <= at < first + end} if memos else {}
            blocks.append(
                JournalBlock(EventFrames(seq, first + end, b"".join(frames[begin:end])), sources[begin:end], own)
            )
            begin, written = end, size
    return blocks


def encode_block(block: JournalBlock) -> bytes:
    """Return the bytes of a block in a journal."""
    frames = block.frames
    head = _BlockHead(frames.first, len(frames.data), crc32(frames.data), block.sources, block.memos)
    return _sealed(_encode(head)[1:]) + frames.data


def encode_snapshot(state: Mapping[str, Any]) -> bytes:
    """Return the first line of a segment."""
    return _sealed(b'"v":%d,"snapshot":%b}' % (JOURNAL_VERSION, _encode(state)))


def _sealed(rest: bytes) -> bytes:
    """Return a line that begins with the checksum of the rest."""
    return b'{"crc":"%08x",%b\n' % (crc32(rest), rest)


# -- reading ------------------------------------------------------------------------------------------------------------


def scan(data: bytes) -> Iterator[tuple[int, JournalBlock | Snapshot | Damage]]:
    """Yield each whole entry, with the offset of its end. An incomplete entry at the end is a torn tail.

    A power loss can leave zeros in place of the last pages, so a last block without its last newline is torn, too. The
    data may begin within an entry: the rest of that entry is `Damage`.
    """
    at = 0
    while (end := data.find(b"\n", at) + 1) > 0:
        entry: JournalBlock | Snapshot | Damage
        if data.startswith(_BLOCK, at + _SEALED):
            if (head := _head_of(data[at : end - 1])) is None:
                entry = Damage("a wrong checksum")
            else:
                frames = data[end : end + head.bytes]
                end += head.bytes
                if end > len(data) or (end == len(data) and not frames.endswith(b"\n")):
                    return
                entry = _block(head, frames) if crc32(frames) == head.sum else Damage("a wrong checksum")
        else:
            entry = _entry_of(data[at : end - 1])
        yield end, entry
        at = end


def _head_of(line: bytes) -> _BlockHead | None:
    """Return the head of a block, or None if the line has changed since it was written."""
    if not _is_sealed(line):
        return None
    try:
        head = _decode_head(b"{" + line[_SEALED:])
    except (ValueError, RecursionError):
        return None
    return head if head.bytes > 0 else None


def _is_sealed(line: bytes) -> bool:
    """Tell whether a line without its newline is as it was written."""
    return line[:_SEALED] == b'{"crc":"%08x",' % crc32(line[_SEALED:])


def _block(head: _BlockHead, data: bytes) -> JournalBlock | Damage:
    if not data.endswith(b"\n") or data.count(b"\n") != len(head.src):
        return Damage("no journal entry")
    return JournalBlock(EventFrames(head.first, head.first + len(head.src), data), head.src, head.memo)


def _entry_of(line: bytes) -> JournalBlock | Snapshot | Damage:
    """Return the entry of a line that is a snapshot, or an event of version 1 or 2."""
    if not _is_sealed(line) and not (line.startswith(_UNSEALED) and is_json(line)):
        return Damage("a wrong checksum" if line.startswith(b'{"crc":"') else "no journal entry")
    at = line.find(_EVENT)
    try:
        if at < 0 or line.startswith(_VERSION, _SEALED) or line.startswith(b'{"snapshot"'):
            return Snapshot(_decode_snapshot(line).snapshot)
        return _one_event(line[:at], line[at + len(_EVENT) : -1])
    except (LookupError, TypeError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return Damage("no journal entry")


def _one_event(head: bytes, event: bytes) -> JournalBlock:
    """Return the block of one event of version 1 or 2."""
    fields = msgspec.json.decode(head + b'"event":0}')
    src, memo, seq = fields.get("src"), fields.get("memo"), event_seq(event)
    frames = EventFrames(seq, seq + 1, FRAME_BEGIN + event + FRAME_END)
    return JournalBlock(frames, [Source(*src) if src else None], {} if memo is None else {seq: memo})


def joined(blocks: Sequence[JournalBlock]) -> JournalBlock:
    """Return consecutive blocks as one, without their memos."""
    if len(blocks) == 1:
        return blocks[0]
    sources = [src for block in blocks for src in block.sources]
    data = b"".join([block.frames.data for block in blocks])
    return JournalBlock(EventFrames(blocks[0].frames.first, blocks[-1].frames.end, data), sources)


def first_seq_of(line: bytes) -> int | None:
    """Return the first seq of the entry that begins with this line.

    Return None for a snapshot, for damage and for a line within a block.
    """
    if line.startswith(_BLOCK, _SEALED):
        head = _head_of(line.removesuffix(b"\n"))
        return None if head is None else head.first
    return next((entry.frames.first for _, entry in scan(line) if isinstance(entry, JournalBlock)), None)


def version_of(head: bytes) -> int:
    """Return the format's version from a segment's first line, even if the line itself is of a later format."""
    if not head.startswith(_VERSION, _SEALED):
        return 1
    digits = head[_SEALED + len(_VERSION) :].partition(b",")[0]
    return int(digits) if digits.isdigit() else 1


def event_type(event: bytes) -> str:
    """Return the type of an envelope or a notification. No text of a client or a CLI stands before it."""
    start = event.index(_TYPE) + len(_TYPE)
    return event[start : event.index(b'"', start)].decode()


def event_seq(event: bytes) -> int:
    """Return the seq of an envelope or a notification."""
    start = event.index(_SEQ) + len(_SEQ)
    return int(event[start : event.index(b",", start)])


def read_entries(
    data: bytes, wanted: Collection[str] | None = None, *, skip_damage: bool = False
) -> tuple[list[Record], int]:
    """Return the records of whole entries, and the bytes of these entries.

    With `wanted`, the events of other types between two wanted ones of a block are reduced to the last of each type.
    Events with a memo and events of stderr are never left out. The reduced events are most of a journal, and they are
    not decoded.

    Raises `DamagedEntry` for the first entry that is invalid or has another checksum, or skips it with `skip_damage`.
    """
    records, at = list[Record](), 0
    for end, entry in scan(data):
        try:
            records += _records(entry, wanted)
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            if not skip_damage:
                raise DamagedEntry(at, entry.why if isinstance(entry, Damage) else "no journal entry") from error
        at = end
    return records, at


def _records(entry: JournalBlock | Snapshot | Damage, wanted: Collection[str] | None) -> list[Record]:
    if isinstance(entry, Damage):
        raise ValueError(entry.why)
    if isinstance(entry, Snapshot):
        return [Record(None, snapshot=entry.state)]
    events = entry.events() if wanted is None else _reduced(entry, wanted)
    return [Record(_fields(stored), stored.src, entry.memos.get(stored.seq)) for stored in events]


def _reduced(block: JournalBlock, wanted: Collection[str]) -> list[StoredEvent]:
    kept, passed = list[StoredEvent](), dict[str, StoredEvent]()
    for stored in block.events():
        type_ = event_type(stored.event)
        if type_ in wanted or stored.seq in block.memos or (stored.src is not None and stored.src.spool == "err"):
            kept += [*passed.values(), stored]
            passed = {}
        else:
            passed.pop(type_, None)  # the order is that of the last ones
            passed[type_] = stored
    return [*kept, *passed.values()]


def _fields(stored: StoredEvent) -> dict[str, Any]:
    """Return the fields of an envelope. Every fold relies on its seq, its time and its type."""
    fields = msgspec.json.decode(stored.event, type=dict[str, Any])
    if fields["seq"] != stored.seq or not isinstance(fields["ts"], str) or not isinstance(fields["type"], str):
        raise ValueError("no event")
    return fields
