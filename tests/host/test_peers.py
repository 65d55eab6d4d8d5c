"""Who is at the other end, and whose child it is: with real processes."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clisup.host.peers import ancestors, descends_from, own_uids, peer_of

# A process, its child in a session of its own, and that one's child: each says its pid, and all live until stdin ends.
FAMILY = """
import os, subprocess, sys
depth = int(sys.argv[1])
print(os.getpid(), flush=True)
child = None
if depth:
    child = subprocess.Popen([sys.executable, "-c", open("/proc/self/cmdline").read().split("\\0")[2], str(depth - 1)],
                             start_new_session=True, stdin=subprocess.PIPE)
sys.stdin.read()
if child:
    child.stdin.close()
    child.wait()
"""


@pytest.fixture
def family() -> Iterator[list[int]]:
    """[grandparent, parent, child]: none of them shares a session or process group with another."""
    command = [sys.executable, "-c", FAMILY, "2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        yield [int(process.stdout.readline()) for _ in range(3)]


def test_the_parents_of_a_process_are_found_up_to_init(family: list[int]) -> None:
    chain = ancestors(family[2])
    assert chain[:4] == [*reversed(family), os.getpid()]
    assert len(set(chain)) == len(chain)


@pytest.mark.fault(42)
def test_a_process_that_descends_from_a_keeper_is_told_from_one_that_does_not(family: list[int]) -> None:
    keeper, cli, tool = family
    assert descends_from(tool, {keeper})
    assert descends_from(cli, {99999999, keeper})
    assert descends_from(keeper, {keeper})
    assert not descends_from(keeper, {cli, tool})
    assert not descends_from(os.getpid(), set(family))
    assert not descends_from(tool, set())


@pytest.mark.parametrize("pid", [0, 1, -1, 2**22 + 1])
def test_a_pid_that_is_nobody_descends_from_nobody(pid: int) -> None:
    assert not descends_from(pid, {os.getpid()})
    assert len(ancestors(pid)) <= 1


def test_a_process_whose_name_holds_brackets_has_a_parent_all_the_same(tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([str(odd), "1000"]) as process:
        assert ancestors(process.pid)[:2] == [process.pid, os.getpid()]
        process.kill()


def test_the_kernel_says_who_connected(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    code = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(1)"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        with subprocess.Popen([sys.executable, "-c", code, path]) as process:
            connection, _ = listener.accept()
            with connection:
                assert peer_of(connection) == (process.pid, os.getuid(), os.getgid())


def test_version_1_serves_its_own_user_and_root() -> None:
    assert set(own_uids()) == {os.geteuid(), 0}


def test_where_no_descriptor_is_left_nobody_is_said_to_have_no_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_of: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("builtins.open", none_left)
    with pytest.raises(OSError, match="Too many open files"):
        ancestors(os.getpid())
