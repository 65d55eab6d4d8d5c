"""Check of the system's requirements, before anything is touched."""

from __future__ import annotations

import os
import platform
import re
import sys

from clisup.errors import ClisupError, ConfigurationError

__all__ = ["check_system"]

MIN_KERNEL = (5, 10)  # pidfd_open and close_range


def check_system(*, system: str | None = None, release: str | None = None) -> None:
    """Raise `ConfigurationError(unsupported_system)` that names a missing requirement. The arguments are for tests."""
    system = system or sys.platform
    if not system.startswith("linux"):
        raise _refusal(f"this system is {system!r}, and clisup needs Linux (pidfd, /proc, POSIX locks)")
    match = re.match(r"(\d+)\.(\d+)", release or platform.release())
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if version < MIN_KERNEL:
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
