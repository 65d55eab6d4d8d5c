"""Removing locks that a CLI has left behind, so that its next start does not wait for them to grow old.

The rule: a lock goes only where it belongs to this user and no living process of this user can hold it, that is, none that
runs the lock's program with the same home. A lock that changes while the processes are being looked at is somebody's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import structlog

from clisup.policy.stale_lock import StaleLock

__all__ = ["remove_stale_locks"]

_log = structlog.get_logger()


def remove_stale_locks(locks: Iterable[StaleLock], env: Mapping[str, str]) -> list[str]:
    """Remove those of `locks` that nobody can hold; `env` is what the CLI is about to get. Gives the paths removed.

    Never raises: a lock that stays costs the CLI its own waiting time, no more. Reads /proc only where there is a lock.
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
    """Look, look who lives, look again: a lock that is still the same was there before everybody who lives."""
    try:
        before = _identity(path)
        if before is None or _holders(lock, home) or _identity(path) != before:
            return False
        os.rmdir(path)  # refuses what is not empty: that is another lock than we know
        return True
    except OSError:
        return False


def _identity(path: str) -> tuple[int, int, int] | None:
    """What tells this lock from a later one of the same name; None where it is no directory of ours."""
    stat = os.lstat(path)
    ours = os.path.isdir(path) and not os.path.islink(path) and stat.st_uid == os.geteuid()
    return (stat.st_dev, stat.st_ino, stat.st_mtime_ns) if ours else None


def _holders(lock: StaleLock, home: str) -> bool:
    return any(
        _runs(pid, lock.program) and _same(_home(lock, _environ(pid)), home)
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit())
    )


def _runs(pid: int, program: str) -> bool:
    """Is one of its first arguments the program, or a script of that name? Node's scripts come after node and its flags."""
    arguments = _read(pid, "cmdline").split("\0")
    names = {os.path.basename(argument) for argument in arguments}
    return bool(names & {program, f"{program}.js", f"{program}.mjs"})


def _environ(pid: int) -> dict[str, str]:
    entries = (entry.partition("=") for entry in _read(pid, "environ").split("\0"))
    return {name: value for name, _, value in entries if name}


def _home(lock: StaleLock, env: Mapping[str, str]) -> str | None:
    return next((value for name in lock.homes if (value := env.get(name))), None)


def _same(one: str | None, other: str) -> bool:
    """One that tells no home might have this one."""
    return one is None or os.path.realpath(one) == os.path.realpath(other)


def _read(pid: int, name: str) -> str:
    """Empty for a process that is gone, and for another user's environment."""
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
