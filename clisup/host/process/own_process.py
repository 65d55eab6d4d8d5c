"""The daemon's own process: hardening, and resources from /proc. The import of psutil would take 30 ms.

PR_SET_DUMPABLE=0 closes /proc/<daemon>/{environ,mem,fd} to all but root, children of the same uid included.
`clisup.host.process.carrying` has emptied the environment that /proc showed before.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
import signal

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
_PAGE = os.sysconf("SC_PAGE_SIZE")
NOFILE_WANTED = 65_536  # four descriptors a running session, one a subscriber


def harden() -> None:
    """Harden this process: undumpable, no core, private files.

    The process also becomes a subreaper with ordinary signals and enough descriptors. A SIGABRT, which a watchdog
    sends, leaves a traceback on stderr.
    """
    faulthandler.enable(2)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # clisup.daemon.runs.orphans gives the reason
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o077)
    os.chdir("/")
    # An inherited SIG_IGN for SIGCHLD makes every exit code read as 0 (measured with subprocess and trio).
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGHUP})  # until `let_hangups_in`
    signal.signal(signal.SIGHUP, lambda *_: None)  # after the daemon's own handler has gone
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = NOFILE_WANTED if hard == resource.RLIM_INFINITY else min(hard, NOFILE_WANTED)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def let_hangups_in() -> None:
    """Unblock SIGHUP.

    Call this once SIGHUP has a handler: a SIGHUP sent earlier then arrives and does not end the daemon.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def resident_bytes() -> int:
    """Return the resident bytes of this process."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split(None, 2)[1]) * _PAGE


def open_descriptors() -> int:
    """Return the number of open file descriptors of this process."""
    return len(os.listdir("/proc/self/fd")) - 1  # without the descriptor that reads the directory


def machine_memory() -> int:
    """Return the memory of the machine in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * _PAGE
