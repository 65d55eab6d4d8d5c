"""A reader that meets damage, or segments that are gone: it gives everything else, and says what is missing."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from clisup.errors import WorldError
from clisup.host.failpoints import arm
from clisup.model.journal import encode_snapshot
from clisup.store.journal_reader import READ_CHUNK, JournalGap, JournalReader
from clisup.store.journal_store import JournalStore
from tests.journals import envelope, line, old_line, seqs_of


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    arm("")


def first_version(seq: int) -> bytes:
    return b"{" + old_line(envelope(seq))[18:]


def segment(path: Path, first: int, *lines: bytes) -> Path:
    file = path / f"{first:012d}.jsonl"
    file.write_bytes(encode_snapshot({}) + b"".join(lines))
    return file


def opened(path: Path) -> JournalStore:
    store = JournalStore(str(path), segment_bytes=1 << 20)
    list(store.load())
    return store


def story(reader: JournalReader) -> list[int | JournalGap]:
    """Everything that a client would be told, in order; one read more than that gives nothing."""
    told: list[int | JournalGap] = []
    while True:
        events, gap = seqs_of(reader), reader.take_gap()
        assert reader.take_gap() is None
        if gap is not None:
            told.append(gap)
        if not events and gap is None:
            return told
        told += events


JUNK = [b"\x00" * 30 + b"\n", b"not ours\n", b'{"event":5}\n', b'{"event":{"seq":x,}}\n', b"", b"\n\n\n", line(2)[5:],
        line(2).replace(b"t", b"u"), line(2)[:40], line(2, "2" * 50).replace(b"22", b"2\n"),
        first_version(700), first_version(1)]  # fmt: skip


@pytest.mark.fault(58)
@pytest.mark.parametrize("junk", JUNK)
def test_what_lies_before_and_after_damage_is_given_and_the_rest_is_named(tmp_path: Path, junk: bytes) -> None:
    segment(tmp_path, 1, line(1), junk, line(4), line(5))
    segment(tmp_path, 6, line(6))
    reader = opened(tmp_path).reader(0)
    expected: list[int | JournalGap] = [1, JournalGap(2, 3, "damaged"), 4, 5, 6]
    if not junk.endswith(b"\n") and junk:  # it has swallowed the next line
        expected = [1, JournalGap(2, 4, "damaged"), 5, 6]
    assert story(reader) == expected
    assert reader.position == 7


@pytest.mark.fault(58)
@pytest.mark.parametrize("junk", JUNK)
def test_damage_at_the_end_of_a_segment_ends_where_the_next_one_begins(tmp_path: Path, junk: bytes) -> None:
    segment(tmp_path, 1, line(1), junk)
    segment(tmp_path, 4, line(4))
    store = opened(tmp_path)
    assert story(store.reader(0)) == [1, JournalGap(2, 3, "damaged"), 4]
    assert story(store.reader(1)) == [JournalGap(2, 3, "damaged"), 4]
    assert story(store.reader(2)) == [JournalGap(3, 3, "damaged"), 4]
    assert story(store.reader(3)) == [4]


@pytest.mark.fault(58)
def test_each_damaged_place_is_a_gap_of_its_own(tmp_path: Path) -> None:
    segment(tmp_path, 1, b"x\n", line(2), b"x\n", line(4), b"x\n", line(6), b"x\n")
    segment(tmp_path, 8, b"x\n", line(9))
    assert story(opened_with(tmp_path, 12)) == [
        JournalGap(1, 1, "damaged"), 2, JournalGap(3, 3, "damaged"), 4, JournalGap(5, 5, "damaged"), 6, JournalGap(7, 8, "damaged"),
        9, 10, 11, 12,
    ]  # fmt: skip


def opened_with(path: Path, last: int) -> JournalReader:
    """A last segment, which is read at start and has to be whole."""
    segment(path, 10, *[line(seq) for seq in range(10, last + 1)])
    return opened(path).reader(0)


@pytest.mark.fault(58)
def test_a_damaged_snapshot_costs_no_event(tmp_path: Path) -> None:
    file = segment(tmp_path, 1, line(1), line(2))
    segment(tmp_path, 3, line(3))
    file.write_bytes(b"#" * 20 + file.read_bytes()[20:])
    assert story(opened(tmp_path).reader(0)) == [1, 2, 3]


@pytest.mark.fault(58)
def test_a_living_journal_that_is_spoiled_on_disk_is_read_on_where_it_is_whole_again(tmp_path: Path) -> None:
    store = JournalStore(str(tmp_path), segment_bytes=1 << 20)
    list(store.load())
    store.append(line(1) + line(2) + line(3), 3, {})
    file = tmp_path / "000000000001.jsonl"
    at = file.read_bytes().index(line(2))
    with open(file, "r+b") as spoil:
        spoil.seek(at + 30)
        spoil.write(b"####")
        spoil.seek(at + len(line(2)) + 30)
        spoil.write(b"####")
    reader = store.reader(0)
    assert story(reader) == [1, JournalGap(2, 3, "damaged")]
    store.append(line(4), 1)
    assert story(reader) == [4] and story(store.reader(0)) == [1, JournalGap(2, 3, "damaged"), 4]


def test_the_events_of_removed_segments_are_a_gap_that_says_so(tmp_path: Path) -> None:
    segment(tmp_path, 5, line(5))
    segment(tmp_path, 6, line(6))
    store = opened(tmp_path)
    assert store.first_seq == 5
    assert story(store.reader(0)) == [JournalGap(1, 4, "retention"), 5, 6]
    assert story(store.reader(2)) == [JournalGap(3, 4, "retention"), 5, 6]
    assert story(store.reader(4)) == [5, 6]


@pytest.mark.parametrize("read_before", [False, True])
def test_segments_that_vanish_under_a_reader_are_a_gap_to_the_next_one(tmp_path: Path, read_before: bool) -> None:
    files = [segment(tmp_path, first, line(first), line(first + 1)) for first in (1, 3, 5, 7)]
    store = opened(tmp_path)
    reader = store.reader(0)
    first: list[int | JournalGap] = [1, 2]
    if read_before:
        assert seqs_of(reader) == [1, 2]
        first = []
    for file in files[1:3]:
        file.unlink()
    assert story(reader) == [*first, JournalGap(3, 6, "retention"), 7, 8]


def test_a_reader_in_a_segment_that_is_removed_reads_it_to_its_end(tmp_path: Path) -> None:
    for first in (1, 3, 5):
        segment(tmp_path, first, line(first, "x" * READ_CHUNK), line(first + 1, "x" * READ_CHUNK))
    store = opened(tmp_path)
    reader = store.reader(0)
    assert seqs_of(reader) == [1]
    for first in (1, 3):
        os.unlink(store.path_of(first))
    store._segments = [5]
    assert story(reader) == [2, JournalGap(3, 4, "retention"), 5, 6]


def test_where_even_the_last_segment_is_gone_the_gap_reaches_to_the_journals_end(tmp_path: Path) -> None:
    file = segment(tmp_path, 1, line(1), line(2))
    store = opened(tmp_path)
    file.unlink()
    reader = store.reader(0)
    assert story(reader) == [JournalGap(1, 2, "retention")]
    store.append(line(3), 1)
    assert story(reader) == [JournalGap(3, 3, "retention")]


@pytest.mark.fault(58)
def test_a_bad_sector_in_an_old_segment_is_stepped_over(tmp_path: Path) -> None:
    size = len(line(1, "x" * 1000))
    count = 4 * READ_CHUNK // size
    segment(tmp_path, 1, *[line(seq, "x" * 1000) for seq in range(1, count + 1)])
    segment(tmp_path, count + 1, line(count + 1))
    store = opened(tmp_path)
    arm("journal.read=EIO@2")
    told = story(store.reader(0))
    gaps = [gap for gap in told if isinstance(gap, JournalGap)]
    assert len(gaps) == 1 and gaps[0].reason == "damaged"
    assert gaps[0].to_seq - gaps[0].from_seq < READ_CHUNK // size + 2
    missing = set(range(gaps[0].from_seq, gaps[0].to_seq + 1))
    assert [seq for seq in told if isinstance(seq, int)] == [s for s in range(1, count + 2) if s not in missing]
    arm("journal.read=EIO@1-")
    with pytest.raises(WorldError, match="cannot read the journal"):
        story(store.reader(0))


@pytest.mark.parametrize("name", ["EIO", "ENOMEM", "ESTALE"])
def test_a_read_that_fails_where_the_journal_lives_is_typed_and_can_be_tried_again(tmp_path: Path, name: str) -> None:
    segment(tmp_path, 1, line(1), line(2))
    reader = opened(tmp_path).reader(0)
    arm(f"journal.read={name}@1-2")
    for _ in range(2):
        with pytest.raises(WorldError, match="cannot read the journal") as caught:
            reader.read()
        assert caught.value.kind == ("overloaded" if name == "ENOMEM" else "storage_failed")
    assert story(reader) == [1, 2]


@pytest.mark.fault(58)
def test_what_a_failed_write_has_left_is_read_by_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not be taken back at once: whole lines of events that were never told, and half of one."""
    store = opened(tmp_path)
    store.append(line(1) + line(2), 2, {})
    reader, write = store.reader(0), os.write
    left = [line(3, "a"), line(4, "b"), line(5, "c")[:40]]

    def torn(fd: int, _data: bytes) -> int:
        if left:
            return write(fd, left.pop(0))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    arm("journal.mend=EIO@1")
    with monkeypatch.context() as patched:
        patched.setattr("clisup.store.journal_store.os.write", torn)
        with pytest.raises(WorldError):
            store.append(b"".join(line(seq, "longer") for seq in (3, 4, 5)), 3)
        assert seqs_of(reader) == [1, 2] and reader.read() is None
    store.append(b"".join(line(seq, "longer") for seq in (3, 4, 5)), 3)
    assert story(reader) == [3, 4, 5]
    reader.close()
    store.close()
