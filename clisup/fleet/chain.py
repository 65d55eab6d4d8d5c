"""Chain of one session's chunks in the engine: what to append next, and the checks of a reader. Pure.

A *chunk* is one message: consecutive events of one session, byte for byte as the daemon stores them, a line each. An
agent appends a chunk only behind the chunk that is stored last, and remembers nothing: before every append it asks for
the last stored chunk. So a chunk is stored once, whatever is lost, repeated or restarted in between.

A journal that lost its end gives seqs out again. Then the session begins again in the next *epoch*, under a subject of
its own. Readers leave the earlier epochs. The agent compares the last stored chunk with its journal (`is_rewound`)
unless it appended that chunk itself on the same connection to the daemon: an append of an earlier journal may arrive late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from clisup.errors import UsageError, WorldError
from clisup.model.envelope import FRAME_BEGIN, FRAME_END
from clisup.model.journal import EventFrames

__all__ = [
    "CHUNK_BYTES",
    "Append",
    "ChainReader",
    "EventChunk",
    "MissingEvents",
    "Piece",
    "Reread",
    "StoredChunk",
    "all_epochs",
    "chunk_subject",
    "is_rewound",
    "next_step",
    "read_chunk",
    "read_chunk_of",
    "read_subject",
    "subject_token",
    "unknown",
]

CHUNK_BYTES = 256 * 1024
"""Bytes of events in a chunk of more than one event."""
ELSEWHERE = "elsewhere"
"""Reason of a gap whose events are not copied. Their box has them."""
REWOUND = "rewound"
"""Reason of a gap that covers all events known so far: the session begins again."""

DAMAGED = "damaged"
"""Reason of a gap whose events are copied, but are not what their box says."""

_VERSION = "1"
_REASON_CHARS = 40
_HEADER_BYTES = 512  # the engine counts the headers of a message, too
_PREFIX = "clisup.ev"
_encode = msgspec.json.Encoder().encode


class MissingEvents(NamedTuple):
    """Seqs from `first` on and below `end` without events."""

    first: int
    end: int
    reason: str

    def between(self, low: int, high: int) -> MissingEvents:
        """Return the part from `low` on and below `high`."""
        return MissingEvents(max(low, self.first), min(high, self.end), self.reason)


Piece = EventFrames | MissingEvents
"""Part of a session's history."""


class EventChunk(NamedTuple):
    """Message of a chain: the events `first` to `last`, or with `gap` the reason for which they are missing."""

    first: int
    last: int
    data: bytes
    gap: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the message."""
        headers = {"Clisup-V": _VERSION, "Clisup-First": str(self.first), "Clisup-Last": str(self.last)}
        return headers | {"Clisup-Gap": self.gap} if self.gap else headers

    @property
    def piece(self) -> Piece:
        """Return the part of the history that the chunk holds."""
        if self.gap:
            return MissingEvents(self.first, self.last + 1, self.gap)
        return EventFrames(self.first, self.last + 1, self.data)


class StoredChunk(NamedTuple):
    """EventChunk with its epoch and its position in the stream."""

    epoch: int
    position: int
    chunk: EventChunk


class Append(NamedTuple):
    """Step of a copy: append the chunk, if the last message of its subject still has the position `expected`."""

    chunk: EventChunk
    expected: int


class Reread(NamedTuple):
    """Step of a copy: read the journal again from behind `after`, because the engine lost events that it had."""

    after: int


class _EventHead(msgspec.Struct, omit_defaults=True):
    """Envelope of an event without the event's own fields."""

    session_id: str
    seq: int
    ts: str
    turn_id: str | None
    source: str
    type: str
    elsewhere: bool = False


_decode_head = msgspec.json.Decoder(_EventHead).decode


# -- names ------------------------------------------------------------------------------------------------------------


def chunk_subject(member: str, session_id: str, epoch: int = 0) -> str:
    """Return the subject of a session's chunks. Raises `UsageError` for a name that no subject can hold."""
    return f"{_PREFIX}.{subject_token(member)}.{subject_token(session_id)}.{epoch}"


def all_epochs(member: str, session_id: str) -> str:
    """Return the subject that matches all epochs of a session. The last message under it names the present epoch."""
    return f"{_PREFIX}.{subject_token(member)}.{subject_token(session_id)}.*"


def read_subject(subject: str) -> tuple[str, str, int]:
    """Return member, session id and epoch of a chunk's subject. Raises `WorldError` for another subject."""
    prefix, _, rest = subject.partition(f"{_PREFIX}.")
    parts = rest.split(".")
    if prefix or len(parts) != 3 or not _is_seq(parts[2]):
        raise WorldError(f"{subject!r} is not the subject of a session's chunks", kind="storage_failed")
    return parts[0], parts[1], int(parts[2])


def subject_token(name: str) -> str:
    """Return a name as one token of a subject. Raises `UsageError` for a name that no subject can hold."""
    if not name or not name.isascii() or not name.isprintable() or any(char in name for char in ".*> "):
        raise UsageError(f"cannot use the name {name!r} in the fleet: it is empty, or holds one of .*> or a space")
    return name


# -- the copy ---------------------------------------------------------------------------------------------------------


def unknown(held: Iterable[Piece], after: int) -> list[Piece]:
    """Return the pieces behind seq `after`."""
    return [piece.between(after + 1, piece.end) for piece in held if piece.end > after + 1]


