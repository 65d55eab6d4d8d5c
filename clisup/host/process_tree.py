"""Finding and ending the processes of a run whose keeper is gone, by the marker in their environment.

A process that cleared its environment is not found this way; the event says that the keeper was gone, and issue B brings the
cgroup that nothing escapes. Every signal goes through a pidfd that was opened before the marker was read: a reused pid is
never hit.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import trio

__all__ = ["marked_processes", "sweep"]

SWEEP_LIMIT_S = 2.0
SWEEP_PAUSE_S = 0.01


def marked_processes(session_id: str, run: int) -> list[tuple[int, str]]:
    """(pid, comm) of every living process that carries this run's markers."""
    wanted = {f"CLISUP_SESSION={session_id}".encode(), f"CLISUP_RUN={run}".encode()}
    return [(pid, _comm(pid)) for pid in _pids() if wanted <= _environ(pid)]


async def sweep(session_id: str, run: int, *, keeper: int | None = None) -> list[dict[str, Any]]:
    """SIGKILL what is left of a run, again until nothing is found or `SWEEP_LIMIT_S` is over. Gives what was killed.

    `keeper` is a keeper that hangs: it goes first, and takes its CLI with it (PR_SET_PDEATHSIG).
    """
    killed: dict[int, str] = {}
    if keeper is not None:
        _kill(keeper, frozenset())
    wanted = frozenset({f"CLISUP_SESSION={session_id}".encode(), f"CLISUP_RUN={run}".encode()})
    with trio.move_on_after(SWEEP_LIMIT_S):
        while found := marked_processes(session_id, run):
            killed |= {pid: comm for pid, comm in found if _kill(pid, wanted)}
            await trio.sleep(SWEEP_PAUSE_S)
    return [{"pid": pid, "comm": comm} for pid, comm in killed.items()]


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


def _comm(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "?"
