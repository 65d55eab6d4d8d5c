"""The daemon's socket: private from its first moment, and nobody else's file is ever replaced."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from clisup.errors import ClisupError, ConfigurationError, WorldError
from clisup.host.sockets import bind_listener, claim_socket
from clisup.locations import SOCKET_PATH_LIMIT


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A private directory whose path is short enough for a socket."""
    directory = tmp_path / "d"
    directory.mkdir(mode=0o700)
    return directory


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def test_a_client_can_connect_and_the_socket_is_its_owners_alone(place: Path) -> None:
    with bind_listener(str(place / "s")):
        assert answers(place / "s")
        info = (place / "s").lstat()
        assert stat.S_ISSOCK(info.st_mode)
        assert stat.S_IMODE(info.st_mode) == 0o600
        assert os.listdir(place) == ["s"]


def test_the_directory_is_made_private(tmp_path: Path) -> None:
    with bind_listener(str(tmp_path / "new" / "run" / "s")):
        assert (tmp_path / "new" / "run").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_the_umask_is_as_it_was(place: Path) -> None:
    before = os.umask(0o022)
    try:
        with bind_listener(str(place / "s")):
            assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def stale(path: Path) -> None:
    """A socket that a daemon left behind when it was killed."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


@pytest.mark.fault(51)
def test_a_stale_socket_is_replaced(place: Path) -> None:
    stale(place / "s")
    assert not answers(place / "s")
    with bind_listener(str(place / "s")):
        assert answers(place / "s")


def test_a_scratch_name_that_was_left_behind_is_no_trouble(place: Path) -> None:
    stale(place / f"s.{os.getpid()}")
    with bind_listener(str(place / "s")):
        assert os.listdir(place) == ["s"]


@pytest.mark.parametrize("length", [SOCKET_PATH_LIMIT, SOCKET_PATH_LIMIT - 3])
def test_the_longest_path_that_a_socket_may_have_works(tmp_path: Path, length: int) -> None:
    room = length - len(str(tmp_path)) - 3
    if room < 1:
        pytest.skip("the temporary directory's own path is too long")
    path = tmp_path / "d" / ("s" * room)
    assert len(os.fsencode(path)) == length
    stale_allowed = bind_listener(str(path))
    with stale_allowed:
        assert answers(path)


def refused(path: Path | str) -> ClisupError:
    with pytest.raises(ClisupError, match="cannot listen") as caught:
        bind_listener(str(path))
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("at", ["/proc/clisup/s", "/proc/s", "file/s"])
def test_a_place_that_cannot_be_used_is_the_sockets_fault_and_not_the_state_directorys(place: Path, at: str) -> None:
    (place / "file").write_text("x")
    with pytest.raises(ConfigurationError, match="cannot listen") as caught:
        claim_socket(str(place / at))
    assert "--socket" in caught.value.hint and "state directory" not in caught.value.hint


def test_a_path_that_is_too_long_leaves_no_lock(place: Path) -> None:
    with pytest.raises(ConfigurationError, match="more than 107 bytes"):
        claim_socket(str(place / ("s" * SOCKET_PATH_LIMIT)))
    assert os.listdir(place) == []


def test_a_longer_path_is_refused_and_says_how_long_it_may_be(place: Path) -> None:
    error = refused(f"{place}/{'ü' * SOCKET_PATH_LIMIT}")
    assert isinstance(error, ConfigurationError)
    assert "more than 107 bytes" in error.message
    assert os.listdir(place) == []


@pytest.mark.parametrize("mode", [0o707, 0o777, 0o1777])
def test_a_directory_that_others_may_write_to_is_refused(place: Path, mode: int) -> None:
    place.chmod(mode)
    assert f"others may write to {place}" in refused(place / "s").message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_directory_of_another_user_is_refused(place: Path) -> None:
    os.chown(place, 12345, 12345)
    assert "belongs to uid 12345" in refused(place / "s").message


def test_a_link_of_ours_to_a_private_directory_is_followed(place: Path) -> None:
    link = place.with_name("link")
    link.symlink_to(place)
    with bind_listener(str(link / "s")):
        assert answers(place / "s")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_link_that_another_user_may_turn_elsewhere_is_refused(place: Path) -> None:
    link = place.with_name("link")
    link.symlink_to(place)
    os.lchown(link, 12345, 12345)
    assert "belongs to uid 12345" in refused(link / "s").message


@pytest.mark.parametrize("kind", ["file", "directory", "link to a socket", "dangling link"])
def test_what_is_no_socket_is_never_replaced(place: Path, kind: str) -> None:
    path = place / "s"
    if kind == "file":
        path.write_text("precious")
    elif kind == "directory":
        path.mkdir()
    else:
        stale(place / "other")
        path.symlink_to(place / ("other" if kind == "link to a socket" else "absent"))
    before = path.lstat()
    assert "no socket" in refused(path).message
    assert path.lstat().st_ino == before.st_ino


def test_a_directory_that_cannot_be_made_is_a_typed_error(place: Path) -> None:
    (place / "file").write_text("x")
    with pytest.raises(WorldError, match="cannot make the directory") as caught:
        bind_listener(str(place / "file" / "s"))
    assert caught.value.kind == "storage_failed"


class Other:
    """Another program that listens; its queue holds two, and a third one is told to come again."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(path))
        self.socket.listen(0)
        self.socket.settimeout(30)


