"""What lies about and is of no use to anybody: found and sized here, one kind a function, and removed.

Nothing of a session that works, waits or rests is ever found: who calls says which sessions and runs those are. Lock files are
never removed: a lock whose file is gone can be taken twice.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from clisup.errors import WorldError
from clisup.host import clock
from clisup.host.locks import lock_holder
from clisup.host.process import cgroups
from clisup.host.sockets.peers import is_gone
from clisup.policy.retention import Part
from clisup.store.session_dir import SCRATCH, RunDir, SessionDir

__all__ = [
    "Garbage",
    "around_sockets",
    "cli_sockets",
    "empty_cgroups",
    "of_runs",
    "private_of",
    "remove",
    "temporary",
    "trash",
]

TEMPORARY_AGE_S = 3600.0
"""Writing a file takes milliseconds; one that is half written after so long belongs to a process that died."""

CLI_SOCKETS = "/tmp/cc-socks"
"""Directory of all claude processes of a user, where each has a socket and leaves it after a SIGKILL (2.1.329)."""

_SLACK_S = 1.0
"""How far the times of files may differ from those of the process that they tell of."""

_STARTED = frozenset({"start.json", "exit.json"})  # either shows that a process was started
_TEMPORARY = re.compile(r".+\.([0-9]+)\.tmp")
_PID_SOCKET = re.compile(r"([0-9]+)\.sock")


class Garbage(NamedTuple):
    """One thing to be removed. `part` is set for what retention removes."""

    kind: str
    path: str
    size: int
    reason: str
    session_id: str | None = None
    part: Part | None = None


def trash(state_dir: str) -> Iterator[Garbage]:
    """Sessions that were deleted, and whose removal was cut short."""
    folder = os.path.join(state_dir, "trash")
    for name in _names(folder):
        path = os.path.join(folder, name)
        yield Garbage("trash", path, size_of(path), "deleted, and its removal was cut short")


def temporary(state_dir: str) -> Iterator[Garbage]:
    """Files that a process was writing when it died: `<name>.<pid>.tmp`, and none that a living one may write.

    Not in the directories that are a CLI's: what it calls its own files is its business.
    """
    then = clock.wall() - TEMPORARY_AGE_S
    for folder, folders, names in os.walk(state_dir):
        folders[:] = [name for name in folders if name != ("trash" if folder == state_dir else SCRATCH)]
        for name in names:
            if not name.endswith(".tmp") or (match := _TEMPORARY.fullmatch(name)) is None or not is_gone(int(match[1])):
                continue
            path = os.path.join(folder, name)
            if (info := _lstat(path)) and info.st_mtime < then:
                yield Garbage(
                    "temporary", path, info.st_size, "half written by a process that died", _session(path, state_dir)
                )


def of_runs(directory: SessionDir) -> Iterator[Garbage]:
    """Run directories in which no process was ever started, and what was written for a CLI that is gone.

    For a session of which nothing works, waits or rests.
    """
    for number in directory.run_numbers():
        run = directory.run(number)
        there = set(_names(run.path))
        if (_STARTED & there and SCRATCH not in there) or _locked(run.lock):
            continue
        if _never_started(run):
            yield Garbage("run", run.path, size_of(run.path), "no process was ever started in it", directory.id)
        elif os.path.isdir(run.scratch):
            yield Garbage("scratch", run.scratch, size_of(run.scratch), "written for a CLI that is gone", directory.id)


def _never_started(run: RunDir) -> bool:
    started = any(os.path.exists(os.path.join(run.path, name)) for name in _STARTED)
    return not (started or size_of_file(run.out) or size_of_file(run.err))


def private_of(directory: SessionDir) -> Iterator[Garbage]:
    """Secrets and prompts of a session that is closed: they should have gone with its close."""
    for name in ("private", "prompts"):
        path = os.path.join(directory.path, name)
        if os.path.isdir(path):
            yield Garbage(
                "private", path, size_of(path), "left behind by a crash while the session was closed", directory.id
            )


def empty_cgroups(
    home: cgroups.CgroupHome, spared: frozenset[tuple[str, int]], known: frozenset[str]
) -> Iterator[Garbage]:
    """Cgroups of runs of `known` sessions in which nobody lives."""
    for session_id, number in home.leftovers():
        path = home.of(session_id, number)
        if path and session_id in known and (session_id, number) not in spared and not cgroups.populated(path):
            yield Garbage("cgroup", path, 0, "its run is over, and nobody lives in it", session_id)


def around_sockets(path: str, *, served: bool) -> Iterator[Garbage]:
    """A daemon's socket that nobody listens at (unless it is `served`), and those that were never put in its place.

    A daemon takes the lock beside its socket first. Without that lock these are sockets of some other program.
    """
    folder, base = os.path.split(path)
    lock = _lstat(f"{path}.lock")
    if lock is None or not stat.S_ISREG(lock.st_mode) or lock.st_uid != os.geteuid():
        return
    for name in _names(folder):
        pid = name.removeprefix(f"{base}.")
        own = not served and name == base
        if (own or (pid != name and pid.isdecimal() and is_gone(int(pid)))) and _is_dead(
            found := os.path.join(folder, name)
        ):
            yield Garbage("socket", found, 0, "nobody listens there any more")


def cli_sockets(sessions: Iterable[SessionDir]) -> Iterator[Garbage]:
    """Sockets of claude processes that were runs of these sessions. Other programs of the user keep theirs beside them."""
    dead = {}
    for name in _names(CLI_SOCKETS):
        path = os.path.join(CLI_SOCKETS, name)
        if (match := _PID_SOCKET.fullmatch(name)) and is_gone(int(match[1])) and _is_dead(path):
            dead[int(match[1])] = path
    runs = (directory.run(number) for directory in sessions for number in directory.run_numbers())
    for run in runs if dead else ():
        try:
            pid = (run.start_record() or {}).get("pid")
            if isinstance(pid, int) and pid in dead and _made_by_run(run, dead[pid]):
                yield Garbage("socket", dead.pop(pid), 0, f"of this run's claude, whose process {pid} is gone")
        except WorldError:  # what cannot be read proves nothing
            continue


def _made_by_run(run: RunDir, path: str) -> bool:
    """Tell whether the file was made while the run's process had its pid: before and later it is that of a stranger."""
    lived = (run.exit_record() or {}).get("duration_s")
    if (run.start_record() or {}).get("stage") != "main_exited" or not isinstance(lived, float | int):
        return False
    ended, made = _lstat(run.started), _lstat(path)  # the keeper wrote that file last when the process ended
    return bool(ended and made and -_SLACK_S <= ended.st_mtime - made.st_mtime <= lived + _SLACK_S)


