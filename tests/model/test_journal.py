"""The format of a journal: what is written is read, and what a crash or a bad disk left is told apart."""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.model.envelope import FRAME_BEGIN, FRAME_END
from clisup.model.journal import (
    BLOCK_BYTES,
    JOURNAL_VERSION,
    Damage,
    DamagedEntry,
    EventFrames,
    JournalBlock,
    Record,
    Snapshot,
    Source,
    blocks_of,
    encode_block,
    encode_snapshot,
    event_seq,
    event_type,
    first_seq_of,
    read_entries,
    scan,
    version_of,
)
from clisup.wire.jsonrpc import encode_notifications
from tests.journals import block_of, envelope, line, old_line, records

SOURCE = Source(1, "out", 0, 9, 0)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
sources = st.builds(
    Source,
    st.integers(1, 99),
    st.sampled_from(["out", "err"]),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 40),
    st.integers(0, 9),
)
memos = st.dictionaries(texts, st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | texts, max_size=3)


entries = st.lists(st.tuples(texts, st.none() | sources, st.none() | memos), min_size=1, max_size=8)


def written(first: int, events: list[tuple[str, Source | None, dict[str, Any] | None]]) -> bytes:
    frames = [FRAME_BEGIN + envelope(seq, text) + FRAME_END for seq, (text, _, _) in enumerate(events, first)]
    memos = {seq: memo for seq, (_, _, memo) in enumerate(events, first) if memo is not None}
    return b"".join(map(encode_block, blocks_of(first, frames, [src for _, src, _ in events], memos)))


@settings(max_examples=100)
@given(entries, st.integers(1, 1 << 50))
def test_what_was_written_is_read_again(
    events: list[tuple[str, Source | None, dict[str, Any] | None]], seq: int
) -> None:
    data = written(seq, events)
    assert records(data) == [
        Record(event=json.loads(envelope(at, text)), src=src, memo=memo)
        for at, (text, src, memo) in enumerate(events, seq)
    ]
    ((end, block),) = scan(data)
    assert end == len(data) and isinstance(block, JournalBlock)
    assert [stored.event for stored in block.events()] == [
        envelope(at, text) for at, (text, _, _) in enumerate(events, seq)
    ]


def test_the_lines_of_a_block_are_the_notifications_that_clients_get() -> None:
    events = [envelope(7), envelope(8, "ü\n")]
    data = block_of(*events, first=7)
    assert data.partition(b"\n")[2] == encode_notifications("session/event", events)


def test_a_block_ends_when_it_has_grown_large() -> None:
    frames = [FRAME_BEGIN + envelope(seq, "x" * 1000) + FRAME_END for seq in range(1, 101)]
    blocks = blocks_of(1, frames, [None] * 100, {1: {"run": 1}, 100: {"run": 2}})
    assert len(blocks) > 2 and b"".join(block.frames.data for block in blocks) == b"".join(frames)
    assert all(len(block.frames.data) < BLOCK_BYTES + 1200 for block in blocks)
    assert [block.frames.first for block in blocks[1:]] == [block.frames.end for block in blocks[:-1]]
    assert (dict(blocks[0].memos), dict(blocks[-1].memos)) == ({1: {"run": 1}}, {100: {"run": 2}})


@given(st.integers(0, 12), st.integers(0, 12))
def test_a_part_of_a_block_has_the_events_of_its_seqs(low: int, high: int) -> None:
    block = JournalBlock(EventFrames(3, 8, b"".join(b"%d\n" % seq for seq in range(3, 8))), [None] * 5)
    part = block.between(low, high)
    wanted = [seq for seq in range(3, 8) if low <= seq < high]
    assert [int(line) for line in part.frames.lines] == wanted and len(part.sources) == len(wanted)
    if wanted:
        assert (part.frames.first, part.frames.end) == (wanted[0], wanted[-1] + 1)


def test_the_sequence_and_the_type_come_from_the_head_and_not_from_a_text() -> None:
    event = envelope(42, '"type":"other","seq":1,')
    for form in (event, FRAME_BEGIN + event + FRAME_END):
        assert (event_seq(form), event_type(form)) == (42, "notice")


def test_a_snapshot_is_a_record_of_its_own_and_no_event() -> None:
    state = {"turns": 3, "note": '"event":{"seq":9}'}
    assert records(encode_snapshot(state)) == [Record(event=None, snapshot=state)]


