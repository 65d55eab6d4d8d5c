"""A journal on disk: all of an append or nothing, whatever a crash or a full disk leaves, and readers at their own pace."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from clisup.errors import UsageError, WorldError
from clisup.host.failpoints import arm
from clisup.model.journal import encode_snapshot, first_seq_of
from clisup.store import journal_store
from clisup.store.journal_reader import near
from clisup.store.journal_store import MAX_UNSYNCED, JournalStore
from tests.journals import envelope, line, old_line, seqs_of

SEGMENT = 64 * 1024 * 1024


def opened(path: Path, segment_bytes: int = SEGMENT) -> JournalStore:
    store = JournalStore(str(path), segment_bytes=segment_bytes)
    list(store.load())
    return store


def grow(store: JournalStore, count: int, message: str = "m", **snapshot: Any) -> None:
    for _ in range(count):
        data = line(store.next_seq, message)
        store.append(data, 1, snapshot if store.wants_snapshot(len(data)) else None)


def seqs(store: JournalStore, after: int = 0) -> list[int]:
    reader = store.reader(after)
    found: list[int] = []
    while piece := seqs_of(reader):
        found += piece
    reader.close()
    reader.close()
    return found


def segments(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir())


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size`: what a full disk does, without one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process can open no file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_new_journal_is_empty_and_its_first_event_has_seq_1(tmp_path: Path) -> None:
    store = opened(tmp_path / "journal")
    assert (store.first_seq, store.next_seq, seqs(store)) == (1, 1, [])
    grow(store, 1)
    assert (store.first_seq, store.next_seq, seqs(store)) == (1, 2, [1])
    assert (tmp_path / "journal").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "journal" / "000000000001.jsonl").stat().st_mode & 0o777 == 0o600


def test_what_was_appended_is_there_after_a_restart(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.append(line(1) + line(2), 2, {"turns": 0})
    store.sync(store.unsynced())
    store.close()
    store.close()
    again = JournalStore(str(tmp_path), segment_bytes=SEGMENT)
    records = list(again.load())
    assert records[0].snapshot == {"turns": 0}
    assert [record.event["seq"] for record in records[1:] if record.event] == [1, 2]
    grow(again, 1)
    assert seqs(again) == [1, 2, 3]


def test_a_full_segment_is_followed_by_one_that_begins_with_a_snapshot(tmp_path: Path) -> None:
    store = opened(tmp_path, segment_bytes=2000)
    grow(store, 40, turns=7)
    names = segments(tmp_path)
    assert len(names) > 2
    assert all((tmp_path / name).stat().st_size <= 2100 for name in names)
    for name in names:
        first, second = (tmp_path / name).read_bytes().splitlines()[:2]
        assert json.loads(first)["snapshot"] == {"turns": 7}
        assert first_seq_of(second) == int(name[:12])
    assert seqs(store) == list(range(1, 41))
    assert [seqs(store, after)[:1] for after in range(39)] == [[after + 1] for after in range(39)]


def test_only_the_last_segment_is_read_at_start(tmp_path: Path) -> None:
    store = opened(tmp_path, segment_bytes=2000)
    grow(store, 40, turns=7)
    store.close()
    again = JournalStore(str(tmp_path), segment_bytes=2000)
    records = list(again.load())
    assert records[0].snapshot == {"turns": 7}
    assert len(records) < 40
    assert (again.first_seq, again.next_seq) == (1, 41)
    assert seqs(again) == list(range(1, 41))


def test_a_snapshot_larger_than_a_segment_does_not_make_a_segment_of_every_append(tmp_path: Path) -> None:
    store = opened(tmp_path, segment_bytes=2000)
    grow(store, 100, keys="x" * 5000)
    assert len(segments(tmp_path)) < 10
    assert seqs(store) == list(range(1, 101))


@pytest.mark.fault(57)
def test_a_tail_torn_at_any_byte_is_cut_and_the_journal_goes_on(tmp_path: Path) -> None:
    head, first, second = encode_snapshot({}), line(1), line(2, "ü")
    path = tmp_path / "000000000001.jsonl"
    for cut in range(len(head), len(head + first + second)):
        path.write_bytes((head + first + second)[:cut])
        store = opened(tmp_path)
        whole = 2 if cut >= len(head + first) else 1
        assert store.next_seq == whole
        grow(store, 1, "after")
        assert path.read_bytes() == head + first * (whole - 1) + line(whole, "after")
        assert seqs(store) == list(range(1, whole + 1))
        store.close()


@pytest.mark.parametrize("size", [10, 300_000, 3_000_000])
@pytest.mark.parametrize("part", [0.0, 0.5, 0.999])
def test_a_crash_while_a_segment_is_begun_leaves_the_state_of_the_one_before(
    tmp_path: Path, size: int, part: float
) -> None:
    store = opened(tmp_path)
    grow(store, 3, turns=1)
    store.close()
    head = encode_snapshot({"keys": "x" * size})
    (tmp_path / "000000000004.jsonl").write_bytes(head[: int(len(head) * part)])
    again = JournalStore(str(tmp_path), segment_bytes=SEGMENT)
    records = list(again.load())
    assert records[0].snapshot == {"turns": 1}
    assert (again.next_seq, segments(tmp_path)) == (4, ["000000000001.jsonl"])


def test_a_segment_that_holds_only_its_snapshot_is_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "000000000004.jsonl").write_bytes(encode_snapshot({"turns": 3}))
    store = opened(tmp_path)
    assert store.next_seq == 4
    grow(store, 2)
    assert seqs(store) == [4, 5]
    assert seqs(store, after=4) == [5]


@pytest.mark.fault(58)
@pytest.mark.parametrize(
    "damage", [b"\x00" * 30 + b"\n", b"half a line\n", b"[1]\n", b'{"event":{}}\n', line(2).replace(b"m", b"n", 1)]
)
def test_a_damaged_middle_is_refused_by_name_and_nothing_is_changed(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "000000000001.jsonl"
    path.write_bytes(encode_snapshot({}) + line(1) + damage + line(3) + b"torn")
    before = path.read_bytes()
    offset = len(encode_snapshot({}) + line(1))
    with pytest.raises(WorldError, match=rf"000000000001\.jsonl, because it is damaged at byte {offset}: ") as caught:
        opened(tmp_path)
    assert (caught.value.kind, caught.value.data) == ("storage_failed", {"path": str(path), "offset": offset})
    assert path.read_bytes() == before
    os.truncate(path, offset)  # what its hint says
    assert seqs(opened(tmp_path)) == [1]


def test_files_that_are_no_segments_are_left_alone(tmp_path: Path) -> None:
    for name in ("notes.jsonl", "000000000001.jsonl.bak", "x"):
        (tmp_path / name).write_text("hello")
    store = opened(tmp_path)
    grow(store, 1)
    assert seqs(store) == [1]
    assert len(segments(tmp_path)) == 4


@pytest.mark.fault(55)
def test_an_append_that_the_disk_refuses_is_taken_back_whole(tmp_path: Path) -> None:
    store = opened(tmp_path)
    grow(store, 2)
    path = tmp_path / "000000000001.jsonl"
    before = path.read_bytes()
    with file_size_limit(len(before) + 50), pytest.raises(WorldError, match="cannot append to the journal") as caught:
        store.append(line(3) + line(4), 2)
    assert (caught.value.kind, caught.value.data["errno"]) == ("storage_failed", 27)
    assert (path.read_bytes(), store.next_seq, seqs(store)) == (before, 3, [1, 2])
    store.append(line(3) + line(4), 2)
    assert seqs(store) == [1, 2, 3, 4]
    store.close()
    assert seqs(opened(tmp_path)) == [1, 2, 3, 4]


@pytest.mark.parametrize("room", [0, 5])
def test_a_segment_that_the_disk_refuses_leaves_the_one_before_in_use(tmp_path: Path, room: int) -> None:
    store = opened(tmp_path, segment_bytes=500)
    grow(store, 1)
    while not store.wants_snapshot(len(line(store.next_seq))):
        grow(store, 1)
    last = store.next_seq
    with file_size_limit(room), pytest.raises(WorldError, match=r"cannot (make|write) the journal"):
        store.append(line(last), 1, {"turns": 1})
    assert segments(tmp_path) == ["000000000001.jsonl"]
    assert seqs(store) == list(range(1, last))
    store.append(line(last), 1, {"turns": 1})
    store.close()
    assert seqs(opened(tmp_path)) == list(range(1, last + 1))


def test_a_journal_that_cannot_be_read_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "000000000001.jsonl").mkdir()
    with pytest.raises(WorldError, match="cannot read the journal") as caught:
        opened(tmp_path)
    assert caught.value.kind == "storage_failed"


def test_a_reader_follows_a_living_journal_across_its_segments(tmp_path: Path) -> None:
    store = opened(tmp_path, segment_bytes=1500)
    reader = store.reader(0)
    found: list[int] = []
    for _ in range(60):
        grow(store, 1, turns=1)
        found += seqs_of(reader)
        assert reader.read() is None
    assert found == list(range(1, 61))
    assert reader.position == 61
    assert len(segments(tmp_path)) > 3


def test_readers_at_different_places_do_not_disturb_each_other(tmp_path: Path) -> None:
    store = opened(tmp_path)
    grow(store, 3)
    slow, fast = store.reader(0), store.reader(2)
    assert seqs_of(fast) == [3]
    grow(store, 1)
    assert seqs_of(slow) == [1, 2, 3, 4]
    assert seqs_of(fast) == [4]
    assert store.reader(99).read() is None


def test_a_line_longer_than_a_read_is_given_whole(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for size in (10, 3_000_000, 10):
        grow(store, 1, "x" * size)
    assert seqs(store) == [1, 2, 3]
    assert seqs(opened(tmp_path)) == [1, 2, 3]
    block = store.reader(1).read()
    assert block is not None and len(block.frames.data) > 3_000_000


def test_a_late_reader_starts_near_its_place(tmp_path: Path) -> None:
    store = opened(tmp_path)
    grow(store, 3000, "x" * 500)
    for journal in (store, opened(tmp_path)):
        segment, offset = journal.locate(2900)
        assert segment == 1
        assert offset > 800_000
        for seq in (1, 2, 150, 1700, 2999, 3000):
            _, offset = journal.locate(seq)
            with (tmp_path / "000000000001.jsonl").open("rb") as file:
                file.seek(offset)
                read = file.readline()
            assert b"snapshot" in read or (first_seq_of(read) or seq + 1) <= seq
            assert seqs(journal, seq - 1)[0] == seq


@pytest.fixture
def disarmed() -> Iterator[None]:
    yield
    arm("")


@pytest.mark.fault(57)
@pytest.mark.parametrize("tail", [b"", b"\0" * 4096, "ü".encode()[:1], b'{"crc":"0000'])
def test_a_segment_that_ends_before_its_first_line_does_is_as_if_it_had_not_been_begun(
    tmp_path: Path, tail: bytes
) -> None:
    store = opened(tmp_path)
    grow(store, 3, turns=1)
    store.close()
    (tmp_path / "000000000004.jsonl").write_bytes(tail)
    again = opened(tmp_path)
    assert (again.next_seq, segments(tmp_path)) == (4, ["000000000001.jsonl"])
    grow(again, 1)
    assert seqs(again) == [1, 2, 3, 4]


@pytest.mark.fault(61)
def test_a_journal_of_a_later_version_is_refused_whole_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "000000000001.jsonl"
    path.write_bytes(b'{"crc":"00000000","v":4,"nothing":"that we know"}\nnor this\ntorn')
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"a newer clisup wrote it \(version 4\); use that version") as caught:
        opened(tmp_path)
    assert caught.value.kind == "unsupported" and path.read_bytes() == before


@pytest.mark.fault(61)
@pytest.mark.parametrize("version", [1, 2])
def test_a_journal_of_an_earlier_version_goes_on_in_a_segment_of_this_one(tmp_path: Path, version: int) -> None:
    lines = [b'{"crc":"%08x",%b' % (crc32(b'"v":2,"snapshot":{}}'), b'"v":2,"snapshot":{}}\n')]
    lines += [old_line(envelope(seq)) for seq in (1, 2)]
    first = tmp_path / "000000000001.jsonl"
    first.write_bytes(b"".join(b"{" + line[18:].replace(b'"v":2,', b"") if version == 1 else line for line in lines))
    before = first.read_bytes()
    store = opened(tmp_path)
    assert store.wants_snapshot(1)
    grow(store, 2, turns=1)
    assert segments(tmp_path) == ["000000000001.jsonl", "000000000003.jsonl"] and first.read_bytes() == before
    assert seqs(store) == [1, 2, 3, 4] == seqs(opened(tmp_path))
    assert not store.wants_snapshot(1)


@pytest.mark.usefixtures("disarmed")
@pytest.mark.parametrize("name", ["EIO", "ENOSPC", "EROFS", "EDQUOT"])
def test_half_a_block_that_cannot_be_taken_back_is_before_anything_else_is_written(tmp_path: Path, name: str) -> None:
    store = opened(tmp_path)
    grow(store, 2)
    whole = (tmp_path / "000000000001.jsonl").read_bytes()
    arm(f"journal.torn={name}, journal.mend={name}@1-2")
    for at in range(2):
        with pytest.raises(WorldError, match=r"append to|mend") as caught:
            grow(store, 1)
        assert caught.value.kind == "storage_failed"
        assert len((tmp_path / "000000000001.jsonl").read_bytes()) > len(whole) and seqs(store) == [1, 2], at
    grow(store, 2)
    assert (tmp_path / "000000000001.jsonl").read_bytes().startswith(whole)
    assert seqs(store) == [1, 2, 3, 4] == seqs(opened(tmp_path))


@pytest.mark.usefixtures("disarmed")
@pytest.mark.parametrize("place", ["segment.before", "segment.after"])
def test_half_a_segment_that_cannot_be_removed_is_before_anything_else_is_written(tmp_path: Path, place: str) -> None:
    store = opened(tmp_path, segment_bytes=500)
    while not store.wants_snapshot(len(line(store.next_seq))):
        grow(store, 1)
    last = store.next_seq
    arm(f"{place}=EIO, segment.mend=EIO@1-2")
    with pytest.raises(WorldError, match=r"cannot (make|write) the journal"):
        store.append(line(last), 1, {})
    if place == "segment.after":
        with pytest.raises(WorldError, match="cannot mend the journal"):
            store.append(line(last), 1)  # not into the old segment: the new one would hide it at the next start
        store.append(line(last), 1)
    else:
        store.append(line(last), 1)
    assert segments(tmp_path) == ["000000000001.jsonl"]
    assert seqs(store) == list(range(1, last + 1)) == seqs(opened(tmp_path))


def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that fdatasync was asked for."""
    paths: list[str] = []
    real = os.fdatasync

    def fdatasync(fd: int) -> None:
        paths.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    return paths


