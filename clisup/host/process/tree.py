"""Finding and ending the processes of a run whose keeper is gone, by the marker in their environment.

A process that cleared its environment is not found this way: by its cgroup, where there is one, or by `clisup.daemon.runs.orphans`.
Every signal goes through a pidfd that was opened before the marker was read: a reused pid is
never hit.
"""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import trio

from clisup.host.process import cgroups

__all__ = ["KILL_LIMIT_S", "KILL_PAUSE_S", "marked_processes", "marked_runs", "name_of", "run_of", "sweep"]

KILL_LIMIT_S = 2.0
KILL_PAUSE_S = 0.002
EMPTY_LOOKS = 8  # in a row: a tree that re-forks is between two processes at the moment of many a look
_SESSION_MARK = re.compile(rb"CLISUP_SESSION=([0-9a-f-]{36})")
_RUN_MARK = re.compile(rb"CLISUP_RUN=([0-9]{1,18})")


def marked_processes(session_id: str, run: int) -> list[tuple[int, str]]:
    """(pid, comm) of every living process that carries this run's markers."""
    wanted = {f"CLISUP_SESSION={session_id}".encode(), f"CLISUP_RUN={run}".encode()}
    return [(pid, name_of(pid)) for pid in _pids() if wanted <= _environ(pid)]


def marked_runs() -> set[tuple[str, int]]:
    """(session, run) of every living process that carries markers, whoever's they are.

    Any process can carry what it likes: only what a run of clisup can be called is taken, for paths are made of it.
    """
    return {run for pid in _pids() if (run := run_of(pid)) is not None}


def run_of(pid: int) -> tuple[str, int] | None:
    """Return (session, run) by the markers in a process's environment; None without both of them."""
    environ = _environ(pid)
    sessions = [match[1].decode() for entry in environ if (match := _SESSION_MARK.fullmatch(entry))]
    runs = [int(match[1]) for entry in environ if (match := _RUN_MARK.fullmatch(entry))]
    return (sessions[0], runs[0]) if sessions and runs else None


async def sweep(
    session_id: str, run: int, *, keeper: int | None = None, cgroup: str | None = None
) -> list[dict[str, Any]]:
    """SIGKILL what is left of a run, until many looks found nothing or `KILL_LIMIT_S` is over. Gives what was killed.

    `keeper` is a keeper that hangs: it goes first, and takes its CLI with it (PR_SET_PDEATHSIG). `cgroup` is the run's own:
    nothing in it escapes; without one a process that cleared its environment does.
    """
    killed: dict[int, str] = {}
    if keeper is not None:
        _kill(keeper, frozenset())
    wanted = frozenset({f"CLISUP_SESSION={session_id}".encode(), f"CLISUP_RUN={run}".encode()})
    with trio.move_on_after(KILL_LIMIT_S):
        if cgroup is not None:
            killed |= await _empty(cgroup)
        empty = 0
        while empty < EMPTY_LOOKS:
            found = {pid: name_of(pid) for pid in _pids() if wanted <= _environ(pid) and _kill(pid, wanted)}
            killed |= found
            empty = 0 if found else empty + 1
            await trio.sleep(KILL_PAUSE_S if empty else 0)
    return [{"pid": pid, "comm": comm} for pid, comm in killed.items()]


async def _empty(cgroup: str) -> dict[int, str]:
    """Kill a cgroup until the kernel says that nobody lives in it. Gives those seen there."""
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
    """The variables a process was started with; empty for a zombie, a kernel thread or another user's process."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return set(file.read().split(b"\0"))
    except OSError:
        return set()


def name_of(pid: int) -> str:
    """Return the kernel's name of a process, "?" where it has ended."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "?"
