"""Orphans: processes below a CLI whose keeper was killed. The daemon is the subreaper of its tree (prctl(2)) and becomes their parent.

A keeper is the subreaper of its CLI's tree. When the keeper is killed, the kernel gives its children to the next subreaper,
which is the daemon. So an orphan is found though it left its cgroup and cleared its environment. Keepers outlive a daemon:
after the daemon's death their orphans go to init, where only cgroup and environment tell them (docs/decisions/0058).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import trio

from clisup.errors import WorldError
from clisup.host.process.tree import KILL_LIMIT_S, KILL_PAUSE_S, name_of, run_of
from clisup.host.sockets import is_marked
from clisup.store.session_dir import SessionDir

__all__ = ["Orphans", "children_of_this_process"]

REAP_PAUSE_S = 5.0
"""Between two looks for zombies. Everybody who starts a process here reaps it at once: a zombie seen twice was adopted."""


def children_of_this_process() -> list[int]:
    """Return the pids of all children, zombies included.

    The kernel's own list names them: a keeper cannot be dumped, so hidepid= (proc(5)) hides its directory in /proc.
    """
    found: list[int] = []
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
        except FileNotFoundError:  # a thread that has ended, or a kernel without CONFIG_PROC_CHILDREN
            continue
    return found


class Orphans:
    """Orphans of one daemon. `keeps` tells whether a backend is configured with `orphans = "keep"` now."""

    def __init__(self, state_dir: str, keeps: Callable[[], bool]) -> None:
        self._state_dir = state_dir
        self._keeps = keeps

    async def end(self) -> list[dict[str, Any]]:
        """SIGKILL the orphans of killed keepers and their descendants, and return `{pid, comm}` of each.

        An orphan has the mark of a keeper's CLI (`is_marked`), which the daemon's own children do not have. A process that
        `orphans = "keep"` let go has it, too, so it is left alone: its environment names its run, and the run's exit record
        says so. One without a name is left alone while any backend keeps orphans. Returns after `KILL_LIMIT_S` at the latest.
        """
        killed: dict[int, str] = {}
        with trio.move_on_after(KILL_LIMIT_S):
            # A killed orphan gives its children to the daemon before it becomes a zombie: none left alive means all gone.
            while alive := [pid for pid in children_of_this_process() if self._is_to_end(pid)]:
                for pid in alive:
                    killed.setdefault(pid, name_of(pid))
                    os.kill(pid, signal.SIGKILL)  # nobody else has reaped it: it is this process's own child
                await trio.sleep(KILL_PAUSE_S)
        for pid in children_of_this_process():
            if is_marked(pid) and _is_zombie(pid):
                _reap(pid)
        return [{"pid": pid, "comm": comm} for pid, comm in killed.items()]

    def _is_to_end(self, pid: int) -> bool:
        if _is_zombie(pid) or not is_marked(pid):
            return False
        if (run := run_of(pid)) is None:
            return not self._keeps()
        try:
            return not (SessionDir(self._state_dir, run[0]).run(run[1]).exit_record() or {}).get("kept")
        except WorldError:
            return False  # the disk does not tell whether the run let it go

    async def reap(self) -> None:
        """Reap adopted zombies until cancelled: orphans, and keepers that have lost their zygote or an earlier daemon in place."""
        before = set[int]()
        while True:
            zombies = {pid for pid in children_of_this_process() if _is_zombie(pid)}
            for pid in zombies & before:
                _reap(pid)
            before = zombies - before
            await trio.sleep(REAP_PAUSE_S)


def _is_zombie(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True  # reaped meanwhile


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
