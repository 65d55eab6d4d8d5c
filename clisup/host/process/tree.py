"""Search and kill of the processes of a run without a keeper, by the marker in their environment.

A process that cleared its environment is not found this way. The cgroup, if any, finds such a process, or
`clisup.daemon.runs.orphans`. Every signal goes through a pidfd, opened before the read of the marker. The signal
therefore never hits a reused pid.
"""

from __future__ import annotations

import os
import re
import signal

import trio

from clisup.host.process import cgroups
from clisup.model.structs import JsonObject

KILL_LIMIT_S = 2.0
KILL_PAUSE_S = 0.002
EMPTY_LOOKS = 8  # in a row: a look often falls between two processes of a tree that re-forks
_SESSION_MARK = re.compile(rb"CLISUP_SESSION=([0-9a-f-]{36})")
_RUN_MARK = re.compile(rb"CLISUP_RUN=([0-9]{1,18})")


def marked_runs() -> set[tuple[str, int]]:
    """Return the (session, run) of every live process that carries markers, of any user.

    A process can carry any text as a marker. Only valid names of clisup's runs count, because paths are built from the
    names.
    """
    return {run for pid in _pids() if (run := run_of(pid)) is not None}


def run_of(pid: int) -> tuple[str, int] | None:
    """Return the (session, run) of the markers in a process's environment, or None without both markers."""
    environ = _environ(pid)
    sessions = [match[1].decode() for entry in environ if (match := _SESSION_MARK.fullmatch(entry))]
    runs = [int(match[1]) for entry in environ if (match := _RUN_MARK.fullmatch(entry))]
    return (sessions[0], runs[0]) if sessions and runs else None


async def sweep(session_id: str, run: int, *, keeper: int | None = None, cgroup: str | None = None) -> list[JsonObject]:
    """Send SIGKILL to the remains of a run and return the killed processes.

    The sweep ends after many empty looks, or after `KILL_LIMIT_S`. `keeper` is a hanging keeper: the sweep kills it first,
    and the CLI dies with the keeper (PR_SET_PDEATHSIG). `cgroup` is the run's own cgroup, from which nothing escapes.
    Without a cgroup, a process that cleared its environment escapes.
    """
    killed: dict[int, str] = {}
    if keeper is not None:
        _kill(keeper, frozenset())
    wanted = frozenset({f"CLISUP_SESSION={session_id}".encode(), f"CLISUP_RUN={run}".encode()})
    with trio.move_on_after(KILL_LIMIT_S):
        if cgroup is not None:
            killed |= await _empty(cgroup)
        await _kill_all(wanted, killed)
    return [{"pid": pid, "comm": comm} for pid, comm in killed.items()]


async def _kill_all(wanted: frozenset[bytes], killed: dict[int, str]) -> None:
    """Kill the processes with these variables until many looks in a row find none. Add them to `killed`."""
    empty = 0
    while empty < EMPTY_LOOKS:
        found: dict[int, str] = {}
        for pid in _pids():
            if wanted <= _environ(pid):
                name = name_of(pid)  # a process that is killed and reaped has no name
                if _kill(pid, wanted):
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


def _kill(pid: int, wanted: frozenset[bytes]) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not wanted <= _environ(pid):
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environ(pid: int) -> set[bytes]:
    """Return the variables a process was started with.

    The set is empty for a zombie, a kernel thread or another user's process.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return set(file.read().split(b"\0"))
    except OSError:
        return set()


def name_of(pid: int) -> str:
    """Return the kernel's name of a process, or "?" after its end."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "?"
