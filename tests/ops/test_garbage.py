"""What is of no use any more: sockets that nobody listens at, and only ours."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clisup.daemon.ops import garbage
from clisup.store.session_dir import RunDir, SessionDir
from clisup.store.stored_sizes import look_at


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


def ran(state: Path, number: int, process: object, *, ended: float, lived: float, stage: str = "main_exited") -> None:
    """The records that the keeper of a run leaves."""
    run = SessionDir(str(state), "s").run(number)
    run.create({}, {})
    Path(run.started).write_text(json.dumps({"stage": stage, "pid": process}))
    Path(run.path, "exit.json").write_text(json.dumps({"duration_s": lived}))
    os.utime(run.started, (ended, ended))


@pytest.fixture
def claudes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which claude processes keep their sockets."""
    folder = tmp_path / "cc-socks"
    folder.mkdir()
    monkeypatch.setattr(garbage, "CLI_SOCKETS", str(folder))
    return folder


def test_a_cli_s_socket_goes_once_its_process_is_gone(tmp_path: Path, claudes: Path) -> None:
    names = (dead_pid(), os.getpid(), "name", "1999999999", "1999999998")
    dead, living, odd, file, hidden = (claudes / f"{name}.sock" for name in names)
    for path in (dead, living, odd):
        bound(path).close()
    file.write_text("no socket")
    for at, name in enumerate(names):
        ran(tmp_path, at, name, ended=time.time(), lived=9)
    with bound(hidden, listens=True):  # of a process that we cannot see
        found = list(garbage.cli_sockets([SessionDir(str(tmp_path), "s")]))
    assert [item.path for item in found] == [str(dead)]
    assert garbage.remove(found[0]) is None and not dead.exists()
    assert garbage.remove(found[0]) is None, "what is gone already is no failure"


def test_a_socket_of_a_claude_that_was_no_run_stays(tmp_path: Path, claudes: Path) -> None:
    """Of a terminal, of another program, or made when the pid of a run was not yet or no longer that run's."""
    now, pids = time.time(), [os.getpid() + 2**22 + at for at in range(5)]
    for pid in pids:
        bound(claudes / f"{pid}.sock").close()
    before, after, begun, broken, _stranger = pids
    ran(tmp_path, 1, before, ended=now + 500, lived=400)
    ran(tmp_path, 2, after, ended=now - 100, lived=400)
    ran(tmp_path, 3, begun, ended=now, lived=400, stage="running")
    ran(tmp_path, 4, [broken], ended=now, lived=400)
    assert list(garbage.cli_sockets([SessionDir(str(tmp_path), "s")])) == []
    ran(tmp_path, 5, begun, ended=now, lived=400)
    assert len(list(garbage.cli_sockets([SessionDir(str(tmp_path), "s")]))) == 1


def test_a_dead_socket_of_another_program_is_foreign_once_it_is_old(tmp_path: Path, claudes: Path) -> None:
    """A process may lie between its `bind` and its `listen`, also in a container whose pids are others."""
    new, old, living = (claudes / f"{pid}.sock" for pid in (dead_pid(), dead_pid(), os.getpid()))
    for path in (new, old, living):
        bound(path).close()
    for path in (old, living):
        os.utime(path, (time.time() - 3600,) * 2)
    found = list(garbage.cli_sockets([SessionDir(str(tmp_path), "s")]))
    assert [(item.path, item.foreign) for item in found] == [(str(old), True)]


def test_a_socket_in_the_daemon_s_place_that_no_daemon_claimed_stays(tmp_path: Path) -> None:
    own, lock = tmp_path / "d.sock", tmp_path / "d.sock.lock"
    for path in (own, Path(f"{own}.{dead_pid()}")):
        bound(path).close()
    assert list(garbage.around_sockets(str(own), served=False)) == []
    lock.mkdir()
    assert list(garbage.around_sockets(str(own), served=False)) == []
    lock.rmdir()
    lock.write_text("")
    assert len(list(garbage.around_sockets(str(own), served=False))) == 2


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
    assert garbage.remove(garbage.Removable("trash", "/proc/self/comm", 0, "")) is not None
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
    assert garbage.remove(found) == "a process was started in it meanwhile" and os.path.isdir(run.path)


def test_a_segment_that_goes_while_sizes_are_taken_is_not_there(tmp_path: Path) -> None:
    directory = SessionDir(str(tmp_path), "s")
    os.makedirs(directory.journal)
    Path(directory.journal, "000000000001.jsonl").write_text("x")
    os.symlink("gone", Path(directory.journal, "000000000002.jsonl"))  # listed, and then not there
    assert [segment.first_seq for segment in look_at(directory).segments] == [1]