@pytest.mark.fault(57)
def test_a_tail_torn_at_any_byte_leaves_the_entries_before_it() -> None:
    entries = [encode_snapshot({}), line(1), block_of(envelope(2, "ü\n"), envelope(3), first=2, src=SOURCE)]
    data = b"".join(entries)
    ends = [0, len(entries[0]), len(entries[0] + entries[1]), len(data)]
    for cut in range(len(data) + 1):
        found, whole = read_entries(data[:cut])
        assert whole == max(end for end in ends if end <= cut)
        assert len(found) == [0, 1, 2, 4][ends.index(whole)]


@pytest.mark.fault(57)
def test_a_last_block_whose_end_is_zeros_is_torn() -> None:
    """A power loss can leave the length of a file and not its last pages."""
    first, second = line(1), block_of(*[envelope(seq) for seq in range(2, 6)], first=2)
    for cut in range(1, len(second)):
        data = first + second[:-cut] + b"\0" * cut
        assert read_entries(data)[1] == len(first)


@pytest.mark.fault(58)
@pytest.mark.parametrize(
    "damage",
    [
        b"\x00" * 40,
        b'{"event":{"seq":2,"ty',
        b"[1,2]",
        b"3",
        b"{}",
        b'{"event":5}',
        b'{"event":{"seq":"2","ts":"t","type":"notice"}}',
        b'{"event":{"ts":"t","type":"notice"}}',
        b'{"src":[1],"event":{"seq":2,"ts":"t","type":"notice"}}',
        b'{"src":7,"event":{"seq":2,"ts":"t","type":"notice"}}',
        b'{"event":' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
        b"\xff\xfe",
        b"",
        b'{"jsonrpc":"2.0"}',
    ],
)
def test_a_damaged_entry_in_the_middle_is_named_by_its_offset(damage: bytes) -> None:
    first = line(1)
    with pytest.raises(DamagedEntry, match=f"no journal entry at offset {len(first)}") as caught:
        read_entries(first + damage + b"\n" + line(3))
    assert caught.value.offset == len(first)


SPOILED = [
    block_of(envelope(2), envelope(3), first=2, src=SOURCE, memo={"a": 1}),
    encode_snapshot({"turns": 3}),
    old_line(envelope(2), src=SOURCE, memo={"a": 1}),
]


@pytest.mark.fault(58)
@pytest.mark.parametrize("entry", SPOILED)
def test_an_entry_in_which_any_one_byte_is_another_is_damaged(entry: bytes) -> None:
    assert len(records(entry)) in (1, 2)
    for at in range(len(entry) - 1):
        spoiled = entry[:at] + bytes([entry[at] ^ 0x04]) + entry[at + 1 :]
        assert not any(isinstance(found, JournalBlock | Snapshot) for _, found in scan(spoiled + line(9)[:-1]))
        with pytest.raises(DamagedEntry, match="at offset 0"):
            read_entries(spoiled + line(9))


@pytest.mark.fault(58)
@settings(max_examples=100)
@given(st.binary(min_size=1, max_size=60), st.integers(0, 400))
def test_a_block_that_is_overwritten_with_anything_is_damaged_or_what_it_was(junk: bytes, at: int) -> None:
    block = block_of(envelope(2), envelope(3), first=2)
    spoiled = (block[:at] + junk + block[at + len(junk) :])[: len(block)]
    found = [stored for _, entry in scan(spoiled) if isinstance(entry, JournalBlock) for stored in entry.events()]
    assert bool(found) == (spoiled == block)


@pytest.mark.fault(58)
@pytest.mark.parametrize("size", [0, -1, -500])
def test_a_head_that_leads_backwards_is_damage(size: int) -> None:
    rest = b'"first":1,"bytes":%d,"sum":0,"src":[]}' % size
    data = b'{"crc":"%08x",%b\n' % (crc32(rest), rest)
    assert [entry for _, entry in scan(data)] == [Damage("a wrong checksum")]


@pytest.mark.fault(58)
def test_damage_is_skipped_where_that_is_asked_for() -> None:
    found, whole = read_entries(data := line(1) + b"junk\n" + line(2)[:50] + line(3) + line(4), skip_damage=True)
    assert [(record.event or {})["seq"] for record in found] == [1, 4] and whole == len(data)


