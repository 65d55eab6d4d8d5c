"""Reading what a CLI said: from any offset, never past the end, and a tail that is never empty for a long last line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.store.spool import READ_CHUNK, SpoolFile, ends_text, read_range, spool_size, tail_text


def test_a_spool_that_is_not_there_yet_is_empty_and_read_when_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "out.spool"
    reader = SpoolFile(str(path))
    assert (reader.read(), reader.offset) == (b"", 0)
    path.write_bytes(b"hello")
    assert (reader.read(), reader.offset, reader.read()) == (b"hello", 5, b"")
    with path.open("ab") as file:
        file.write(b" world")
    assert reader.read() == b" world"
    reader.close()
    reader.close()


def test_a_long_spool_is_read_in_pieces_and_from_any_offset(tmp_path: Path) -> None:
    path = tmp_path / "out.spool"
    data = bytes(range(256)) * 4096
    path.write_bytes(data)
    reader = SpoolFile(str(path), offset=100)
    pieces = []
    while piece := reader.read():
        assert len(piece) <= READ_CHUNK
        pieces.append(piece)
    assert b"".join(pieces) == data[100:]
    reader.close()


def test_a_spool_that_shrank_is_empty_beyond_its_end(tmp_path: Path) -> None:
    path = tmp_path / "out.spool"
    path.write_bytes(b"0123456789")
    reader = SpoolFile(str(path), offset=8)
    path.write_bytes(b"")
    assert (reader.read(), reader.offset) == (b"", 8)
    reader.close()


def test_a_range_is_cut_at_the_end_and_a_missing_file_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "out.spool"
    path.write_bytes(b"0123456789")
    assert read_range(str(path), 2, 3) == b"234"
    assert read_range(str(path), 8, 100) == b"89"
    assert read_range(str(path), 99, 5) == b""
    assert read_range(str(tmp_path / "absent"), 0, 5) == b""
    assert (spool_size(str(path)), spool_size(str(tmp_path / "absent"))) == (10, 0)


@pytest.mark.parametrize(
    ("data", "tail"),
    [
        (b"", ""),
        (b"short", "short"),
        (b"one\ntwo\n", "one\ntwo\n"),
        (b"first line\nsecond\n", "second\n"),
        (b"x" * 20, "x" * 10),
        (b"y" * 5 + b"x" * 20 + b"\n", "x" * 9 + "\n"),
        (b"\xff" * 20, "\ufffd" * 10),
    ],
)
def test_the_tail_begins_with_a_line_where_it_can_and_is_never_empty_for_nothing(
    tmp_path: Path, data: bytes, tail: str
) -> None:
    path = tmp_path / "err.spool"
    path.write_bytes(data)
    assert tail_text(str(path), limit=10) == tail


@settings(max_examples=100)
@given(st.binary(max_size=60), st.integers(1, 20))
def test_a_tail_is_the_end_of_the_file(tmp_path_factory: pytest.TempPathFactory, data: bytes, limit: int) -> None:
    path = tmp_path_factory.getbasetemp() / "tail.spool"
    path.write_bytes(data)
    tail = tail_text(str(path), limit=limit)
    assert data[-limit:].decode("utf-8", "replace").endswith(tail) or "\ufffd" in tail
    assert bool(tail) == bool(data)


@pytest.mark.parametrize(
    ("data", "ends"),
    [
        (b"", [""]),
        (b"one\ntwo\nthree\nf", ["one\ntwo\nthree\nf"]),
        (b"one\ntwo\nthree\nfour\nfive\n", ["one\n", "five\n"]),
        (b"x" * 30, ["x" * 5, "x" * 10]),
    ],
)
def test_the_ends_of_a_range_are_whole_lines_and_all_of_it_where_it_is_short(
    tmp_path: Path, data: bytes, ends: list[str]
) -> None:
    path = tmp_path / "err.spool"
    path.write_bytes(b"of an earlier turn\n" + data + b"of a later turn\n")
    begin = len("of an earlier turn\n")
    text = ends_text(str(path), begin, begin + len(data), head=5, tail=10)
    assert re.split(r"\n\[clisup: about \d+ bytes left out\]\n", text) == ends
    assert ends_text(str(tmp_path / "missing")) == ""
