"""POSIX locks between real processes: one holds, the other is told who."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clisup.errors import WorldError
from clisup.host import clock
from clisup.host.locks import FileLock, StateLock, lock_holder
from clisup.host.sockets import take_lock

HOLDER = """
import sys
from clisup.host.locks import FileLock
lock = FileLock(sys.argv[1])
print(lock.acquire(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds `tmp_path/lock`, until its stdin ends."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "None\n"
        yield process
        process.kill()


def test_a_second_process_is_told_the_pid_of_the_first(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    path = str(tmp_path / "lock")
    assert FileLock(path).acquire() == other.pid
    assert lock_holder(path) == other.pid


def test_the_lock_is_free_as_soon_as_its_holder_is_dead(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    other.kill()
    other.wait()
    assert lock_holder(str(tmp_path / "lock")) is None
    lock = FileLock(str(tmp_path / "lock"))
    assert lock.acquire() is None
    lock.release()


@pytest.mark.fault(50)
@pytest.mark.parametrize("what", ["state directory", "socket"])
def test_a_second_daemon_says_who_holds_the_lock(tmp_path: Path, other: subprocess.Popen[str], what: str) -> None:
    with pytest.raises(WorldError, match=f"pid {other.pid} serves this {what} already") as caught:
        take_lock(str(tmp_path / "lock"), what)
    assert (caught.value.kind, caught.value.data, caught.value.exit_code) == (
        "daemon_already_running",
        {"pid": other.pid},
        75,
    )


def test_the_holder_writes_its_pid_and_keeps_the_lock_while_it_writes(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("999999 and more text than the next holder writes\n")
    lock = take_lock(str(path), "socket")
    # Asked by another process: were this one to open the file again, closing it would drop the lock.
    question = "import sys; from clisup.host.locks import *; print(lock_holder(sys.argv[1]), open(sys.argv[1]).read())"
    held = subprocess.run(
        [sys.executable, "-c", question, str(path)], capture_output=True, text=True, check=True
    ).stdout.split()
    assert held == [str(os.getpid()), str(os.getpid())]
    lock.release()
    lock.release()


def test_nobody_holds_a_lock_that_is_not_there(tmp_path: Path) -> None:
    assert lock_holder(str(tmp_path / "lock")) is None
    assert not (tmp_path / "lock").exists()


def test_a_new_lock_file_is_private(tmp_path: Path) -> None:
    lock = FileLock(str(tmp_path / "lock"))
    assert lock.acquire() is None
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
    lock.release()


def test_a_lock_that_cannot_be_made_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="cannot open the lock") as caught:
        FileLock(str(tmp_path / "absent" / "lock")).acquire()
    assert caught.value.kind == "storage_failed"


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "directory"])
def test_what_is_no_file_is_neither_followed_nor_waited_for(tmp_path: Path, kind: str) -> None:
    path, victim = tmp_path / "lock", tmp_path / "victim"
    victim.write_text("precious")
    if kind.endswith("link"):
        path.symlink_to(victim if kind == "link" else tmp_path / "new")
    else:
        os.mkfifo(path) if kind == "pipe" else path.mkdir()
    with pytest.raises(WorldError, match="cannot open the lock"):
        take_lock(str(path), "socket")
    if kind != "directory":
        with pytest.raises(PermissionError, match="no regular file of this user's"):
            lock_holder(str(path))
    assert victim.read_text() == "precious" and not (tmp_path / "new").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    os.chown(tmp_path / "lock", 12345, 12345)
    with pytest.raises(WorldError, match="no regular file of this user's: remove it"):
        FileLock(str(tmp_path / "lock")).acquire()
    with pytest.raises(PermissionError):
        lock_holder(str(tmp_path / "lock"))


def test_a_file_that_has_another_name_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    os.link(tmp_path / "victim", tmp_path / "lock")
    with pytest.raises(WorldError, match="hard link to some other file: remove it"):
        take_lock(str(tmp_path / "lock"), "socket")
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_full_disk_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    lock = FileLock(str(tmp_path / "lock"))
    assert lock.acquire() is None
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(WorldError, match="No space left") as refused:
        lock.write("1\n")
    assert refused.value.kind == "storage_failed"
    lock.release()


STATE_HOLDER = """
import sys
from clisup.host.locks import StateLock
lock = StateLock(sys.argv[1])
print(lock.acquire(), flush=True)
sys.stdin.read()
"""


def test_a_state_directory_stays_locked_without_its_lock_file_and_under_another_name(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    command = [sys.executable, "-c", STATE_HOLDER, str(state)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "None\n"
        assert StateLock(str(state)).acquire() == process.pid
        (state / "daemon.lock").unlink()
        holder = StateLock(str(state)).acquire()
        assert holder in (process.pid, -1), "the file system may hide the holder of a directory's lock"
        assert not (state / "daemon.lock").exists()
        renamed = state.rename(tmp_path / "renamed")
        assert StateLock(str(renamed)).acquire() is not None
        process.kill()
        process.wait()
    lock = StateLock(str(renamed))
    assert lock.acquire() is None and lock.is_in_place()
    (renamed / "daemon.lock").unlink()
    assert not lock.is_in_place()
    assert lock.renew() is None and lock.is_in_place()
    lock.release()
    lock.release()


def test_a_second_daemon_does_not_wait_for_a_first_that_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take over from a daemon that is stopped meanwhile, and `clisup stop` would wait for it, too."""
    monkeypatch.setattr(clock, "pause", lambda _s: pytest.fail("it waits"))
    argv = [sys.executable, "-c", STATE_HOLDER, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert StateLock(str(tmp_path)).acquire() == process.pid
        process.kill()


def test_a_file_system_that_locks_no_directories_leaves_the_lock_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, how: int) -> None:
        raise OSError(errno.EBADF, "as on NFS")

    monkeypatch.setattr("fcntl.flock", refuse)
    lock = StateLock(str(tmp_path))
    assert lock.acquire() is None and lock.is_in_place()
    lock.release()