@pytest.mark.fault(61)
def test_lines_of_versions_1_and_2_are_read() -> None:
    event = envelope(7)
    fields = json.loads(event)
    old = {
        b'{"event":' + event + b"}\n": Record(event=fields),
        b'{"memo":{"a":1},"event":' + event + b"}\n": Record(event=fields, memo={"a": 1}),
        b'{"src":[1,"out",0,9,0],"event":' + event + b"}\n": Record(fields, Source(1, "out", 0, 9, 0)),
        b'{"snapshot":{"turns":3}}\n': Record(event=None, snapshot={"turns": 3}),
        old_line(event): Record(event=fields),
        old_line(event, memo={"note": '"event":'}): Record(event=fields, memo={"note": '"event":'}),
        old_line(event, src=SOURCE, memo={}): Record(fields, SOURCE, {}),
    }
    assert records(b"".join(old)) == list(old.values())
    blocks = [entry for _, entry in scan(b"".join(old)) if isinstance(entry, JournalBlock)]
    assert [block.events()[0][:2] for block in blocks] == [(7, event)] * 6
    assert {block.frames.data for block in blocks} == {FRAME_BEGIN + event + FRAME_END}


@pytest.mark.fault(61)
def test_a_segment_says_its_version_also_where_nothing_else_of_it_can_be_read() -> None:
    assert version_of(encode_snapshot({})) == JOURNAL_VERSION
    assert version_of(b'{"snapshot":{}}\n') == 1
    assert version_of(b'{"crc":"00000000","v":17,"who":"knows"}\n') == 17
    assert [version_of(head) for head in (b"", b'{"crc":"00000000","v":x,', b"\0" * 40)] == [1, 1, 1]


def test_an_entry_is_known_by_its_first_line() -> None:
    lines = block_of(envelope(4), envelope(5), first=4).splitlines(keepends=True)
    assert [first_seq_of(each) for each in lines] == [4, None, None]
    assert [first_seq_of(each) for each in (old_line(envelope(9)), encode_snapshot({}), b"junk\n")] == [9, None, None]


WANTED = {"notice"}


def said(seq: int, type_: str = "content_delta") -> bytes:
    head = f'"session_id":"s","seq":{seq},"ts":"2026-01-02T03:04:05.000006Z","turn_id":"t1","source":"backend"'
    return f'{{{head},"type":"{type_}","text":"\\"type\\":\\"notice\\""}}'.encode()


def given_of(data: bytes) -> list[int]:
    return [record.event["seq"] for record in read_entries(data, WANTED)[0] if record.event]


def test_of_unwanted_events_in_a_row_only_the_last_of_each_type_is_given() -> None:
    events = [said(1), said(2, "message"), said(3), said(4), envelope(5), said(6), said(7, "message"), said(8)]
    data = block_of(*events, first=1, src=SOURCE)
    assert given_of(data) == [2, 4, 5, 7, 8]
    assert read_entries(data, WANTED)[0] == [
        record for record in records(data) if record.event["seq"] in (2, 4, 5, 7, 8)
    ]  # type: ignore[index]
    assert given_of(data + block_of(said(9), said(10), first=9)) == [2, 4, 5, 7, 8, 10]


def test_an_unwanted_event_with_a_memo_or_of_stderr_is_given_all_the_same() -> None:
    memo = {"type": "notice", "begin": {"out": 1, "err": 0}}
    assert given_of(block_of(said(1), said(2), first=1, memo=memo)) == [1, 2]
    assert given_of(block_of(said(1), said(2), first=1, src=Source(1, "err", 0, 9, 0))) == [1, 2]


def test_snapshots_and_lines_of_earlier_versions_are_given_whatever_is_wanted() -> None:
    data = encode_snapshot({"turns": 3}) + old_line(said(2)) + b'{"event":' + said(3) + b"}\n"
    assert read_entries(data, WANTED) == read_entries(data) and len(read_entries(data)[0]) == 3


@pytest.mark.parametrize("at", [5, 20, 40, -3])
def test_an_unwanted_event_is_checked_as_all_others(at: int) -> None:
    first, spoilt = block_of(said(1), first=1), bytearray(block_of(said(2), first=2))
    spoilt[at] ^= 1
    with pytest.raises(DamagedEntry) as caught:
        read_entries(first + bytes(spoilt) + block_of(said(3), first=3), WANTED)
    assert caught.value.offset == len(first)
