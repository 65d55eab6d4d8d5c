"""A cgroup for each run, where one can be made: then `cgroup.kill` reaches every process of the tree, whatever it did.

cgroup v2 only (kernel 5.14 for `cgroup.kill`). A child cgroup can be made by root, by a user whose subtree was delegated
(`Delegate=yes` in the unit), and nowhere else: then runs go without. No controller is ever enabled: with subtree controllers
and keepers alive systemd 252 cannot start the service again.
"""

from __future__ import annotations

import os
import re

from clisup.host.mounts import mounts

__all__ = ["CgroupHome", "kill", "limit", "members", "oom_kills", "populated", "remove"]

_PREFIX = "clisup-"
_OURS = re.compile(r"clisup-([0-9a-f-]{36})-([0-9]+)")


class CgroupHome:
    """Where this daemon makes its runs' cgroups: below its own. `available` is false where that cannot be."""

    def __init__(self, base: str | None) -> None:
        self._base = base

    @classmethod
    def find(cls) -> CgroupHome:
        """The daemon's own cgroup, if it is one of v2 and lets us make, use and remove a child."""
        base = _own_cgroup()
        return cls(base if base and _works(base) else None)

    @property
    def available(self) -> bool:
        return self._base is not None

    @property
    def path(self) -> str | None:
        """The directory, for status and doctor."""
        return self._base

    def make(self, session_id: str, run: int) -> str | None:
        """A fresh cgroup for a run, or None where none can be made."""
        if self._base is None:
            return None
        path = os.path.join(self._base, f"{_PREFIX}{session_id}-{run}")
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:
            pass  # a daemon before this one died between here and the run's start
        except OSError:
            return None
        return path

    def of(self, session_id: str, run: int) -> str | None:
        """The cgroup of a run that was made before, by this daemon or one before it; None where there is none."""
        if self._base is None:
            return None
        path = os.path.join(self._base, f"{_PREFIX}{session_id}-{run}")
        return path if os.path.isdir(path) else None

    def leftovers(self) -> list[tuple[str, int]]:
        """(session, run) of every run's cgroup that still exists."""
        if self._base is None:
            return []
        found = [_OURS.fullmatch(name) for name in os.listdir(self._base)]
        return [(match[1], int(match[2])) for match in found if match]


def members(path: str) -> list[int]:
    """The pids in a cgroup and below it."""
    pids: list[int] = []
    for directory, _, files in os.walk(path):
        if "cgroup.procs" in files:
            pids += _numbers(os.path.join(directory, "cgroup.procs"))
    return pids


def kill(path: str) -> bool:
    """SIGKILL for every process in the cgroup, those it forks meanwhile included. False where the kernel cannot."""
    return _write(os.path.join(path, "cgroup.kill"), "1")


def populated(path: str) -> bool:
    """Does a process live in it? `False` is the death certificate of the whole tree."""
    try:
        with open(os.path.join(path, "cgroup.events"), encoding="ascii") as file:
            return "populated 1" in file.read()
    except OSError:
        return False


def limit(path: str, *, memory: int, pids: int) -> list[str]:
    """Set what the cgroup's controllers offer (0: no limit); gives the names of the files that were set.

    Nothing is enabled for it: the files are there only where whoever delegated the subtree has enabled the controllers.
    """
    wanted = {"memory.max": memory, "pids.max": pids}
    return [name for name, value in wanted.items() if value and _write(os.path.join(path, name), str(value))]


def oom_kills(path: str) -> int:
    """How often the kernel killed in it for want of memory; 0 where the memory controller is not there."""
    try:
        with open(os.path.join(path, "memory.events"), encoding="ascii") as file:
            counts = dict(line.split() for line in file)
    except (OSError, ValueError):
        return 0
    return int(counts.get("oom_kill", 0))


def remove(path: str) -> bool:
    """Remove an empty cgroup and what the tree made below it; False while something lives in it."""
    try:
        for directory, _, _ in os.walk(path, topdown=False):
            os.rmdir(directory)
    except OSError:
        return False
    return True


def _write(path: str, text: str) -> bool:
    """Write to a file of the kernel's; False where it is not there or refuses. Never makes one."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(fd, text.encode())
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _numbers(path: str) -> list[int]:
    try:
        with open(path, encoding="ascii") as file:
            return [int(line) for line in file if line.strip() != "0"]
    except OSError:
        return []


def _own_cgroup() -> str | None:
    mount = next((mount.point for mount in mounts() if mount.kind == "cgroup2"), None)
    try:
        with open("/proc/self/cgroup", "rb") as file:
            own = next((line[3:].rstrip(b"\n") for line in file if line.startswith(b"0::")), None)
    except OSError:
        return None
    if mount is None or own is None:
        return None
    path = os.path.normpath(mount + os.fsdecode(own))
    return path if os.path.isdir(path) else None


def _works(base: str) -> bool:
    """Can a child be made, does it take a kill, and can it be removed?"""
    path = os.path.join(base, f"{_PREFIX}probe-{os.getpid()}")
    try:
        os.mkdir(path, 0o755)
    except OSError:
        return False
    try:
        # To move a process down, the common ancestor's list has to be writable, too (cgroups(7), delegation).
        needed = (os.path.join(path, "cgroup.kill"), os.path.join(base, "cgroup.procs"))
        return all(os.access(file, os.W_OK) for file in needed)
    finally:
        os.rmdir(path)