def open_segments(path: Path) -> int:
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(link) and os.readlink(link).startswith(str(path)) for link in links)


def test_a_sync_reaches_the_ends_of_the_segments_that_were_filled_since_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path, segment_bytes=1400)
    grow(store, 12)
    paths = synced(monkeypatch)
    store.sync(store.unsynced())
    names = segments(tmp_path)
    assert 2 < len(names) <= MAX_UNSYNCED and paths == names
    store.sync(store.unsynced())
    assert paths == [*names, names[-1]] and open_segments(tmp_path) == 1


def test_the_first_segment_is_synced_with_its_first_events_and_so_is_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = synced(monkeypatch)
    store = opened(tmp_path)
    grow(store, 1)
    assert paths == []
    store.sync(store.unsynced())
    assert paths == [*segments(tmp_path), tmp_path.name]
    store.sync(store.unsynced())
    assert paths[2:] == segments(tmp_path)


@pytest.mark.parametrize("durable", [True, False])
def test_few_segments_wait_for_a_sync_and_none_where_there_will_be_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    paths = synced(monkeypatch)
    store = JournalStore(str(tmp_path), segment_bytes=1000, durable=durable)
    list(store.load())
    grow(store, 100)
    assert open_segments(tmp_path) == (MAX_UNSYNCED + 1 if durable else 1)
    assert set(segments(tmp_path)) - set(paths) == (set() if durable else set(segments(tmp_path)))
    store.close()
    assert open_segments(tmp_path) == 0


