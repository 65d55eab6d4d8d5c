"""What is of no use any more: sockets that nobody listens at, and only ours."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from clisup.host import garbage


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