def next_step(stored: StoredChunk | None, held: Sequence[Piece], max_payload: int) -> Append | Reread | None:
    """Return the next step for a session whose last chunk is `stored`, or None if the engine has all that is held.

    `stored` is None for an empty chain. `held` are pieces in the order of their seqs. `max_payload` is the engine's limit
    for a message.
    """
    there, expected = (stored.chunk.last, stored.position) if stored else (0, 0)
    rest = unknown(held, there)
    if not rest:
        return None
    if rest[0].first > there + 1:
        return Reread(there)
    if isinstance(rest[0], MissingEvents):
        return Append(EventChunk(rest[0].first, rest[0].end - 1, b"", rest[0].reason), expected)
    return Append(_first_chunk(rest, max_payload - _HEADER_BYTES), expected)


def _first_chunk(pieces: Sequence[Piece], most: int) -> EventChunk:
    """Return the first chunk of these pieces. `most` bounds the data of a chunk with a single event."""
    first = end = pieces[0].first
    taken, size = list[bytes](), 0
    for piece in pieces:
        if piece.first != end or isinstance(piece, MissingEvents):
            break
        for line in piece.lines:
            whole = line + b"\n"
            stored = whole if len(whole) <= most else _stub(whole)
            if taken and size + len(stored) > min(most, CHUNK_BYTES):
                return EventChunk(first, end - 1, b"".join(taken))
            taken.append(stored)
            size, end = size + len(stored), end + 1
    return EventChunk(first, end - 1, b"".join(taken))


def _stub(line: bytes) -> bytes:
    """Return the notification of an event without the event's own fields, which its box has."""
    head = _decode_head(line[len(FRAME_BEGIN) : -len(FRAME_END)])
    head.elsewhere = True
    return FRAME_BEGIN + _encode(head) + FRAME_END


def is_rewound(stored: StoredChunk, own: Piece | None) -> bool:
    """Tell whether the journal is not the one that was copied: shorter, or with another event at the last copied seq.

    `own` is the journal's piece at the seq `stored.chunk.last`, or None for a journal that ends before it. An event that
    is gone from the journal or from the chain cannot be compared, and counts as the same.
    """
    if own is None:
        return True
    if stored.chunk.gap or isinstance(own, MissingEvents):
        return False
    seq = stored.chunk.last
    line = own.between(seq, seq + 1).data
    copied = stored.chunk.data[stored.chunk.data.rfind(b"\n", 0, -1) + 1 :]
    return copied not in (line, _stub(line))


# -- the reader -------------------------------------------------------------------------------------------------------


def read_chunk(headers: Mapping[str, str], data: bytes) -> EventChunk:
    """Return the chunk of a message. Raises `WorldError` for a later version, or for a message that is no chunk."""
    version = headers.get("Clisup-V", "")
    if version != _VERSION:
        message = f"cannot read a chunk of version {version[:20]!r}, because this clisup knows version {_VERSION}"
        raise WorldError(message, kind="unsupported", hint="upgrade clisup on this box")
    first, last = headers.get("Clisup-First", ""), headers.get("Clisup-Last", "")
    if not (_is_seq(first) and _is_seq(last)):
        raise _damaged("its headers do not say which events it holds")
    chunk = EventChunk(int(first), int(last), data, headers.get("Clisup-Gap", ""))
    if not 1 <= chunk.first <= chunk.last:
        raise _damaged(f"it says that it holds the events {first} to {last}")
    lines = 0 if chunk.gap else chunk.last - chunk.first + 1
    if data.count(b"\n") != lines or (lines and not data.endswith(b"\n")):
        raise _damaged(f"it does not hold {lines} lines")
    return chunk


def read_chunk_of(session_id: str, headers: Mapping[str, str], data: bytes) -> EventChunk:
    """Return the chunk of a message, or a gap for one that is damaged, or that holds events of another session or seq.

    Another box wrote it: its events come under its own name only. Raises `WorldError` for a chunk of a later version.
    """
    try:
        chunk = read_chunk(headers, data)
    except WorldError as error:
        first, last = (headers.get(name, "") for name in ("Clisup-First", "Clisup-Last"))
        if error.kind != "storage_failed" or not (_is_seq(first) and _is_seq(last) and 0 < int(first) <= int(last)):
            raise
        return EventChunk(int(first), int(last), b"", DAMAGED)
    begin = FRAME_BEGIN + b'{"session_id":' + _encode(session_id) + b',"seq":'
    lines = () if chunk.gap else data.split(b"\n")[:-1]
    if all(line.startswith(b"%b%d," % (begin, seq)) for seq, line in enumerate(lines, chunk.first)):
        return chunk if len(chunk.gap) <= _REASON_CHARS else chunk._replace(gap=chunk.gap[:_REASON_CHARS])
    return EventChunk(chunk.first, chunk.last, b"", DAMAGED)


def _is_seq(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


def _damaged(why: str) -> WorldError:
    return WorldError(f"cannot read a chunk, because {why}", kind="storage_failed")


class ChainReader:
    """Place of one reader in a session's chain. `have` is the last seq that the reader has, in the epoch `epoch`."""

    __slots__ = ("epoch", "have")

    def __init__(self, have: int = 0, epoch: int = 0) -> None:
        self.have, self.epoch = have, epoch

    def read(self, epoch: int, chunk: EventChunk) -> list[Piece]:
        """Return what is new in a chunk, in order.

        A gap with the reason `rewound` covers all that the reader had: events with the same seqs follow. A gap with the
        reason `elsewhere` stands for events that the chain lost.
        """
        if epoch < self.epoch:
            return []
        found = list[Piece]()
        if epoch > self.epoch:
            if self.have:
                found.append(MissingEvents(1, self.have + 1, REWOUND))
            self.epoch, self.have = epoch, 0
        if chunk.last <= self.have:
            return found
        if chunk.first > self.have + 1:
            found.append(MissingEvents(self.have + 1, chunk.first, ELSEWHERE))
        found += unknown([chunk.piece], self.have)
        self.have = chunk.last
        return found
