"""Facts of the machine: directories, kernel, mounts; and the check of the system's requirements at the start."""

from __future__ import annotations

import os
import platform
import pwd
import re
import stat
import sys
from typing import NamedTuple

from clisup.errors import ClisupError, ConfigurationError
from clisup.host.safe_paths import problem_of
from clisup.ops.doctor import NEEDED_KERNEL, DirectoryFacts


def directory_facts(path: str, *, entries: bool = False) -> DirectoryFacts:
    """Return the directory's facts for this process, without a `mode` if the path is no directory or cannot be read.

    With `entries`, an entry of another user in the directory is a problem, too.
    """
    try:
        problem = problem_of(path, entries=entries)
        status = os.stat(path)
    except FileNotFoundError:
        return DirectoryFacts(path, problem=problem, obstacle=_obstacle(path))
    except OSError as error:
        return DirectoryFacts(path, obstacle=error.strerror or type(error).__name__)
    except ValueError as error:
        return DirectoryFacts(path, obstacle=str(error))
    if not stat.S_ISDIR(status.st_mode):
        return DirectoryFacts(path, obstacle="the path is not a directory")
    return DirectoryFacts(
        path,
        mode=stat.S_IMODE(status.st_mode),
        readable=os.access(path, os.R_OK | os.X_OK),
        writable=os.access(path, os.W_OK | os.X_OK),
        problem=problem,
        free_bytes=_free(path),
        file_system=_file_system(path),
    )


def _obstacle(path: str) -> str | None:
    """Return why a missing directory cannot be created, or None."""
    above = os.path.dirname(os.path.realpath(path))
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        return f"{above} is not a directory"
    return None if os.access(above, os.W_OK | os.X_OK) else f"this user cannot write to {above}"


def user_name() -> str:
    """Return the name of this process's user, or the uid if the user has no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def kernel_version(release: str | None = None) -> tuple[int, int]:
    """Return the version, such as `(6, 1)`, or `(0, 0)` if it cannot be read."""
    match = re.match(r"(\d+)\.(\d+)", release or platform.release())
    return (int(match[1]), int(match[2])) if match else (0, 0)


def missing_features() -> tuple[str, ...]:
    """Return the kernel features that clisup needs and does not get.

    A sandbox may forbid a feature that the version has.
    """
    missing = []
    if kernel_version() < NEEDED_KERNEL:
        missing.append("close_range (5.10)")
    for name, attempt in (("pidfd_open", _pidfd), ("memfd_create", _memfd)):
        try:
            os.close(attempt())
        except OSError as error:
            missing.append(f"{name} ({error.strerror})")
    if not os.path.isdir("/proc/self/fd"):
        missing.append("/proc")
    return tuple(missing)


def hides_processes() -> bool:
    """Tell whether /proc hides processes from this one.

    The cause is a mount with hidepid= (proc(5)), or ProtectProc= (systemd.exec(5)).
    """
    try:
        with open("/proc/1/stat", "rb"):
            return False
    except OSError:
        return True


def _pidfd() -> int:
    return os.pidfd_open(os.getpid())


def _memfd() -> int:
    return os.memfd_create("clisup-doctor", os.MFD_CLOEXEC)


def _free(path: str) -> int | None:
    try:
        disk = os.statvfs(path)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize


def _file_system(path: str) -> str | None:
    """Return the type of the mount that holds the path: the longest mount point above it, and of two the later one."""
    wanted = os.path.realpath(path) + "/"
    best, found = "", None
    for point, kind in mounts():
        above = point.rstrip("/") + "/"
        if wanted.startswith(above) and len(above) >= len(best):
            best, found = above, kind
    return found


_ESCAPED = re.compile(rb"\\([0-7]{3})")


class Mount(NamedTuple):
    """Mount: its mount point, and the type of its file system."""

    point: str
    kind: str


def mounts() -> list[Mount]:
    """Return the mounts in the order of the kernel (proc(5), mountinfo), or an empty list if they cannot be read."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            return [mount for line in file if (mount := _mount(line)) is not None]
    except OSError:
        return []


def _mount(line: bytes) -> Mount | None:
    # Any user can mount, and so choose a name. The kernel escapes only space, tab, line feed and backslash in it.
    before, _, after = line.partition(b" - ")
    fields, kind = before.split(b" "), after.split(b" ", 1)[0]
    if len(fields) < 5:
        return None
    point = _ESCAPED.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), fields[4])
    return Mount(os.fsdecode(point), os.fsdecode(kind))


def check_system(*, system: str | None = None, release: str | None = None) -> None:
    """Raise `ConfigurationError(unsupported_system)` that names a missing requirement. The arguments are for tests."""
    system = system or sys.platform
    if not system.startswith("linux"):
        raise _refusal(f"this system is {system!r}, and clisup needs Linux (pidfd, /proc, POSIX locks)")
    version = kernel_version(release)
    if version < NEEDED_KERNEL:
        raise _refusal(
            f"the kernel is {version[0]}.{version[1]}, and clisup needs 5.10 or newer (pidfd_open, close_range)"
        )
    if not os.path.isdir("/proc/self/fd"):
        raise _refusal("/proc is not mounted")


def _refusal(reason: str) -> ClisupError:
    return ConfigurationError(
        f"cannot start, because {reason}",
        kind="unsupported_system",
        hint="run it on a Linux machine with a current kernel",
    )
