"""The format of journal lines: what is written is read, and what a crash or a bad disk left is told apart."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.model.envelope import encode_event
from clisup.model.events import Notice
from clisup.model.journal import (
    JOURNAL_VERSION,
    DamagedLine,
    Record,
    Source,
    encode_line,
    encode_snapshot,
    event_seq,
    event_slice,
    event_type,
    is_intact,
    read_lines,
    stored_event,
    version_of,
    whole_lines,
)

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


def envelope(seq: int, message: str = "hello", **fields: Any) -> bytes:
    event = Notice(code=fields.pop("code", "test"), message=message)
    return encode_event(event, session_id="s", seq=seq, ts="2026-01-02T03:04:05.000006Z", turn_id="t1", source="daemon")


@settings(max_examples=100)
@given(texts, st.none() | sources, st.none() | memos, st.integers(1, 1 << 50))
def test_what_was_written_is_read_again(text: str, src: Source | None, memo: dict[str, Any] | None, seq: int) -> None:
    event = envelope(seq, text)
    line = encode_line(event, src=src, memo=memo)
    assert line.count(b"\n") == 1
    assert read_lines(line) == [Record(event=json.loads(event), src=src, memo=memo)]


@settings(max_examples=100)
@given(texts, st.none() | sources, st.none() | memos)
def test_the_envelope_is_cut_out_of_its_line_byte_for_byte(
    text: str, src: Source | None, memo: dict[str, Any] | None
) -> None:
    memo = {"event": text, **memo} if memo and "event" not in text else memo
    event = envelope(7, text)
    line = encode_line(event, src=src, memo={"note": f'"event":{text}', "seq": 3} if memo else None)
    assert event_slice(line) == event == event_slice(line.rstrip(b"\n"))
    assert stored_event(line[:-1]) == (7, event)


def test_the_sequence_and_the_type_come_from_the_head_and_not_from_a_text() -> None:
    event = envelope(42, '"type":"other","seq":1,')
    assert (event_seq(event), event_type(event)) == (42, "notice")


def test_a_snapshot_is_a_record_of_its_own_and_no_event() -> None:
    state = {"turns": 3, "note": '"event":{"seq":9}'}
    line = encode_snapshot(state)
    assert event_slice(line) is None
    assert read_lines(line) == [Record(event=None, snapshot=state)]


@pytest.mark.fault(57)
def test_a_tail_torn_at_any_byte_leaves_the_lines_before_it() -> None:
    lines = [
        encode_snapshot({}),
        encode_line(envelope(1)),
        encode_line(envelope(2, "ü\n"), src=Source(1, "out", 0, 9, 0)),
    ]
    data = b"".join(lines)
    ends = [0, len(lines[0]), len(lines[0] + lines[1]), len(data)]
    for cut in range(len(data) + 1):
        whole = whole_lines(data[:cut])
        assert whole == max(end for end in ends if end <= cut)
        assert len(read_lines(data[:whole])) == ends.index(whole)


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
    ],
)
def test_a_damaged_line_in_the_middle_is_named_by_its_offset(damage: bytes) -> None:
    first = encode_line(envelope(1))
    with pytest.raises(DamagedLine, match=f"no journal line at offset {len(first)}") as caught:
        read_lines(first + damage + b"\n" + encode_line(envelope(3)))
    assert caught.value.offset == len(first)


@pytest.mark.fault(58)
@pytest.mark.parametrize(
    "line", [encode_line(envelope(2), src=Source(1, "out", 0, 9, 0), memo={"a": 1}), encode_snapshot({"turns": 3})]
)
def test_a_line_in_which_any_one_byte_is_another_is_damaged(line: bytes) -> None:
    assert is_intact(line[:-1])
    assert (stored_event(line[:-1]) is None) == (b"snapshot" in line)
    for at in range(len(line) - 1):
        spoiled = line[:at] + bytes([line[at] ^ 0x04]) + line[at + 1 :]
        assert not is_intact(spoiled[:-1])
        assert stored_event(spoiled[:-1]) is None
        with pytest.raises(DamagedLine, match="at offset 0"):
            read_lines(spoiled)


@pytest.mark.fault(58)
@settings(max_examples=100)
@given(st.binary(min_size=1, max_size=60), st.integers(0, 200))
def test_a_line_that_is_overwritten_with_anything_is_damaged_or_what_it_was(junk: bytes, at: int) -> None:
    line = encode_line(envelope(2))[:-1]
    spoiled = line[:at] + junk + line[at + len(junk) :]
    assert is_intact(spoiled) == (spoiled == line)


@pytest.mark.fault(61)
def test_lines_of_version_1_which_had_no_checksum_are_read() -> None:
    event = envelope(7)
    old = {
        b'{"event":' + event + b"}": Record(event=json.loads(event)),
        b'{"memo":{"a":1},"event":' + event + b"}": Record(event=json.loads(event), memo={"a": 1}),
        b'{"src":[1,"out",0,9,0],"event":' + event + b"}": Record(json.loads(event), Source(1, "out", 0, 9, 0)),
        b'{"snapshot":{"turns":3}}': Record(event=None, snapshot={"turns": 3}),
    }
    assert read_lines(b"".join(line + b"\n" for line in old)) == list(old.values())
    assert all(is_intact(line) for line in old)
    assert [event_slice(line) for line in old] == [event, event, event, None]
    assert [stored_event(line) for line in old] == [(7, event), (7, event), (7, event), None]


@pytest.mark.fault(61)
def test_a_segment_says_its_version_also_where_nothing_else_of_it_can_be_read() -> None:
    assert version_of(encode_snapshot({})) == JOURNAL_VERSION
    assert version_of(b'{"snapshot":{}}\n') == 1
    assert version_of(b'{"crc":"00000000","v":17,"who":"knows"}\n') == 17
    assert [version_of(head) for head in (b"", b'{"crc":"00000000","v":x,', b"\0" * 40)] == [1, 1, 1]


WANTED = {"notice"}


def said(seq: int, type_: str = "content_delta", *, memo: dict[str, Any] | None = None, spool: str = "out") -> bytes:
    head = f'"session_id":"s","seq":{seq},"ts":"2026-01-02T03:04:05.000006Z","turn_id":"t1","source":"backend"'
    event = f'{{{head},"type":"{type_}","text":"\\"type\\":\\"notice\\""}}'.encode()
    return encode_line(event, src=Source(1, spool, seq, seq + 1, 0), memo=memo)  # type: ignore[arg-type]


def test_of_unwanted_events_in_a_row_only_the_last_of_each_type_is_given() -> None:
    lines = [
        said(1),
        said(2, "message"),
        said(3),
        said(4),
        encode_line(envelope(5)),
        said(6),
        said(7, "message"),
        said(8),
    ]
    records = read_lines(b"".join(lines), WANTED)
    assert [record.event["seq"] for record in records if record.event] == [2, 4, 5, 7, 8]
    assert records == [record for record in read_lines(b"".join(lines)) if record in records]


def test_an_unwanted_event_with_a_memo_is_given_all_the_same() -> None:
    memo = {"type": "notice", "begin": {"out": 1, "err": 0}}
    lines = [said(1, memo=memo), said(2), said(3, memo={"run": 2}), said(4)]
    assert [(r.event or {})["seq"] for r in read_lines(b"".join(lines), WANTED)] == [1, 2, 3, 4]


def test_snapshots_and_lines_of_version_1_are_given_whatever_is_wanted() -> None:
    old = b'{"event":' + event_slice(said(2))[:-1] + b"}}\n"  # type: ignore[index]
    data = encode_snapshot({"turns": 3}) + old + old.replace(b'"seq":2', b'"seq":3')
    assert read_lines(data, WANTED) == read_lines(data) and len(read_lines(data, WANTED)) == 3


@pytest.mark.parametrize("at", [5, 20, 40, -3])
def test_an_unwanted_event_is_checked_as_all_others(at: int) -> None:
    spoilt = bytearray(said(2))
    spoilt[at] ^= 1
    with pytest.raises(DamagedLine) as caught:
        read_lines(said(1) + bytes(spoilt) + said(3), WANTED)
    assert caught.value.offset == len(said(1))
