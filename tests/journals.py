"""Entries of a journal for tests: blocks of this version, and lines of the versions before it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from clisup.model.envelope import FRAME_BEGIN, FRAME_END, Envelopes
from clisup.model.events import EventBase, Notice
from clisup.model.journal import JournalBlock, Record, Source, blocks_of, encode_block, read_entries, scan
from clisup.store.journal_reader import JournalReader

__all__ = ["block_of", "encode_event", "entry_at", "envelope", "line", "old_line", "records", "seqs_of"]


def encode_event(event: EventBase, *, session_id: str, seq: int, ts: str, turn_id: str | None, source: str) -> bytes:
    """Return the bytes of one envelope."""
    return Envelopes(session_id, ts).frame(event, seq, turn_id, source)[len(FRAME_BEGIN) : -len(FRAME_END)]


def envelope(seq: int, message: str = "m") -> bytes:
    event = Notice(code="test", message=message)
    return encode_event(event, session_id="s", seq=seq, ts="2026-01-02T03:04:05.000006Z", turn_id="t1", source="daemon")


def block_of(*events: bytes, first: int, src: Source | None = None, memo: Mapping[str, Any] | None = None) -> bytes:
    """One block of these envelopes, each with this source and this memo."""
    frames = [FRAME_BEGIN + event + FRAME_END for event in events]
    memos = {} if memo is None else {first + k: memo for k in range(len(events))}
    return b"".join(map(encode_block, blocks_of(first, frames, [src] * len(events), memos)))


def line(seq: int, message: str = "m") -> bytes:
    """A block of one notice."""
    return block_of(envelope(seq, message), first=seq)


def old_line(event: bytes, *, src: Source | None = None, memo: Mapping[str, Any] | None = None) -> bytes:
    """A line of version 2."""
    head = b""
    if src is not None:
        head += b'"src":%b,' % json.dumps([src.run, src.spool, src.start, src.end, src.k]).encode()
    if memo is not None:
        head += b'"memo":%b,' % json.dumps(memo).encode()
    rest = b'%b"event":%b}' % (head, event)
    return b'{"crc":"%08x",%b\n' % (crc32(rest), rest)


def records(data: bytes) -> list[Record]:
    """The records of data that ends with a whole entry."""
    found, whole = read_entries(data)
    assert whole == len(data)
    return found


def entry_at(data: bytes, offset: int) -> tuple[int, JournalBlock]:
    """The block of a journal that holds this byte, and where it begins."""
    begin = 0
    for end, entry in scan(data):
        if begin <= offset < end:
            assert isinstance(entry, JournalBlock), entry
            return begin, entry
        begin = end
    raise AssertionError("no entry holds this byte")


def seqs_of(reader: JournalReader) -> list[int]:
    """The seqs of the reader's next piece."""
    block = reader.read()
    return [] if block is None else [stored.seq for stored in block.events()]
