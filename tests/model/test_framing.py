"""Bytes into lines: whatever the reads were, the lines and their places are the same."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.model.lines import framing
from clisup.model.lines.framing import DEFAULT_LINE_LIMIT, Line, LineFramer

LIMIT = 8
streams = st.lists(
    st.sampled_from([b"\n", b"a", b"\r", b"\xe2\x80\xa8", b"\x00", b"\xff", b"{}", b"0123456789ab"])
).map(b"".join)


def lines_of(chunks: Iterable[bytes], *, limit: int = LIMIT, offset: int = 0) -> list[Line]:
    framer = LineFramer(offset=offset, limit=limit)
    lines = [line for chunk in chunks for line in framer.feed(chunk)]
    last = framer.close()
    return [*lines, last] if last else lines


def split(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return [data[a:b] for a, b in pairwise(places)]


@settings(max_examples=150)
@given(streams, st.lists(st.integers(0, 200)))
def test_any_split_of_any_bytes_gives_the_same_lines_at_the_same_places(data: bytes, cuts: list[int]) -> None:
    assert lines_of(split(data, cuts)) == lines_of([data])


@settings(max_examples=100)
@given(streams, st.integers(0, 1 << 40))
def test_every_byte_belongs_to_exactly_one_line(data: bytes, offset: int) -> None:
    lines = lines_of([data], limit=DEFAULT_LINE_LIMIT, offset=offset)
    assert b"".join(line.data + b"\n" * line.complete for line in lines) == data
    assert [line.start for line in lines] == [offset, *(line.end for line in lines)][: len(lines)]
    assert all(data[line.start - offset : line.end - offset].rstrip(b"\n") == line.data.rstrip(b"\n") for line in lines)


@settings(max_examples=100)
@given(streams, st.lists(st.integers(0, 200)))
def test_a_reader_that_starts_anew_at_the_end_of_a_line_finds_the_rest(data: bytes, cuts: list[int]) -> None:
    lines = lines_of(split(data, cuts))
    for at, line in enumerate(lines):
        assert lines_of([data[line.end :]], offset=line.end) == lines[at + 1 :]


@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1])
def test_only_a_line_over_the_limit_is_oversize(size: int) -> None:
    [line] = lines_of([b"x" * size + b"\n"])
    assert line.oversize is (size > LIMIT)
    assert (line.start, line.end, line.complete) == (0, size + 1, True)


def test_an_oversize_line_keeps_its_head_and_place_and_the_next_line_is_fine() -> None:
    big, small = lines_of([b"x" * 5000, b"y" * 5000, b"\n{}\n"], limit=4096)
    assert (big.start, big.end, big.oversize, big.data) == (0, 10_001, True, b"x" * 512)
    assert small == Line(10_001, 10_004, b"{}")


def test_the_head_of_an_oversize_line_is_put_together_from_its_fragments() -> None:
    [line] = lines_of([b"ab", b"cd", b"ef", b"ghij", b"never kept"])
    assert line.data == b"abcdefgh"
    assert (line.end, line.oversize, line.complete) == (20, True, False)


def test_an_oversize_line_is_not_held_in_memory() -> None:
    framer = LineFramer(limit=64 * 1024)
    chunk = b"x" * 65_536
    tracemalloc.start()
    try:
        for _ in range(1024):
            framer.feed(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert framer.pending == 64 * 1024 * 1024
    assert peak < 1024 * 1024


class Copying:
    """Stands in for the module's join and counts the bytes that it copies."""

    def __init__(self) -> None:
        self.bytes = 0

    def __call__(self, parts: Iterable[bytes]) -> bytes:
        joined = b"".join(parts)
        self.bytes += len(joined)
        return joined


@pytest.mark.fault(22)
def test_a_line_of_64_mb_in_reads_of_64_kib_is_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    copying = Copying()
    monkeypatch.setattr(framing, "_join", copying)
    size, chunk = 64 * 1024 * 1024 - 1024, b"x" * 65_536
    framer = LineFramer()
    for at in range(0, size, len(chunk)):
        assert framer.feed(chunk[: size - at]) == []
    [line] = framer.feed(b"\n")
    assert (len(line.data), line.oversize) == (size, False)
    assert copying.bytes <= 2 * size


def test_a_line_that_comes_byte_by_byte_is_copied_twice_at_most_and_costs_no_object_a_byte(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copying = Copying()
    monkeypatch.setattr(framing, "_join", copying)
    framer = LineFramer()
    size = 300_000
    for _ in range(size):
        framer.feed(b"x")
    held = len(framer._fragments) + len(framer._blocks)
    [line] = framer.feed(b"\n")
    assert line.data == b"x" * size
    assert copying.bytes <= 2 * size
    assert held < 2000


@pytest.mark.fault(24)
def test_a_character_that_is_split_over_two_reads_stays_whole() -> None:
    text = "grüße 你好".encode()
    for at in range(len(text)):
        [line] = lines_of([text[:at], text[at:] + b"\n"], limit=100)
        assert line.data == text


@pytest.mark.fault(27)
def test_line_separators_and_carriage_returns_end_no_line() -> None:
    text = '{"text":"a\u2028b\u0085c"}\r'.encode()
    assert [line.data for line in lines_of([text + b"\n"], limit=100)] == [text]


@pytest.mark.fault(26)
def test_a_last_line_without_a_newline_is_given_once_and_marked() -> None:
    framer = LineFramer()
    assert framer.feed(b"one\ntwo") == [Line(0, 4, b"one")]
    assert framer.pending == 3
    assert framer.close() == Line(4, 7, b"two", complete=False)
    assert framer.close() is None


def test_empty_lines_are_lines_with_a_place() -> None:
    assert lines_of([b"\n", b"\n"]) == [Line(0, 1, b""), Line(1, 2, b"")]
    assert LineFramer(offset=9).offset == 9
