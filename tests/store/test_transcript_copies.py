"""A copy of a transcript: whole or not there, and never in the place of another file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from clisup.errors import UsageError, WorldError
from clisup.store.session_dir import SessionDir
from clisup.store.transcripts import CopyInProgress, parts_of, read_lines, write_new, write_session

ID = "3f2a77be-1c1d-4d8b-9a3e-0d6c5b0f9a11"
NAME = f"{ID}.jsonl"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "projects"
    folder.mkdir()
    path = folder / "source.jsonl"
    path.write_bytes(b"one\ntwo\nthree\ntorn")
    return path


def begun(tmp_path: Path) -> CopyInProgress:
    return CopyInProgress(SessionDir(str(tmp_path / "state"), ID))


def test_lines_are_read_as_they_stand_up_to_a_size(source: Path) -> None:
    assert list(read_lines(str(source))) == [b"one\n", b"two\n", b"three\n", b"torn"]
    assert list(read_lines(str(source), 6)) == [b"one\n", b"tw"]
    assert list(read_lines(str(source), 0)) == []
    with pytest.raises(WorldError):
        list(read_lines(str(source.parent / "none")))


def test_a_copy_holds_the_parts_in_order_for_its_owner_alone(tmp_path: Path, source: Path) -> None:
    before = source.stat()
    copy, target = begun(tmp_path), source.parent / NAME
    scratch = copy.begin(str(source.parent / NAME))
    write_new(parts_of(str(source), [(0, 4), (8, 14)], lambda line: line.replace(b"e", b"E")), scratch)
    assert not target.exists()
    copy.publish()
    copy.settle()
    assert target.read_bytes() == b"onE\nthrEE\n"
    assert target.stat().st_mode & 0o777 == 0o600 and target.stat().st_nlink == 1
    assert sorted(os.listdir(source.parent)) == [NAME, "source.jsonl"]
    assert (source.stat().st_mtime_ns, source.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


@pytest.mark.parametrize("published", [False, True])
def test_what_another_daemon_left_half_done_is_undone(tmp_path: Path, source: Path, published: bool) -> None:
    copy = begun(tmp_path)
    write_new(parts_of(str(source), [(0, 4)], bytes), copy.begin(str(source.parent / NAME)))
    if published:
        copy.publish()
    begun(tmp_path).undo()
    assert os.listdir(source.parent) == ["source.jsonl"]
    begun(tmp_path).undo()  # nothing is left to undo


def test_a_file_of_the_same_name_is_neither_replaced_nor_removed(tmp_path: Path, source: Path) -> None:
    target = source.parent / NAME
    copy = begun(tmp_path)
    write_new(parts_of(str(source), [(0, 4)], bytes), copy.begin(str(source.parent / NAME)))
    target.write_text("somebody's own")
    with pytest.raises(UsageError) as caught:
        copy.publish()
    assert caught.value.kind == "session_exists"
    copy.undo()
    assert target.read_text() == "somebody's own"
    assert sorted(os.listdir(source.parent)) == [target.name, "source.jsonl"]


def test_a_link_in_the_place_of_the_scratch_file_is_not_followed(tmp_path: Path, source: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    scratch = begun(tmp_path).begin(str(source.parent / NAME))
    os.symlink(precious, scratch)
    with pytest.raises(WorldError):
        write_new([b"one\n"], scratch)
    assert precious.read_text() == "kept"


def test_a_note_that_names_another_file_removes_nothing(tmp_path: Path, source: Path) -> None:
    copy = begun(tmp_path)
    copy.begin(str(source.parent / NAME))
    note = tmp_path / "state" / "sessions" / ID / "fork.json"
    note.write_text(json.dumps({"transcript": str(source)}))
    copy.undo()
    assert source.exists()


def test_a_folder_that_was_not_there_goes_with_what_was_to_be_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "projects" / "-srv-app"
    copy = begun(tmp_path)
    write_new([b"one\n"], copy.begin(str(folder / NAME)))
    begun(tmp_path).undo()
    assert not folder.exists()
    write_new([b"one\n"], copy.begin(str(folder / NAME)))
    (folder / "another").touch()
    copy.undo()
    assert os.listdir(folder) == ["another"]


def test_a_record_that_cannot_be_written_leaves_no_transcript(tmp_path: Path, source: Path) -> None:
    def refuse() -> None:
        raise OSError(28, "No space left on device")

    directory = SessionDir(str(tmp_path / "state"), ID)
    with pytest.raises(WorldError) as caught:
        write_session(directory, str(source.parent / NAME), [b"one\n"], refuse)
    assert caught.value.kind == "storage_failed"
    assert os.listdir(source.parent) == ["source.jsonl"]
    assert not os.path.exists(directory.path)


def test_a_source_that_cannot_be_read_is_told_as_such_and_leaves_nothing(tmp_path: Path, source: Path) -> None:
    gone = source.with_name("gone.jsonl")
    directory = SessionDir(str(tmp_path / "state"), ID)
    with pytest.raises(WorldError, match=f"^cannot read {gone}, because of: No such file") as caught:
        write_session(directory, str(source.parent / NAME), parts_of(str(gone), [(0, 4)], bytes), lambda: None)
    assert caught.value.kind == "storage_failed"
    assert os.listdir(source.parent) == ["source.jsonl"]
    assert not os.path.exists(directory.path)
