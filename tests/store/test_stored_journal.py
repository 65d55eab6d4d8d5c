"""A journal that nobody writes gives what the daemon's own gives, and is left as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.config.session_spec import SessionSpec
from clisup.errors import UsageError
from clisup.model.journal import encode_snapshot
from clisup.store.journal_reader import JournalGap, JournalReader, Segments
from clisup.store.journal_store import JournalStore
from clisup.store.offline import TAIL, StoredJournal, last_events, read_session_or_raise
from clisup.store.session_dir import SessionDir
from tests.journals import line, seqs_of

SPEC = SessionSpec(
    session_id="3f2a0000-0000-4000-8000-000000000001", backend="demo", cwd="/", created_at="t", digest="d"
)


def segment(path: Path, first: int, *lines: bytes) -> None:
    (path / f"{first:012d}.jsonl").write_bytes(encode_snapshot({}) + b"".join(lines))


def story(reader: JournalReader) -> list[int | JournalGap]:
    told: list[int | JournalGap] = []
    while True:
        events, gap = seqs_of(reader), reader.take_gap()
        told += [] if gap is None else [gap]
        if not events and gap is None:
            reader.close()
            return told
        told += events


@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    after=st.integers(0, 12),
    first=st.integers(1, 4),
    torn=st.integers(0, 60),
)
def test_it_gives_what_the_daemon_gives_of_the_same_files(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], after: int, first: int, torn: int
) -> None:
    path = tmp_path_factory.mktemp("journal")
    at = first
    for length in lengths:
        segment(path, at, *[line(seq) for seq in range(at, at + length)])
        at += length
    with next(iter(sorted(path.iterdir(), reverse=True))).open("ab") as file:
        file.write(line(at)[:torn])
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    stored = StoredJournal(str(path))
    found = story(stored.reader(after))
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    store = JournalStore(str(path), segment_bytes=1 << 20)
    list(store.load())
    assert (stored.first_seq, stored.next_seq) == (store.first_seq, store.next_seq)
    assert found == story(store.reader(after))
    store.close()


def test_the_last_event_is_found_before_what_is_damaged_and_behind_what_is_long(tmp_path: Path) -> None:
    segment(tmp_path, 1, line(1), line(2, "x" * 3 * TAIL), b"no line of ours\n")
    stored = StoredJournal(str(tmp_path))
    assert stored.next_seq == 3 and story(stored.reader(0)) == [1, 2]


def test_damage_and_removed_segments_are_told(tmp_path: Path) -> None:
    segment(tmp_path, 4, line(4), b"\x00\n", line(6))
    segment(tmp_path, 7, line(7))
    assert story(StoredJournal(str(tmp_path)).reader(0)) == [
        JournalGap(1, 3, "retention"),
        4,
        JournalGap(5, 5, "damaged"),
        6,
        7,
    ]


def test_half_a_segment_is_none(tmp_path: Path) -> None:
    segment(tmp_path, 1, line(1))
    (tmp_path / f"{2:012d}.jsonl").write_bytes(encode_snapshot({})[:-5])
    stored = StoredJournal(str(tmp_path))
    assert (stored.first_seq, stored.next_seq) == (1, 2) and story(stored.reader(0)) == [1]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_session_that_was_being_made_has_none(tmp_path: Path) -> None:
    assert story(StoredJournal(str(tmp_path / "nowhere")).reader(0)) == []
    assert story(StoredJournal(str(tmp_path)).reader(0)) == []


def test_a_journal_of_a_newer_clisup_is_not_read(tmp_path: Path) -> None:
    segment(tmp_path, 1, line(1))
    file = next(tmp_path.iterdir())
    file.write_bytes(file.read_bytes().replace(b'"v":3,', b'"v":99,', 1))
    with pytest.raises(UsageError, match="a newer clisup wrote it"):
        StoredJournal(str(tmp_path))


def test_the_newest_events_of_a_session_take_few_looks_at_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = SessionDir(str(tmp_path), SPEC.session_id)
    directory.create(SPEC, {}, None, None)
    for first in (1, 4):
        segment(Path(directory.journal), first, *[line(seq) for seq in range(first, first + 3)])
    looks: list[str] = []
    listed = Segments.listed
    monkeypatch.setattr(Segments, "listed", staticmethod(lambda path: looks.append(path) or listed(path)))
    found = read_session_or_raise(str(tmp_path), SPEC.session_id)
    assert [event["seq"] for event in last_events(str(tmp_path), found)] == [1, 2, 3, 4, 5, 6]
    assert looks == [directory.journal] * 2  # once for the opening, once for the fold
