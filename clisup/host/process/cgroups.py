"""Cgroups for runs, where the daemon may create them. `cgroup.kill` then reaches every process of the tree.

A process cannot escape this kill. The module uses cgroup v2 only (kernel 5.14 for `cgroup.kill`). Root can create a
child cgroup, and so can a user with a delegated subtree (`Delegate=yes` in the unit). Elsewhere runs have no cgroup.
The daemon never enables a controller: with subtree controllers and live keepers, systemd 252 cannot start the service
again.
"""

from __future__ import annotations

import os
import re
from functools import cache

from clisup.host.machine import mounts
from clisup.host.process.markers import RunMarker
from clisup.host.shortage import raise_shortage

_PREFIX = "clisup-"
_OURS = re.compile(r"clisup-(?:([0-9a-f]+\.[0-9a-f]+)-)?([0-9a-f-]{36})-([0-9]+)")


class CgroupHome:
    """Cgroups of this daemon's runs, below the daemon's own cgroup.

    `available` is false if the daemon cannot create any.
    """

    def __init__(self, base: str | None) -> None:
        self._base = base

    @classmethod
    def find(cls) -> CgroupHome:
        """Find the daemon's own cgroup.

        The cgroup must be a v2 cgroup in which the daemon can create, use and remove a child.
        """
        base = _own_cgroup()
        return cls(base if base and _works(base) else None)

    @property
    def available(self) -> bool:
        """Tell whether the daemon can create cgroups."""
        return self._base is not None

    @property
    def path(self) -> str | None:
        """Return the directory, for status and doctor."""
        return self._base

    def make(self, mark: RunMarker) -> str | None:
        """Create the cgroup of a run and return the path, or None after a failure."""
        if self._base is None:
            return None
        path = os.path.join(self._base, _names(mark)[0])
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:
            pass  # a previous daemon died between here and the run's start
        except OSError:
            return None
        return path

    def of(self, mark: RunMarker) -> str | None:
        """Return the existing cgroup of a run, created by this or a previous daemon, or None."""
        if self._base is None:
            return None
        paths = (os.path.join(self._base, name) for name in _names(mark))
        return next((path for path in paths if os.path.isdir(path)), None)

    def leftovers(self, state: str) -> list[tuple[str, int]]:
        """Return the (session, run) of every existing cgroup of a run of the state directory with this id."""
        if self._base is None:
            return []
        found = [_OURS.fullmatch(name) for name in os.listdir(self._base)]
        return [(match[2], int(match[3])) for match in found if match and match[1] in (None, state)]


def _names(mark: RunMarker) -> tuple[str, str]:
    """Return the name of a run's cgroup, and the name that clisup 0.1.0 gave."""
    return f"{_PREFIX}{mark.state}-{mark.session}-{mark.run}", f"{_PREFIX}{mark.session}-{mark.run}"


def is_of(path: str, mark: RunMarker) -> bool:
    """Tell whether a recorded path is the cgroup of this run.

    A CLI's tool can write the record, a copied record names the original's cgroup, and the daemon kills what lives in the cgroup.
    """
    mount = _mount_point()
    named = os.path.basename(path) in _names(mark)
    return named and mount is not None and os.path.realpath(path).startswith(f"{mount}/") and not os.path.islink(path)


def members(path: str) -> list[int]:
    """Return the pids in a cgroup and all cgroups below."""
    pids: list[int] = []
    for directory, _, files in os.walk(path):
        if "cgroup.procs" in files:
            pids += _numbers(os.path.join(directory, "cgroup.procs"))
    return pids


def kill(path: str) -> bool:
    """Send SIGKILL to every process in the cgroup, including forks made meanwhile.

    Return False if the kernel cannot.
    """
    return _write(os.path.join(path, "cgroup.kill"), "1")


def populated(path: str) -> bool:
    """Tell whether a process lives in the cgroup. False proves that the whole tree is dead."""
    try:
        with open(os.path.join(path, "cgroup.events"), encoding="ascii") as file:
            return "populated 1" in file.read()
    except OSError as error:
        raise_shortage(error)
        return False


def limit(path: str, *, memory: int, pids: int) -> list[str]:
    """Set the limits that the cgroup's controllers offer, and return the names of the written files.

    A limit of 0 means no limit. The function enables no controller. The files exist only if the owner of the
    delegated subtree enabled the controllers.
    """
    wanted = {"memory.max": memory, "pids.max": pids}
    return [name for name, value in wanted.items() if value and _write(os.path.join(path, name), str(value))]


def oom_kills(path: str) -> int:
    """Return the number of kills in the cgroup for lack of memory, or 0 without the memory controller."""
    try:
        with open(os.path.join(path, "memory.events"), encoding="ascii") as file:
            counts = dict(line.split() for line in file)
    except (OSError, ValueError):
        return 0
    return int(counts.get("oom_kill", 0))


def own_limit(name: str) -> int | None:
    """Return the least limit of this name ("pids.max") of the daemon's own cgroup and those above, or None without one."""
    path, mount, found = _own_cgroup(), _mount_point(), list[int]()
    while path is not None and mount is not None and path.startswith(mount):
        try:
            with open(os.path.join(path, name), encoding="ascii") as file:
                text = file.read().strip()
        except OSError:  # the root, or a cgroup without the controller
            text = ""
        found += [int(text)] if text.isdecimal() else []
        path = os.path.dirname(path) if path != mount else None
    return min(found, default=None)


def remove(path: str) -> bool:
    """Remove an empty cgroup and all cgroups below.

    Return False while a process lives in the cgroup.
    """
    try:
        for directory, _, _ in os.walk(path, topdown=False):
            os.rmdir(directory)
    except OSError:
        return False
    return True


def _write(path: str, text: str) -> bool:
    """Write to a file of the kernel, and never create one.

    Return False if the file is missing or the kernel refuses.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        raise_shortage(error)
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


@cache
def _mount_point() -> str | None:
    """Return where the cgroups are mounted. Asked once: a machine does not move them."""
    return next((mount.point for mount in mounts() if mount.kind == "cgroup2"), None)


def _own_cgroup() -> str | None:
    mount = _mount_point()
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
    """Tell whether a child can be created, killed and removed."""
    path = os.path.join(base, f"{_PREFIX}probe-{os.getpid()}")
    try:
        os.mkdir(path, 0o755)
    except OSError:
        return False
    try:
        # To move a process down, the daemon must also be able to write the list of the common ancestor (cgroups(7),
        # delegation).
        needed = (os.path.join(path, "cgroup.kill"), os.path.join(base, "cgroup.procs"))
        return all(os.access(file, os.W_OK) for file in needed)
    finally:
        os.rmdir(path)
