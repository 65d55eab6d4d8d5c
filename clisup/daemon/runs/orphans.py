"""Orphans: processes below a CLI with a killed keeper. The daemon is a subreaper (prctl(2)) and becomes the parent of orphans.

A keeper is the subreaper of the CLI's tree. After the kill of a keeper, the kernel gives the children to the next subreaper,
the daemon. So the daemon finds an orphan even if the orphan left its cgroup and cleared its environment. Keepers outlive a
daemon: after the daemon's death orphans go to init. There only cgroup and environment identify orphans (docs/decisions/0010).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import trio

from clisup.errors import WorldError
from clisup.host.process.markers import state_id
from clisup.host.process.tree import KILL_LIMIT_S, KILL_PAUSE_S, name_of, run_of
from clisup.host.sockets import is_marked
from clisup.model.structs import JsonObject
from clisup.store.session_dir import SessionDir

__all__ = ["Orphans", "children_of_this_process"]

REAP_PAUSE_S = 5.0
"""Seconds between two looks for zombies. The daemon reaps its own processes at once: a zombie seen twice was adopted."""


def children_of_this_process() -> list[int]:
    """Return the pids of all children, zombies included.

    The pids come from the kernel's own list. A keeper is undumpable, so hidepid= (proc(5)) hides the keeper's directory in /proc.
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
        """Send SIGKILL to the orphans of killed keepers and their descendants, and return `{pid, comm}` of each.

        An orphan has the mark of a keeper's CLI (`is_marked`), unlike the daemon's own children. A process that `orphans = "keep"`
        released also has the mark. It is spared while any backend keeps orphans: its environment names the run, and the run's exit
        record shows the release. So is a process without a run name. Returns after `KILL_LIMIT_S` at the latest.
        """
        killed: dict[int, str] = {}
        with trio.move_on_after(KILL_LIMIT_S):
            # A killed orphan gives its children to the daemon before it becomes a zombie. So no living orphan means the end.
            while alive := [pid for pid in children_of_this_process() if self._is_to_end(pid)]:
                for pid in alive:
                    killed.setdefault(pid, name_of(pid))
                    os.kill(pid, signal.SIGKILL)  # safe: the pid belongs to an unreaped child of this process
                await trio.sleep(KILL_PAUSE_S)
        for pid in children_of_this_process():
            if is_marked(pid) and _is_zombie(pid):
                _reap(pid)
        return [{"pid": pid, "comm": comm} for pid, comm in killed.items()]

    def _is_to_end(self, pid: int) -> bool:
        if _is_zombie(pid) or not is_marked(pid):
            return False
        if not self._keeps():
            return True
        try:
            if (run := run_of(pid, state_id(self._state_dir))) is None:
                return False
            return not self.released(SessionDir(self._state_dir, run[0]).run(run[1]).exit_record())
        except WorldError:
            return False  # the disk does not tell whether the run released the process

    def released(self, record: JsonObject | None) -> bool:
        """Tell whether a run released processes. A process of the CLI can write the record, so the configuration counts, too."""
        return self._keeps() and bool((record or {}).get("kept"))

    async def reap(self) -> None:
        """Reap adopted zombies until cancelled: orphans, and keepers of a lost zygote or of an earlier daemon in this process."""
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
