"""A file that a process of a CLI has changed is read as data of a fixed type, within a limit, and never blocks."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clisup.errors import WorldError
from clisup.host.files import OddFileError, open_regular, read_file, read_json, write_atomic, write_json, write_once
from clisup.model.sessions.turn_state import Intent, StartRecord
from clisup.store.records import read_record
from clisup.store.session_dir import RunDir
from clisup.store.spool import SpoolFile, is_end_of_line, read_range


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


ODD: dict[str, Callable[[Path], Any]] = {
    "pipe": os.mkfifo,
    "directory": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link": lambda path: path.symlink_to(__file__),
    "socket": _socket,
}


@pytest.mark.parametrize("kind", ODD)
def test_something_else_in_the_place_of_a_file_neither_blocks_nor_is_followed(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "f"
    ODD[kind](path)
    with pytest.raises(OddFileError):
        open_regular(str(path))
    with pytest.raises(WorldError) as refused:
        read_json(str(path))
    assert refused.value.kind == "storage_failed"
    assert read_record(str(path), dict[str, Any]) is None
    for read in (SpoolFile(str(path)).read, lambda: read_range(str(path), 0, 9)):
        with pytest.raises(WorldError):
            read()


def test_a_link_is_followed_where_the_file_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "f").symlink_to(__file__)
    os.close(open_regular(str(tmp_path / "f"), follow=True))
    (tmp_path / "z").symlink_to("/dev/zero")
    with pytest.raises(OddFileError):
        open_regular(str(tmp_path / "z"), follow=True)


def test_a_file_above_the_limit_is_refused_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("{}")
    os.truncate(path, 10**12)
    with pytest.raises(OddFileError, match="bytes"):
        read_file(str(path))
    with pytest.raises(WorldError):
        read_json(str(path))
    assert read_record(str(path), dict[str, Any]) is None


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_write_replaces_what_somebody_put_in_the_place_of_its_scratch_file(kind: str, tmp_path: Path) -> None:
    for number, write in enumerate((write_atomic, write_once)):
        path = tmp_path / str(number)
        ODD[kind](Path(f"{path}.{os.getpid()}.tmp"))
        write(str(path), b"data")
        assert path.read_bytes() == b"data"
        assert not list(tmp_path.glob("*.tmp"))


INTENT = {"turn_id": "t1", "argv": ["a"], "env_names": ["B"], "cgroup": None, "transcript_at": 5, "native": ["n", True],
          "live": {"model": "x"}}  # fmt: skip
START = {"proto": 1, "stage": "running", "pid": 7, "start_time": 88, "keeper_pid": 6, "env_attested": None}


def test_a_record_is_read_with_its_types(tmp_path: Path) -> None:
    for name, kind, value in (("intent", Intent, INTENT), ("start", StartRecord, START)):
        path = str(tmp_path / name)
        write_json(path, value)
        found = read_record(path, kind)
        assert found is not None and json.loads(json.dumps(found)).items() <= value.items() and len(found) >= 5


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "7", "[" * 100_000, '{"a":' * 100_000, "NaN", "\x00" * 50, "9" * 5000, '{"pid": 1e400}', '{"pid": NaN}',
     '{"pid": "1"}', '{"pid": -1}', '{"pid": 0}', '{"pid": true}', '{"pid": 1.5}', '{"pid": 99999999999}', '{"stage": []}'],
)  # fmt: skip
def test_a_record_of_another_form_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text(text)
    assert read_record(str(tmp_path / "f"), StartRecord) is None


def test_an_exit_record_with_a_number_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    run = RunDir(str(tmp_path / "1"))
    run.declare_dead({"exit_code": 0})
    assert run.exit_record() == {"exit_code": 0}
    for number in (10**30, -(2**60)):
        run.declare_dead({"exit_code": 0, "deep": [{"x": number}]})
        assert run.exit_record() is None


def test_the_end_of_a_line_is_found(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"ab\nc\n\nd")
    path = str(tmp_path / "out")
    assert [at for at in range(-2, 12) if is_end_of_line(path, at)] == [0, 3, 5, 6]
    assert not is_end_of_line(path, 2**70) and is_end_of_line(str(tmp_path / "none"), 0)
