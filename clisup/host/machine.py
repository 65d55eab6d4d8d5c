"""Facts of the machine for `clisup doctor`: directories, kernel, cgroups. Each answers at once and changes nothing."""

from __future__ import annotations

import os
import platform
import pwd
import re
import stat

from clisup.host.mounts import mounts
from clisup.host.safe_paths import problem_of
from clisup.ops.doctor import NEEDED_KERNEL, DirectoryFacts

__all__ = ["directory_facts", "hides_processes", "is_root", "kernel_version", "missing_features", "user_name"]


def directory_facts(path: str, *, entries: bool = False) -> DirectoryFacts:
    """Return the directory's facts for this process, without a `mode` if the path is no directory or cannot be read.

    With `entries`, an entry of another user in the directory is a problem, too.
    """
    try:
        problem = problem_of(path, entries=entries)
        status = os.stat(path)
    except FileNotFoundError:
        return DirectoryFacts(path, problem=problem)  # the directory would be created there
    except (OSError, ValueError):
        return DirectoryFacts(path)
    if not stat.S_ISDIR(status.st_mode):
        return DirectoryFacts(path)
    return DirectoryFacts(
        path,
        mode=stat.S_IMODE(status.st_mode),
        readable=os.access(path, os.R_OK | os.X_OK),
        writable=os.access(path, os.W_OK | os.X_OK),
        problem=problem,
        free_bytes=_free(path),
        file_system=_file_system(path),
    )


def is_root() -> bool:
    """Tell whether this process runs as root."""
    return os.geteuid() == 0


def user_name() -> str:
    """Return the name of this process's user, or the uid if the user has no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def kernel_version() -> tuple[int, int]:
    """Return the version, such as `(6, 1)`, or `(0, 0)` if it cannot be read."""
    match = re.match(r"(\d+)\.(\d+)", platform.release())
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
