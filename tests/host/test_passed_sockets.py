"""A socket that systemd passes: taken once, by the process it is meant for, and only where it is its owner's alone."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clisup.errors import ConfigurationError
from clisup.host.sockets import activated_descriptors, activated_path, bind_listener, without_activation

PASS = """
import json, os, socket, sys
from clisup.host.sockets import activated_descriptors
from clisup.errors import ConfigurationError
while os.open("/dev/null", os.O_RDONLY) < 5: pass
for fd in (3, 4): os.set_inheritable(fd, True)
env = {"LISTEN_PID": sys.argv[1].replace("own", str(os.getpid())), "LISTEN_FDS": sys.argv[2]}
try:
    said = activated_descriptors(env)
except ConfigurationError as error:
    said = error.message
print(json.dumps([said, [os.get_inheritable(fd) for fd in (3, 4)]]))
"""


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    """As clisup.socket has it: 0600 in 0700."""
    (tmp_path / "d").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "d" / "s"))
        (tmp_path / "d" / "s").chmod(0o600)
        sock.listen()
        yield sock


@pytest.mark.parametrize(
    ("pid", "count", "said", "inheritable"),
    [
        ("own", "1", {"activated": 3}, [False, True]),
        ("1", "1", {}, [True, True]),
        ("own", "0", {}, [True, True]),
        ("own", "many", {}, [True, True]),
        ("own", "2", "cannot serve the 2 sockets that systemd has passed", [False, False]),
    ],
)
def test_it_is_taken_by_whom_it_is_meant_for(pid: str, count: str, said: object, inheritable: list[bool]) -> None:
    done = subprocess.run([sys.executable, "-c", PASS, pid, count], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [said, inheritable]


@pytest.mark.fault(92)
@pytest.mark.parametrize("count", ["3", "100000", "9" * 30])
def test_a_descriptor_that_is_closed_is_named(count: str) -> None:
    done = subprocess.run([sys.executable, "-c", PASS, "own", count], capture_output=True, text=True, check=True)
    said, _ = json.loads(done.stdout)
    assert "is not open" in said or "cannot serve the 3 sockets" in said


def test_a_successor_is_not_told_of_it_twice() -> None:
    assert activated_descriptors({}) == {}
    env = {"LISTEN_PID": "7", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "s", "HOME": "/h"}
    assert without_activation(env) == {"HOME": "/h"}


def test_its_path_is_where_systemd_listens(listening: socket.socket) -> None:
    assert activated_path(listening.fileno()) == listening.getsockname()


def refused(fd: int) -> str:
    with pytest.raises(ConfigurationError) as caught:
        activated_path(fd)
    assert caught.value.exit_code == 78 and caught.value.hint
    return caught.value.message


@pytest.mark.parametrize("mode", [0o660, 0o606, 0o666, 0o601])
def test_one_that_others_may_connect_to_is_refused(listening: socket.socket, mode: int) -> None:
    os.chmod(listening.getsockname(), mode)
    assert "others may connect" in refused(listening.fileno())


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o777])
def test_a_directory_that_is_open_to_others_is_refused(listening: socket.socket, mode: int) -> None:
    os.chmod(os.path.dirname(listening.getsockname()), mode)
    assert "is open to others" in refused(listening.fileno())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_one_of_another_user_is_refused(listening: socket.socket) -> None:
    os.chown(listening.getsockname(), 12345, 12345)
    assert "uid 12345" in refused(listening.fileno())


def test_one_whose_name_is_gone_is_refused(listening: socket.socket) -> None:
    os.unlink(listening.getsockname())
    assert "No such file" in refused(listening.fileno())


def test_what_is_no_listening_unix_stream_socket_is_refused(tmp_path: Path) -> None:
    with (
        socket.socket(socket.AF_INET) as inet,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_UNIX) as silent,
        socket.socket(socket.AF_UNIX) as abstract,
        open(os.devnull) as file,
    ):
        abstract.bind(f"\0clisup-test-{os.getpid()}")
        abstract.listen()
        silent.bind(str(tmp_path / "silent"))
        for sock in (inet, datagrams, silent, abstract):
            assert "no listening Unix socket with a path" in refused(sock.fileno())
        assert "no socket" in refused(file.fileno())


def test_a_daemon_that_is_started_by_hand_does_not_replace_it(listening: socket.socket) -> None:
    path, before = listening.getsockname(), os.lstat(listening.getsockname()).st_ino
    with pytest.raises(ConfigurationError, match="another process does"):
        bind_listener(path)
    assert os.lstat(path).st_ino == before