@pytest.mark.parametrize("full", [False, True])
def test_a_socket_at_which_somebody_listens_is_left_to_them(place: Path, full: bool) -> None:
    """systemd for a socket unit, or a program that knows nothing of our lock."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(Other(place / "s").socket)
        answer = 0
        while full and answer == 0:
            client = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            answer = client.connect_ex(str(place / "s"))
        before = (place / "s").lstat().st_ino
        message = refused(place / "s").message
        assert "another process does (systemd, for clisup.socket?)" in message
        assert full or f"pid {os.getpid()} of uid {os.geteuid()}" in message
        assert (place / "s").lstat().st_ino == before


def test_no_connection_is_left_at_a_socket_that_was_asked(place: Path) -> None:
    with Other(place / "s").socket as other:
        refused(place / "s")
        with other.accept()[0] as asked:
            assert asked.recv(1) == b""


HELD_BY_A_CHILD = """
import os, socket, sys, time
held = socket.socket(socket.AF_UNIX)
held.bind(sys.argv[1])
held.listen()
if os.fork():
    os._exit(0)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_daemon_that_was_killed_while_it_started_a_child_keeps_nobody_out(place: Path) -> None:
    """Between its fork and its exec the child has the socket, too."""
    command = [sys.executable, "-c", HELD_BY_A_CHILD, str(place / "s")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listening:
        assert listening.stdout is not None and listening.stdout.readline() == b"held\n"
        listening.wait(60)
        assert answers(place / "s")
        before = (place / "s").lstat().st_ino
        with bind_listener(str(place / "s")):
            assert (place / "s").lstat().st_ino != before


FORGED = """
import os, socket, sys
for name in sys.argv[2:]:
    held = socket.socket(socket.AF_UNIX)
    held.bind(b"\\0" + os.fsencode(name.replace("PATH", sys.argv[1])))
    held.listen()
    globals()[name] = held
from clisup.host.sockets import bind_listener
bind_listener(sys.argv[1])
print("listens")
"""


@pytest.mark.fault(51)
@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can make a network namespace, which keeps this from other daemons"
)
@pytest.mark.parametrize("name", ["a\n0: 2 0 zz 1 1 9 x", "x\n1 2 3 zz 5 6 7 odd", "x\n0 2 0 10000 1 1 9 PATH"])
def test_no_name_of_an_abstract_socket_keeps_a_daemon_from_listening(name: str) -> None:
    """Any user of the machine can bind one, and the kernel prints it into /proc/net/unix with its line ends."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        command = ["unshare", "--net", sys.executable, "-c", FORGED, f"{short}/s", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare:" in done.stderr:
        pytest.skip(f"no network namespace here: {done.stderr}")
    assert done.stdout == "listens\n", done.stderr
