"""What is of no use any more: sockets that nobody listens at, and only ours."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from clisup.host import garbage
from clisup.host.session_dir import RunDir, SessionDir
from clisup.host.stored_sizes import look_at


def bound(path: Path, *, listens: bool = False) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    if listens:
        sock.listen(1)
    return sock


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_cli_s_socket_goes_once_its_process_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "CLI_SOCKETS", str(tmp_path))
    dead, living, odd, file = (tmp_path / f"{name}.sock" for name in (dead_pid(), os.getpid(), "name", "1999999999"))
    for path in (dead, living, odd):
        bound(path).close()
    file.write_text("no socket")
    with bound(tmp_path / "1999999998.sock", listens=True):  # of a process that we cannot see
        found = list(garbage.cli_sockets())
    assert [item.path for item in found] == [str(dead)]
    assert garbage.remove(found[0]) is None and not dead.exists()
    assert garbage.remove(found[0]) is None, "what is gone already is no failure"


def test_a_daemon_s_socket_goes_only_where_nobody_listens_and_no_daemon_is_there(tmp_path: Path) -> None:
    own = tmp_path / "d.sock"
    bound(own).close()
    (tmp_path / "d.sock.lock").write_text("")
    assert [item.path for item in garbage.around_sockets(str(own), served=False)] == [str(own)]
    assert list(garbage.around_sockets(str(own), served=True)) == []
    own.unlink()
    with bound(own, listens=True):
        assert list(garbage.around_sockets(str(own), served=False)) == []


def test_what_cannot_be_removed_is_said(tmp_path: Path) -> None:
    assert garbage.remove(garbage.Garbage("trash", "/proc/self/comm", 0, "")) is not None
    assert garbage.size_of(str(tmp_path / "none")) == 0


def test_what_a_cli_writes_beside_its_files_is_never_found(tmp_path: Path) -> None:
    """Its names are its own, and it may run for days."""
    run = RunDir(str(tmp_path / "sessions" / "s" / "runs" / "1"))
    run.create({}, {"settings.json": "{}"})
    mine, dead = Path(run.scratch) / "state.4194000.tmp", tmp_path / "accounts.json.4194000.tmp"
    living = tmp_path / f"accounts.json.{os.getpid()}.tmp"
    for path in (mine, dead, living):
        path.write_text("half")
        os.utime(path, (0, 0))
    assert [item.path for item in garbage.temporary(str(tmp_path))] == [str(dead)]


def test_a_run_that_has_begun_since_it_was_found_stays(tmp_path: Path) -> None:
    directory = SessionDir(str(tmp_path), "s")
    run = directory.run(1)
    run.create({}, {})
    (found,) = garbage.of_runs(directory)
    Path(run.path, "start.json").write_text("{}")
    assert garbage.remove(found) == "a process has been started in it meanwhile" and os.path.isdir(run.path)


def test_a_segment_that_goes_while_sizes_are_taken_is_not_there(tmp_path: Path) -> None:
    directory = SessionDir(str(tmp_path), "s")
    os.makedirs(directory.journal)
    Path(directory.journal, "000000000001.jsonl").write_text("x")
    os.symlink("gone", Path(directory.journal, "000000000002.jsonl"))  # listed, and then not there
    assert [segment.first_seq for segment in look_at(directory).segments] == [1]