@pytest.mark.usefixtures("disarmed")
def test_after_a_failed_sync_nothing_counts_as_synced_before_a_segment_was_begun(tmp_path: Path) -> None:
    store = opened(tmp_path)
    grow(store, 2)
    arm("sync.before=EIO")
    for _ in range(2):  # the kernel would say yes to the second: it has given the pages up
        with pytest.raises(WorldError, match="cannot sync the journal"):
            store.sync(store.unsynced())
    assert store.wants_snapshot(1)
    grow(store, 1, turns=9)
    store.sync(store.unsynced())
    assert segments(tmp_path) == ["000000000001.jsonl", "000000000003.jsonl"]
    again = JournalStore(str(tmp_path), segment_bytes=SEGMENT)
    assert next(iter(again.load())).snapshot == {"turns": 9}
    assert seqs(store) == [1, 2, 3] and not store.wants_snapshot(1)


@pytest.mark.fault(87)
def test_a_journal_at_rest_holds_no_file_open_and_goes_on(tmp_path: Path) -> None:
    store = opened(tmp_path)
    grow(store, 2)
    store.rest()
    assert open_segments(tmp_path) == 1, "its events are not synced yet"
    store.sync(store.unsynced())
    store.rest()
    store.rest()
    assert open_segments(tmp_path) == 0
    grow(store, 1)
    assert segments(tmp_path) == ["000000000001.jsonl"] and seqs(store) == [1, 2, 3] == seqs(opened(tmp_path))


