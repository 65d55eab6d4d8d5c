"""Search and kill of the processes of a run without a keeper, by the marker in their environment.

A process that cleared its environment is not found this way. The cgroup, if any, finds such a process, or
`clisup.daemon.runs.orphans`. Every signal goes through a pidfd, opened before the read of the marker. The signal
therefore never hits a reused pid.
"""

from __future__ import annotations

import os
import signal

import trio

from clisup.host.process import cgroups
from clisup.host.process.markers import RunMarker, run_in
from clisup.host.shortage import raise_shortage
from clisup.model.structs import JsonObject

KILL_LIMIT_S = 2.0
KILL_PAUSE_S = 0.002
CMDLINE_LIMIT = 64 * 1024
EMPTY_LOOKS = 8  # in a row: a look often falls between two processes of a tree that re-forks


def marked_runs(state: str) -> set[tuple[str, int]]:
    """Return the (session, run) of every live process of the state directory with this id, of any user."""
    return {run for pid in _pids() if (run := run_of(pid, state)) is not None}


def run_of(pid: int, state: str) -> tuple[str, int] | None:
    """Return the (session, run) of a process, or None if the process belongs to no run of the state directory."""
    return run_in(_environ(pid), state)


async def sweep(mark: RunMarker, *, keeper: int | None = None, cgroup: str | None = None) -> list[JsonObject]:
    """Send SIGKILL to the remains of a run and return the killed processes. Raises `OSError` for a shortage.

    The sweep ends after many empty looks, or after `KILL_LIMIT_S`. `keeper` is a hanging keeper: the sweep kills it first,
    and the CLI dies with the keeper (PR_SET_PDEATHSIG). `cgroup` is the run's own cgroup, from which nothing escapes.
    Without a cgroup, a process that cleared its environment escapes.
    """
    killed: dict[int, str] = {}
    if keeper is not None and _may_be_keeper(keeper):
        _kill(keeper, None)
    with trio.move_on_after(KILL_LIMIT_S):
        if cgroup is not None:
            killed |= await _empty(cgroup)
        await _kill_all(mark, killed)
    return [{"pid": pid, "comm": comm} for pid, comm in killed.items()]


async def _kill_all(mark: RunMarker, killed: dict[int, str]) -> None:
    """Kill the processes with the marker until many looks in a row find none. Add them to `killed`."""
    empty = 0
    while empty < EMPTY_LOOKS:
        found: dict[int, str] = {}
        for pid in _pids():
            if mark.marks(_environ(pid)):
                name = name_of(pid)  # a process that is killed and reaped has no name
                if _kill(pid, mark):
                    found[pid] = name
        killed |= found
        empty = 0 if found else empty + 1
        await trio.sleep(KILL_PAUSE_S if empty else 0)


async def _empty(cgroup: str) -> dict[int, str]:
    """Kill a cgroup until the kernel reports it empty. Return the processes seen there."""
    seen: dict[int, str] = {}
    while cgroups.populated(cgroup):
        seen |= {pid: name_of(pid) for pid in cgroups.members(cgroup)}
        if not cgroups.kill(cgroup):
            break
        await trio.sleep(KILL_PAUSE_S)
    return seen


def _kill(pid: int, mark: RunMarker | None) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except OSError as error:
        raise_shortage(error)
        return False
    try:
        if mark is not None and not mark.marks(_environ(pid)):
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def _may_be_keeper(pid: int) -> bool:
    """Tell whether the holder of a keeper's lock may be a keeper, by its command line.

    A tool can put a file there that another program of the user has locked. hidepid= hides the command line of a keeper.
    """
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(CMDLINE_LIMIT).split(b"\0")
    except OSError:
        return True
    return words[1:3] == [b"-I", b"-S"] and any(b"keeper" in word for word in words[3:5])


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environ(pid: int) -> set[bytes]:
    """Return the variables a process was started with.

    The set is empty for a zombie, a kernel thread or another user's process.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return set(file.read().split(b"\0"))
    except OSError as error:
        raise_shortage(error)
        return set()


def name_of(pid: int) -> str:
    """Return the kernel's name of a process, or "?" after its end."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "?"
