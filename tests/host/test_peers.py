"""Who is at the other end, and whose child it is: with real processes."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clisup.host import sockets as peers
from clisup.host.sockets import comes_from, is_gone, is_marked, own_uids, parent_of, peer_of

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