@pytest.mark.parametrize("spoil", [os.unlink, lambda path: os.truncate(path, 3), lambda path: os.truncate(path, 10**6)])
def test_a_journal_that_was_changed_at_rest_goes_on_in_a_segment_that_begins_with_the_state(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    store = opened(tmp_path)
    grow(store, 2)
    store.sync(store.unsynced())
    store.rest()
    spoil(tmp_path / "000000000001.jsonl")
    grow(store, 1, turns=9)
    assert segments(tmp_path)[-1] == "000000000003.jsonl"
    again = JournalStore(str(tmp_path), segment_bytes=SEGMENT)
    first, *_ = again.load()
    assert first.snapshot == {"turns": 9} and again.next_seq == 4


@pytest.mark.usefixtures("disarmed")
def test_a_journal_at_rest_that_cannot_be_opened_takes_nothing_and_goes_on_later(tmp_path: Path) -> None:
    store = opened(tmp_path)
    grow(store, 2)
    store.sync(store.unsynced())
    store.rest()
    with no_descriptors(), pytest.raises(WorldError) as caught:
        grow(store, 1)
    assert caught.value.kind == "overloaded"
    grow(store, 1)
    assert segments(tmp_path) == ["000000000001.jsonl"] and seqs(store) == [1, 2, 3]


def test_a_journal_that_cannot_be_loaded_holds_no_file_open_once_it_is_closed(tmp_path: Path) -> None:
    (tmp_path / "000000000001.jsonl").write_bytes(encode_snapshot({}) + b"damaged\n")
    store = JournalStore(str(tmp_path), segment_bytes=SEGMENT)
    with pytest.raises(WorldError, match="damaged"):
        list(store.load())
    store.close()
    assert open_segments(tmp_path) == 0


@pytest.mark.fault(47)
def test_a_late_reader_starts_near_its_place_in_an_older_segment_too(tmp_path: Path) -> None:
    store = opened(tmp_path, segment_bytes=1_000_000)
    for size in (10, 500, 90_000, 500, 300_000, 500) * 20:
        grow(store, 1, "x" * size)
        grow(store, 20, "y" * size if size < 1000 else "z")
    assert len(segments(tmp_path)) > 3
    last = store.next_seq - 1
    for seq in range(1, last + 1, 7):
        segment, offset = store.locate(seq)
        with Path(store.path_of(segment)).open("rb") as file:
            file.seek(near(file.fileno(), seq) if offset is None else offset)
            first = file.readline()
            assert b"snapshot" in first or (first_seq_of(first) or seq + 1) <= seq
            skipped = 0
            while (first_seq_of(first) or 0) < seq:
                skipped += len(first)
                first = file.readline()
            assert first_seq_of(first) == seq
        assert skipped < 500_000, "one long line and a bit at most"
    assert seqs(store, last // 3) == list(range(last // 3 + 1, last + 1))


def test_other_settings_hold_from_the_next_append_on_and_leave_no_descriptor_behind(tmp_path: Path) -> None:
    store = opened(tmp_path / "journal")
    grow(store, 3)
    store.renew(segment_bytes=1, durable=True)
    grow(store, 3, "m" * 100)
    assert len(segments(tmp_path / "journal")) > 1
    before = len(os.listdir("/proc/self/fd"))
    store.renew(segment_bytes=SEGMENT, durable=False)
    assert len(os.listdir("/proc/self/fd")) < before
    fds = store.unsynced()
    assert len(fds) == 1, "only the segment that is written to"
    store.sync(fds)
    grow(store, 3)
    assert seqs(store) == list(range(1, 10))
    store.renew(segment_bytes=SEGMENT, durable=True)
    grow(store, 1)
    store.sync(store.unsynced())
    store.close()


def test_an_entry_without_an_end_is_read_to_its_limit_and_not_twice_as_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_store, "FILE_LIMIT", 1 << 20)
    monkeypatch.setattr(journal_store, "LOAD_CHUNK", 1 << 14)
    file = io.BytesIO(b"{" + b"x" * (8 << 20))
    with pytest.raises(WorldError, match="no end within 1048576 bytes"):
        list(journal_store.segment_records("journal", file))
    assert file.tell() <= (1 << 20) + (1 << 14)
