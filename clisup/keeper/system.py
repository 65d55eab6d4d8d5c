"""System calls that Python 3.11 lacks, small files of /proc, and processes as /proc shows them."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import struct
from contextlib import suppress
from typing import Any

BLOCK = 64 * 1024  # the size of a pipe: a larger read returns no more
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 4, 15, 36
SYS_CLONE3 = 435  # the same on every architecture
CLONE_INTO_CGROUP = 1 << 33
ANCESTORS_MAX = 1000  # of a peer: no daemon is nested deeper

UNLIMITED = resource.RLIM_INFINITY
# A CLI starts with this hard limit slightly lowered. Every process below the CLI inherits the limit, and no process can
# raise it without CAP_SYS_RESOURCE. The limit only affects processes with real-time scheduling, after 146,000 years.
MARK = resource.RLIMIT_RTTIME
MARKED = 1 << 62
OWN_LIMIT = resource.getrlimit(MARK)[1]  # read before any CLI runs, because a tool of the same user may lower ours

_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4  # prctl is variadic and reads longs
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
_libc.syscall.restype = ctypes.c_long


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process. Raises `OSError`."""
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def set_process_name(name: str) -> None:
    """Set the process name for `ps -o comm` and `pgrep`."""
    text = ctypes.create_string_buffer(name.encode())
    prctl(PR_SET_NAME, ctypes.addressof(text))


def fork_into(cgroup: str) -> int:
    """Fork, with the child born in a cgroup. Raises `OSError` if the kernel is older than 5.7 or a seccomp filter refuses.

    Moving a process by cgroup.procs takes the kernel 5 ms or more. This fork bypasses Python's `os.fork`: the child has
    one thread and goes straight to the exec.
    """
    directory = os.open(cgroup, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # struct clone_args of clone(2): flags, three unused fields, exit_signal, five unused fields, cgroup
        arguments = struct.pack("11Q", CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, directory)
        pid: int = _libc.syscall(ctypes.c_long(SYS_CLONE3), arguments, ctypes.c_long(len(arguments)))
        if pid < 0:
            raise OSError(ctypes.get_errno(), "clone3")
        return pid
    finally:
        os.close(directory)


def allocate(fd: int, size: int) -> None:
    """Reserve disk space for the first `size` bytes of a file. A write reserves no space before the sync."""
    if _libc.fallocate(fd, 0, 0, size) != 0:
        if (number := ctypes.get_errno()) != errno.EOPNOTSUPP:
            raise OSError(number, "fallocate")
        write_all(fd, b" " * size)
        os.fsync(fd)


def close_descriptors(first: int) -> None:
    """Close every descriptor from `first` on."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) >= first:
            with suppress(OSError):  # the listing's own descriptor is closed already
                os.close(int(name))


# --- files ------------------------------------------------------------------------------------------------------------


def read_file(path: str) -> bytes:
    """Return the content of a file of /proc or of a cgroup."""
    with open(path, "rb") as file:
        return file.read()


def write_file(path: str, text: str) -> None:
    """Write to an existing file of /proc or of a cgroup."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data` to a blocking descriptor."""
    while data:
        data = data[os.write(fd, data) :]


# --- processes --------------------------------------------------------------------------------------------------------


class ProcessStat:
    """Process as /proc showed it. The pair of pid and start time names a process uniquely; the kernel reuses pids."""

    def __init__(self, pid: int, data: bytes) -> None:
        head, _, tail = data.rpartition(b")")  # a command name may hold ") "
        fields = tail.split()
        self.pid, self.ppid, self.pgrp, self.start = pid, int(fields[1]), int(fields[2]), int(fields[19])
        self.state = fields[0].decode()
        self.comm = head.partition(b"(")[2].decode(errors="backslashreplace")

    @property
    def alive(self) -> bool:
        """Tell whether the process is no zombie."""
        return self.state not in "ZX"

    def listed(self) -> dict[str, Any]:
        """Return the entry for the exit record, without the command line, which may hold secrets."""
        return {"pid": self.pid, "start_time": self.start, "comm": self.comm, "state": self.state}


def read_stat(pid: int) -> ProcessStat | None:
    """Return the process, or None after its end."""
    try:
        return ProcessStat(pid, read_file(f"/proc/{pid}/stat"))
    except (OSError, IndexError, ValueError):
        return None


def _hidden_stat(pid: int, ppid: int) -> ProcessStat | None:
    """Describe a living child that /proc hides, as hidepid= hides an undumpable process. Return None after its end."""
    try:
        os.kill(pid, 0)
        return ProcessStat(pid, b"(?) ? %d %d" % (ppid, os.getpgid(pid)) + b" 0" * 17)
    except OSError:
        return None


def _children_of(pid: int) -> list[int]:
    """Return the children of all threads, from the kernel's own list."""
    found = []
    for tid in os.listdir(f"/proc/{pid}/task"):
        found += [int(child) for child in read_file(f"/proc/{pid}/task/{tid}/children").split()]
    return found


def _children_by_scan() -> dict[int, list[int]]:
    """Return the children of every process, for kernels without CONFIG_PROC_CHILDREN."""
    table: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := read_stat(int(name))):
            table.setdefault(stat.ppid, []).append(stat.pid)
    return table


