"""Removal of locks that a CLI has left behind, so that the CLI's next start does not wait for them to expire.

A lock is removed only if it belongs to this user and no live process of this user can hold it. A possible holder runs
the lock's program with the same home. A lock that changes during the look at the processes is in use.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import structlog

from clisup.policy.cli_files import StaleLock

_log = structlog.get_logger()


def remove_stale_locks(locks: Iterable[StaleLock], env: Mapping[str, str]) -> list[str]:
    """Remove the `locks` without a possible holder, and return the removed paths. `env` is the environment for the CLI.

    The function never raises: a remaining lock only costs the CLI its own waiting time. It reads /proc only if a lock
    exists.
    """
    removed = []
    for lock in locks:
        home = _home(lock, env)
        path = os.path.join(home, lock.path) if home else None
        if path is not None and _remove(lock, home or "", path):
            _log.info("stale lock removed", path=path)
            removed.append(path)
    return removed


def _remove(lock: StaleLock, home: str, path: str) -> bool:
    """Look at the lock, look for holders, look at the lock again.

    An unchanged lock is older than every live process.
    """
    try:
        before = _identity(path)
        if before is None or _holders(lock, home) or _identity(path) != before:
            return False
        os.rmdir(path)  # rmdir refuses a directory that is not empty: that is a lock of another kind
        return True
    except OSError:
        return False


def _identity(path: str) -> tuple[int, int, int] | None:
    """Return the identity that distinguishes this lock from a later lock of the same name.

    Return None if the path is not a directory of ours.
    """
    stat = os.lstat(path)
    ours = os.path.isdir(path) and not os.path.islink(path) and stat.st_uid == os.geteuid()
    return (stat.st_dev, stat.st_ino, stat.st_mtime_ns) if ours else None


def _holders(lock: StaleLock, home: str) -> bool:
    return any(
        _runs(pid, lock.program) and _same(_home(lock, _environ(pid)), home)
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit())
    )


def _runs(pid: int, program: str) -> bool:
    """Tell whether an argument is the program, or a script of that name.

    Node's scripts come after node and its flags.
    """
    arguments = _read(pid, "cmdline").split("\0")
    names = {os.path.basename(argument) for argument in arguments}
    return bool(names & {program, f"{program}.js", f"{program}.mjs"})


def _environ(pid: int) -> dict[str, str]:
    entries = (entry.partition("=") for entry in _read(pid, "environ").split("\0"))
    return {name: value for name, _, value in entries if name}


def _home(lock: StaleLock, env: Mapping[str, str]) -> str | None:
    return next((value for name in lock.homes if (value := env.get(name))), None)


def _same(one: str | None, other: str) -> bool:
    """Tell whether two homes may be the same. A process without a known home might have this one."""
    return one is None or os.path.realpath(one) == os.path.realpath(other)


def _read(pid: int, name: str) -> str:
    """Return the content, or "" for a process that is gone and for another user's environment."""
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
