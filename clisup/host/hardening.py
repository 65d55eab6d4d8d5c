"""The daemon's own process: a clean environment in /proc, no core dump, no inherited oddities.

A child of the same uid can read `/proc/<daemon>/environ`, so the daemon starts itself once more with almost nothing in it and
carries the real environment over in a memory file. PR_SET_DUMPABLE=0 then closes /proc/<daemon>/{environ,mem,fd} to
all but root.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Mapping

__all__ = ["carry_environment_over", "harden", "taken_environment"]

_FD_VARIABLE = "CLISUP_ENVIRONMENT_FD"
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TERM", "NO_COLOR", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID")
PR_SET_DUMPABLE = 4
NOFILE_WANTED = 65_536  # four descriptors a running session, one a subscriber


def carry_environment_over(argv: list[str]) -> None:
    """Execute the daemon anew with a clean environment; returns only where that has been done already."""
    if _FD_VARIABLE in os.environ:
        return
    fd = os.memfd_create("clisup-environment", 0)
    os.write(fd, json.dumps(dict(os.environ)).encode("utf-8", "surrogateescape"))
    os.set_inheritable(fd, True)
    clean = {name: os.environ[name] for name in _KEPT if name in os.environ}
    clean[_FD_VARIABLE] = str(fd)
    # -P: else `-m` would import from the directory that the daemon is started in, and that may be anybody's repository.
    os.execve(sys.executable, [sys.executable, "-P", "-m", "clisup", *argv], clean)


def taken_environment() -> Mapping[str, str]:
    """The environment that the daemon was started with. Reads the memory file once, then closes it."""
    number = os.environ.pop(_FD_VARIABLE, None)
    if number is None:
        return dict(os.environ)
    fd = int(number)
    data = os.pread(fd, os.fstat(fd).st_size, 0)
    os.close(fd)
    return dict(json.loads(data.decode("utf-8", "surrogateescape")))


def harden() -> None:
    """Undumpable, no core, private files, ordinary signals, enough descriptors."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o077)
    os.chdir("/")
    # An inherited SIG_IGN for SIGCHLD makes every exit code read as 0 (measured with subprocess and trio).
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = NOFILE_WANTED if hard == resource.RLIM_INFINITY else min(hard, NOFILE_WANTED)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