def descendants(root: int) -> list[ProcessStat]:
    """Return all processes below `root`, parents before children, zombies included.

    One pass may miss a fork that is under way.
    """
    try:
        _children_of(root)
        table = None
    except OSError:
        table = _children_by_scan()
    found, queue = [], [root]
    for pid in queue:
        try:
            children = _children_of(pid) if table is None else table.get(pid, [])
        except OSError:
            continue  # the process ended: the subreaper has its children now, and the caller looks again
        stats = [stat for child in children if (stat := read_stat(child) or _hidden_stat(child, pid)) is not None]
        found += stats
        queue += [stat.pid for stat in stats]
    return found


def send_signal(stat: ProcessStat, number: int) -> None:
    """Signal exactly the process that `stat` describes.

    The pidfd pins the process, then the start time proves the identity. For a hidden process the parent's list of children
    proves the identity.
    """
    try:
        fd = os.pidfd_open(stat.pid)
    except OSError:
        return
    try:
        now = read_stat(stat.pid) if stat.start else _hidden_stat(stat.pid, stat.ppid)
        same = now is not None and now.start == stat.start
        if same and (stat.start or stat.pid in _children_of(stat.ppid)):
            signal.pidfd_send_signal(fd, number)
    except OSError:
        pass  # the process or its parent has ended: the next pass finds an orphan below another parent
    finally:
        os.close(fd)


# --- the mark of a CLI's processes ------------------------------------------------------------------------------------


def lower_mark() -> None:
    """Lower the limit RLIMIT_RTTIME, which marks the processes that a CLI started, for keepers and daemons."""
    soft, hard = resource.getrlimit(MARK)
    limit = MARKED if hard == UNLIMITED else max(0, hard - 1)
    resource.setrlimit(MARK, (limit if soft == UNLIMITED else min(soft, limit), limit))


def came_from(pid: int, roots: tuple[int, ...]) -> bool:
    """Tell whether `pid` is in `roots`, or may come from a process in `roots`.

    clisup/host/sockets.py has the same rule.
    """
    for _ in range(ANCESTORS_MAX):
        marked = _is_marked(pid) if pid > 0 else None
        if pid <= 0 or pid in roots or marked:
            return True
        if pid == 1:
            return False
        stat = read_stat(pid)
        if stat is None:
            return _suspect_unseen(pid, marked)
        pid = stat.ppid or 1  # a process without a parent here came from outside of this pid namespace
    return True


def _suspect_unseen(pid: int, marked: bool | None) -> bool:
    """Judge a process that /proc hides. With hidepid= the process may be the daemon, undumpable and without a mark."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return False  # another user's process cannot belong to the run
    except OSError:
        return True
    return marked is None


def _is_marked(pid: int) -> bool | None:
    """Tell whether a keeper started this process or an ancestor. Return None if the kernel does not tell."""
    try:
        limit = resource.prlimit(pid, MARK)[1]
    except OSError:
        return None
    return limit != UNLIMITED and (OWN_LIMIT == UNLIMITED or limit < OWN_LIMIT)
