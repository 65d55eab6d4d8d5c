"""Evidence of recent work of a process tree, from psutil. The daemon looks before it ends a silent tool.

The same look measures memory and the number of processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from clisup.host import clock
from clisup.host.process.tree_memory import below

if TYPE_CHECKING:
    import psutil  # its 13 ms are for the first look, not for the start

__all__ = ["Evidence", "Work", "look"]

CPU_NOISE_S = 0.02  # two ticks: a sleeping shell that wakes to poll shows no work


class Work(NamedTuple):
    """Work of one process since it began."""

    cpu_s: float
    io_bytes: int


_NONE = Work(0.0, 0)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence of one look at a tree: the live processes, by pid and start.

    CPU and I/O are sums over these processes.
    """

    rss_bytes: int
    at: float
    members: Mapping[tuple[int, float], Work] = field(repr=False)

    @property
    def processes(self) -> int:
        """Return the number of live processes."""
        return len(self.members)

    @property
    def cpu_s(self) -> float:
        """Return the CPU time of all live processes, in seconds."""
        return sum(work.cpu_s for work in self.members.values())

    @property
    def io_bytes(self) -> int:
        """Return the bytes read and written by all live processes."""
        return sum(work.io_bytes for work in self.members.values())

    def grew_since(self, earlier: Evidence) -> bool:
        """Tell whether the tree has worked since `earlier`: CPU beyond noise, any I/O, or a new process.

        Processes are compared one by one. A process that has left takes all its work out of the sums, and would hide
        the work of the others.
        """
        pairs = [(work, earlier.members.get(name)) for name, work in self.members.items()]
        if any(before is None or work.io_bytes > before.io_bytes for work, before in pairs):
            return True
        return sum(work.cpu_s - before.cpu_s for work, before in pairs if before is not None) > CPU_NOISE_S

    def words(self) -> dict[str, Any]:
        """Return the sums as fields of an event and of status."""
        return {"processes": self.processes, "cpu_s": round(self.cpu_s, 2), "io_bytes": self.io_bytes}


def look(keeper_pid: int | None, *, cli_pid: int | None = None) -> Evidence:
    """Look at everything below a keeper, which is the subreaper of its tree.

    The look blocks for some milliseconds: call the function in a thread. The CPU and I/O of `cli_pid` are left out.
    Claude's own event loop reads and writes a little all the time, even while the tool that it waits for hangs
    (2.1.329).
    """
    import psutil

    rss = 0
    members: dict[tuple[int, float], Work] = {}
    for pid in below(keeper_pid) if keeper_pid is not None else ():
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                times, started = process.cpu_times(), process.create_time()
                rss += process.memory_info().rss
                work = Work(times.user + times.system, _io_bytes(process)) if pid != cli_pid else _NONE
            members[pid, started] = work
        except psutil.Error:
            continue  # the process left during the look
    return Evidence(rss, clock.monotonic(), members)


def _io_bytes(process: psutil.Process) -> int:
    """Return the characters read and written, so that pipes and sockets count too. Return 0 if /proc does not tell."""
    import psutil

    try:
        counters = process.io_counters()
    except psutil.Error:
        return 0
    return int(counters.read_chars + counters.write_chars)
