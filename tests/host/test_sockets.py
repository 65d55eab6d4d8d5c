"""The daemon's socket: private from its first moment, and nobody else's file is ever replaced."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clisup.errors import ClisupError, ConfigurationError, WorldError
from clisup.host import sockets as peers
from clisup.host.sockets import (
    bind_listener,
    claim_socket,
    comes_from,
    is_gone,
    is_marked,
    own_uids,
    parent_of,
    peer_of,
)
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


def test_the_parent_of_a_process_is_found(family: list[int]) -> None:
    assert [parent_of(pid) for pid in reversed(family)] == [family[1], family[0], os.getpid()]
    with pytest.raises(FileNotFoundError):
        parent_of(2**22 + 1)


@pytest.mark.fault(42)
def test_a_process_below_a_keeper_is_told_from_one_that_is_not(family: list[int]) -> None:
    keeper, cli, tool = family
    assert comes_from(tool, {keeper})
    assert comes_from(cli, {99999999, keeper})
    assert comes_from(keeper, {keeper})
    assert not comes_from(keeper, {cli, tool})
    assert not comes_from(os.getpid(), set(family))
    assert not comes_from(tool, set())


@pytest.mark.parametrize("pid", [0, 1, -1])
def test_a_pid_that_is_nobody_comes_from_nobody(pid: int) -> None:
    assert not comes_from(pid, {os.getpid()})


def test_a_peer_that_has_left_may_be_a_tool_while_a_keeper_lives() -> None:
    assert comes_from(2**22 + 1, {os.getpid()})
    assert not comes_from(2**22 + 1, set())


def test_a_process_whose_name_holds_brackets_has_a_parent_all_the_same(tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([str(odd), "1000"]) as process:
        assert parent_of(process.pid) == os.getpid()
        process.kill()


# A chain of processes, each the child of the one before: the last one says its pid. All end with stdin.
CHAIN = """
import os, sys
for _ in range(int(sys.argv[1])):
    if pid := os.fork():
        os.waitpid(pid, 0)
        os._exit(0)
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@contextmanager
def running(code: str, *arguments: str, before: Callable[[], None] | None = None) -> Iterator[tuple[int, int]]:
    """A Python program that says a pid: its own, and the one that it says."""
    command = [sys.executable, "-I", "-S", "-c", code, *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, preexec_fn=before) as process:  # type: ignore[call-overload]
        yield process.pid, int(process.stdout.readline())


@pytest.mark.fault(42)
def test_a_process_nested_300_deep_below_a_keeper_is_found() -> None:
    with running(CHAIN, "300") as (keeper, tool):
        assert comes_from(tool, {keeper})


@pytest.mark.fault(42)
def test_a_process_nested_deeper_than_anybody_looks_counts_as_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(CHAIN, "3") as (first, last):
        assert not comes_from(last, {99999999})
        monkeypatch.setattr(peers, "MAX_DEPTH", 2)
        assert comes_from(last, {first})
        assert comes_from(last, {99999999})


def lower_the_limit() -> None:
    """As a keeper does for its CLI."""
    resource.setrlimit(resource.RLIMIT_RTTIME, (1 << 62, 1 << 62))


@pytest.mark.fault(42)
def test_a_marked_process_is_a_tool_though_no_parent_of_it_is_a_keeper() -> None:
    with running(CHAIN, "2", before=lower_the_limit) as (_, tool):
        assert is_marked(tool) and comes_from(tool, set())
    assert is_marked(os.getpid()) is False


def test_a_daemon_that_a_tool_started_serves_what_that_tool_starts() -> None:
    ask = "import os, sys; sys.path.insert(0, sys.argv[1]); from clisup.host.sockets import comes_from; "
    ask += "print(int(comes_from(os.getppid(), set())), flush=True)"
    chain = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ask!r}, *sys.argv[1:]], check=True)"
    package = str(Path(peers.__file__).parents[2])
    with running(chain, package, before=lower_the_limit) as (_, answer):
        assert answer == 0


HIDE = "mount -t proc -o hidepid=2,gid=65533 proc /proc && exec setpriv --bounding-set=-all --inh-caps=-all -- "
UNDUMPABLE = """
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
code = "import os; print(os.getpid(), flush=True); import sys; sys.stdin.read()"
subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
"""
ASK = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
import resource
from clisup.host.sockets import comes_from, parent_of
def mark():
    resource.setrlimit(resource.RLIMIT_RTTIME, (1 << 62, 1 << 62))
pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for before in (None, mark):
    with subprocess.Popen([sys.executable, "-c", sys.argv[2]], preexec_fn=before, **pipes) as process:
        pid = int(process.stdout.readline())
        try:
            parent_of(parent_of(pid))
            print("its parent is not hidden")
        except FileNotFoundError:
            print(comes_from(pid, {99999999}), comes_from(process.pid, {99999999}))
"""


@pytest.mark.fault(42)
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="only root can mount a /proc of its own")
def test_where_proc_hides_a_parent_the_mark_tells_a_login_from_a_tool() -> None:
    """The chain of a login by ssh ends at a process of sshd's that cannot be dumped, and so may a tool's."""
    ask = [sys.executable, "-c", ASK, str(Path(peers.__file__).parents[2]), UNDUMPABLE]
    said = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{HIDE} "$@"', "sh", *ask], capture_output=True, text=True, check=True
    ).stdout
    assert said.splitlines() == ["False False", "True True"]


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


def test_where_no_descriptor_is_left_the_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_of: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("builtins.open", none_left)
    with pytest.raises(OSError, match="Too many open files"):
        comes_from(os.getpid(), {99999999})


def test_a_child_of_the_daemon_was_left_by_a_killed_keeper_but_the_daemon_itself_was_not() -> None:
    assert comes_from(os.getpid(), set(), reaper=os.getppid())
    assert not comes_from(os.getpid(), set(), reaper=os.getpid())


def test_a_process_is_gone_only_where_the_kernel_says_so() -> None:
    assert is_gone(2**22 + 1) and is_gone(10**30)
    assert not any(map(is_gone, (0, 1, os.getpid())))


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="only root can mount a /proc of its own")
def test_a_process_that_proc_hides_is_not_gone() -> None:
    ask = "import sys; sys.path.insert(0, sys.argv[1]); from clisup.host.sockets import is_gone; import os; "
    ask += "print(os.path.isdir('/proc/1'), is_gone(1))"
    words = [sys.executable, "-c", ask, str(Path(peers.__file__).parents[2])]
    said = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{HIDE} "$@"', "sh", *words], capture_output=True, check=True
    )
    assert said.stdout.split() == [b"False", b"False"]