def remove(item: Garbage) -> str | None:
    """Remove what was found; gives None, or why it is still there. What is gone already is no failure."""
    if item.kind == "cgroup":
        return None if cgroups.remove(item.path) or not os.path.isdir(item.path) else "somebody lives in it"
    if item.kind == "run" and not _never_started(RunDir(item.path)):
        return "a process has been started in it meanwhile"
    try:
        if os.path.isdir(item.path) and not os.path.islink(item.path):
            shutil.rmtree(item.path)
        else:
            os.unlink(item.path)
    except FileNotFoundError:
        pass
    except OSError as error:
        return error.strerror or type(error).__name__
    return None


def size_of(path: str) -> int:
    """Bytes of all files below a directory, or of one file."""
    total = size_of_file(path) if not os.path.isdir(path) else 0
    for folder, _, names in os.walk(path):
        total += sum(size_of_file(os.path.join(folder, name)) for name in names)
    return total


def size_of_file(path: str) -> int:
    """Bytes of a file; 0 where there is none."""
    info = _lstat(path)
    return info.st_size if info and stat.S_ISREG(info.st_mode) else 0


def _is_dead(path: str) -> bool:
    """Is it a socket of ours that refuses: bound once, and listened at by nobody?"""
    info = _lstat(path)
    if info is None or not stat.S_ISSOCK(info.st_mode) or info.st_uid != os.geteuid():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as sock:
        return sock.connect_ex(path) == errno.ECONNREFUSED


def _locked(path: str) -> bool:
    """In doubt it is: what cannot be asked is left alone."""
    try:
        return lock_holder(path) is not None
    except OSError:
        return True


def _session(path: str, state_dir: str) -> str | None:
    parts = os.path.relpath(path, state_dir).split(os.sep)
    return parts[1] if parts[0] == "sessions" and len(parts) > 2 else None


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []
