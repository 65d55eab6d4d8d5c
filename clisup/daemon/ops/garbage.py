"""Garbage in the state directory and around it: one function finds each kind, and `remove` removes it.

The caller names the active sessions and runs; nothing of theirs is found. Lock files are never removed: two processes
could take a lock whose file is gone.
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
from clisup.host.process.markers import RunMarker, state_id
from clisup.host.sockets import is_gone
from clisup.policy.retention import Part
from clisup.store.session_dir import SCRATCH, RunDir, SessionDir

TEMPORARY_AGE_S = 3600.0
"""Age of a half-written file of a dead process. Writing a file takes milliseconds."""

CLI_SOCKETS = "/tmp/cc-socks"
"""Directory of the sockets of a user's claude processes. A socket stays after a SIGKILL (2.1.329)."""

FOREIGN_AGE_S = 60.0
"""Age of a dead socket that no run here has made. A process takes milliseconds between its `bind` and its `listen`."""

_SLACK_S = 1.0
"""Tolerance between the times of files and the times of their process."""

_STARTED = frozenset({"start.json", "exit.json"})  # either shows that a process was started
_TEMPORARY = re.compile(r".+\.([0-9]+)\.tmp")
_PID_SOCKET = re.compile(r"([0-9]+)\.sock")


class Removable(NamedTuple):
    """File, directory, cgroup or part of a session to remove. `part` is set for events that retention removes.

    A `foreign` one was left by a program that clisup did not start: only a caller who asks for such items removes it.
    """

    kind: str
    path: str
    size: int
    reason: str
    session_id: str | None = None
    part: Part | None = None
    foreign: bool = False


def trash(state_dir: str) -> Iterator[Removable]:
    """Yield deleted sessions whose removal was interrupted."""
    folder = os.path.join(state_dir, "trash")
    for name in _names(folder):
        path = os.path.join(folder, name)
        yield Removable("trash", path, size_of(path), "deleted, and the removal was interrupted")


def temporary(state_dir: str) -> Iterator[Removable]:
    """Yield files that a dead process was writing: `<name>.<pid>.tmp`. The directories of CLIs are skipped."""
    then = clock.wall() - TEMPORARY_AGE_S
    for folder, folders, names in os.walk(state_dir):
        folders[:] = [name for name in folders if name != ("trash" if folder == state_dir else SCRATCH)]
        for name in names:
            if not name.endswith(".tmp") or (match := _TEMPORARY.fullmatch(name)) is None or not is_gone(int(match[1])):
                continue
            path = os.path.join(folder, name)
            if (info := _lstat(path)) and info.st_mtime < then:
                yield Removable(
                    "temporary", path, info.st_size, "half written by a dead process", _session(path, state_dir)
                )


def of_runs(directory: SessionDir) -> Iterator[Removable]:
    """Yield run directories of a quiet session without a process, and files written for a CLI that has exited."""
    for number in directory.run_numbers():
        run = directory.run(number)
        there = set(_names(run.path))
        if (_STARTED & there and SCRATCH not in there) or _locked(run.lock):
            continue
        if _never_started(run):
            yield Removable("run", run.path, size_of(run.path), "no process was started in it", directory.id)
        elif os.path.isdir(run.scratch):
            yield Removable(
                "scratch", run.scratch, size_of(run.scratch), "written for a CLI that has exited", directory.id
            )


def _never_started(run: RunDir) -> bool:
    started = any(os.path.exists(os.path.join(run.path, name)) for name in _STARTED)
    return not (started or size_of_file(run.out) or size_of_file(run.err))


def private_of(directory: SessionDir) -> Iterator[Removable]:
    """Yield secrets and prompts that a crash left in a closed session."""
    for name in ("private", "prompts"):
        path = os.path.join(directory.path, name)
        if os.path.isdir(path):
            yield Removable(
                "private", path, size_of(path), "left by a crash during the close of the session", directory.id
            )


def empty_cgroups(
    home: cgroups.CgroupHome, state_dir: str, spared: frozenset[tuple[str, int]], known: frozenset[str]
) -> Iterator[Removable]:
    """Yield empty cgroups of runs of `known` sessions of the state directory."""
    state = state_id(state_dir) if known else ""
    for session_id, number in home.leftovers(state):
        path = home.of(RunMarker(session_id, number, state))
        if path and session_id in known and (session_id, number) not in spared and not cgroups.populated(path):
            yield Removable("cgroup", path, 0, "empty, and its run has ended", session_id)


def around_sockets(path: str, *, served: bool) -> Iterator[Removable]:
    """Yield dead sockets at the path (unless the path is `served`), and scratch sockets of dead daemons.

    A daemon first takes the lock beside its socket. Without that lock the sockets belong to another program.
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
            yield Removable("socket", found, 0, "no process listens there")


def cli_sockets(sessions: Iterable[SessionDir]) -> Iterator[Removable]:
    """Yield sockets of dead claude processes: of runs of these sessions, then `foreign` ones of all others."""
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
                yield Removable(
                    "socket", dead.pop(pid), 0, f"socket of this run's claude, process {pid}, which has exited"
                )
        except WorldError:  # an unreadable record proves nothing
            continue
    then = clock.wall() - FOREIGN_AGE_S
    for pid, path in sorted(dead.items()):
        if (info := _lstat(path)) and info.st_mtime < then:
            reason = f"socket of claude process {pid}, which has exited and was no run here"
            yield Removable("socket", path, 0, reason, foreign=True)


def _made_by_run(run: RunDir, path: str) -> bool:
    """Tell whether the run's process made the file: the pid may belong to other processes before and after."""
    lived = (run.exit_record() or {}).get("duration_s")
    if (run.start_record() or {}).get("stage") != "main_exited" or not isinstance(lived, float | int):
        return False
    ended, made = _lstat(run.started), _lstat(path)  # the keeper's last write was at the end of the process
    return bool(ended and made and -_SLACK_S <= ended.st_mtime - made.st_mtime <= lived + _SLACK_S)


def remove(item: Removable) -> str | None:
    """Remove the item, and return None or the reason of a failure. A missing item is no failure."""
    if item.kind == "cgroup":
        return None if cgroups.remove(item.path) or not os.path.isdir(item.path) else "a process is in it"
    if item.kind == "run" and not _never_started(RunDir(item.path)):
        return "a process was started in it meanwhile"
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
    """Tell whether the path is a socket of this user at which no process listens."""
    info = _lstat(path)
    if info is None or not stat.S_ISSOCK(info.st_mode) or info.st_uid != os.geteuid():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as sock:
        return sock.connect_ex(path) == errno.ECONNREFUSED


def _locked(path: str) -> bool:
    """Tell whether a process holds the lock. A lock that cannot be read counts as held."""
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
