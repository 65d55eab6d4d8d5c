"""Processes of a run: the CLI, its descendants and its cgroup. Sends signals, kills and reaps."""

from __future__ import annotations

import os
import resource
import signal
import time
from contextlib import suppress
from typing import Any

from clisup.keeper.system import ProcessStat, descendants, read_file, read_stat, send_signal, write_file

KILL_LIMIT_S = 2.0  # after this time the keeper reports the remaining processes
LISTED_MAX = 24  # processes in one list of the exit record: three lists fit into the reserved space
SIGNALS = {
    name: int(getattr(signal, "SIG" + name))
    for name in ("INT", "TERM", "KILL", "HUP", "QUIT", "USR1", "USR2", "STOP", "CONT")
}


class ProcessTree:
    """Tree of the CLI and its descendants. The keeper is the subreaper: a process without a parent becomes the keeper's child."""

    def __init__(self, cgroup: str | None) -> None:
        self.cgroup = cgroup
        self.keeper, self.main = os.getpid(), -1
        self.status: int | None = None  # status of the CLI, as wait4 returned it
        self.usage: resource.struct_rusage | None = None
        self.childless = False
        """True if no descendant is left. An orphan would be a child of the keeper."""
        self._lists: dict[str, dict[tuple[int, int], dict[str, Any]]] = {"survivors": {}, "left": {}, "kept": {}}

    def living(self) -> list[ProcessStat]:
        """Return the living descendants, the CLI included."""
        return [stat for stat in descendants(self.keeper) if stat.alive]

    def reap(self) -> None:
        """Reap all ended children, born or adopted."""
        while not self.childless:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                return
            if pid == self.main:
                self.status, self.usage = status, usage

    def exit_status(self) -> dict[str, int | None]:
        """Return the CLI's exit code or its signal. Exit code 137 and SIGKILL differ here."""
        if self.status is None:
            return {"exit_code": None, "signal": None}
        signaled = os.WIFSIGNALED(self.status)
        return {
            "exit_code": None if signaled else os.WEXITSTATUS(self.status),
            "signal": os.WTERMSIG(self.status) if signaled else None,
        }

    def signal(self, number: int, *, whole: bool) -> None:
        """Signal the CLI, and with `whole` its descendants. The kernel reuses the CLI's pid only after the reap."""
        if self.status is None and self.main > 0:  # kill(-1) would signal every process of the user
            with suppress(OSError):
                os.kill(self.main, number)
        for stat in descendants(self.keeper) if whole else ():
            if stat.pid != self.main:
                send_signal(stat, number)

    def kill(self) -> None:
        """Kill until no descendant is left, or `KILL_LIMIT_S` has passed.

        The loop blocks the keeper, because only a tight loop catches a process that forks as fast as the keeper kills.
        """
        end = time.monotonic() + KILL_LIMIT_S
        cgroup = self._kill_cgroup()
        seen: set[tuple[int, int]] = set()
        while True:
            self.reap()
            if self.childless and not (cgroup and _is_populated(cgroup)):
                return
            alive = self.living()
            if time.monotonic() > end:
                self.note("left", alive)
                return
            self._note_doomed(alive)
            self._kill_each(alive)
            fresh = {(stat.pid, stat.start) for stat in alive} - seen
            seen |= fresh
            if not fresh:
                time.sleep(0.001)

    def _kill_each(self, alive: list[ProcessStat]) -> None:
        """Kill each process and each process group.

        A descendant's group holds descendants only, because its session began below the keeper. The only exception is the
        keeper's own group.
        """
        for group in {stat.pgrp for stat in alive} - {0, 1, os.getpgrp()}:
            with suppress(OSError):
                os.kill(-group, signal.SIGKILL)
        for stat in alive:
            send_signal(stat, signal.SIGKILL)

    def _kill_cgroup(self) -> str | None:
        """Kill the cgroup and return its path. Return None without a cgroup, after a refusal, or if the keeper is in the cgroup."""
        if not self.cgroup:
            return None
        try:
            if str(self.keeper).encode() in read_file(self.cgroup + "/cgroup.procs").split():
                return None
            self._note_members(self.cgroup)
            write_file(self.cgroup + "/cgroup.kill", "1")
        except OSError:
            return None
        return self.cgroup

    def _note_members(self, cgroup: str) -> None:
        """Note the processes that `cgroup.kill` will kill.

        The cgroup is frozen first, because a tree may fork faster than the keeper reads. A frozen process still dies.
        """
        with suppress(OSError):
            write_file(cgroup + "/cgroup.freeze", "1")
        known = descendants(self.keeper)
        strangers = {int(pid) for pid in read_file(cgroup + "/cgroup.procs").split()} - {stat.pid for stat in known}
        known += [stat for stat in map(read_stat, strangers) if stat is not None]
        self._note_doomed([stat for stat in known if stat.alive])

    def _note_doomed(self, stats: list[ProcessStat]) -> None:
        """Note survivors: all processes except a running CLI, because survivors are processes that the CLI left."""
        self.note("survivors", [stat for stat in stats if stat.pid != self.main or self.status is not None])

    def note(self, name: str, stats: list[ProcessStat]) -> None:
        """Add processes to a list of the exit record: survivors, left or kept."""
        for stat in stats:
            self._lists[name].setdefault((stat.pid, stat.start), stat.listed())

    def record(self) -> dict[str, Any]:
        """Return the exit record's fields about processes and resources."""
        usage = self.usage
        return {
            **{name: list(found.values())[:LISTED_MAX] for name, found in self._lists.items()},
            "unlisted": sum(max(0, len(found) - LISTED_MAX) for found in self._lists.values()),
            "max_rss_kb": usage.ru_maxrss if usage else None,
            "user_s": usage.ru_utime if usage else None,
            "system_s": usage.ru_stime if usage else None,
        }


def _is_populated(cgroup: str) -> bool:
    try:
        return b"populated 1" in read_file(cgroup + "/cgroup.events")
    except OSError:
        return False
