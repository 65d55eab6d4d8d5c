"""What a process tree did lately, by psutil: the look before a silent tool is ended, and the scale for memory and pids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from clisup.host import clock
from clisup.host.process.tree_memory import below

if TYPE_CHECKING:
    import psutil  # its 13 ms are for the first look, not for the start

__all__ = ["Evidence", "Work", "look"]

CPU_NOISE_S = 0.02  # two ticks: a sleeping shell that wakes to poll is no sign of work


class Work(NamedTuple):
    """What one process has done since it began."""

    cpu_s: float
    io_bytes: int


_NONE = Work(0.0, 0)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One look at a tree: the processes that live now, by pid and start. CPU and I/O are sums over them."""

    rss_bytes: int
    at: float
    members: Mapping[tuple[int, float], Work] = field(repr=False)

    @property
    def processes(self) -> int:
        return len(self.members)

    @property
    def cpu_s(self) -> float:
        return sum(work.cpu_s for work in self.members.values())

    @property
    def io_bytes(self) -> int:
        return sum(work.io_bytes for work in self.members.values())

    def grew_since(self, earlier: Evidence) -> bool:
        """Has the tree worked since: CPU beyond noise, any I/O, or a process that was not there before?

        Process by process: one that has left takes all that it ever did out of the sums, and would hide what the others do.
        """
        pairs = [(work, earlier.members.get(name)) for name, work in self.members.items()]
        if any(before is None or work.io_bytes > before.io_bytes for work, before in pairs):
            return True
        return sum(work.cpu_s - before.cpu_s for work, before in pairs if before is not None) > CPU_NOISE_S

    def words(self) -> dict[str, Any]:
        """For an event and for status."""
        return {"processes": self.processes, "cpu_s": round(self.cpu_s, 2), "io_bytes": self.io_bytes}


def look(keeper_pid: int | None, *, cli_pid: int | None = None) -> Evidence:
    """Look at everything below a keeper, which is the subreaper of its tree. Blocks for some milliseconds: use a thread.

    The CPU and I/O of `cli_pid` are left out: claude's own event loop reads and writes a little for ever, also while the
    tool that it waits for is hung (2.1.329).
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
            continue  # it left while we looked
    return Evidence(rss, clock.monotonic(), members)


def _io_bytes(process: psutil.Process) -> int:
    """Characters read and written, so that pipes and sockets count too; 0 where /proc does not tell us."""
    import psutil

    try:
        counters = process.io_counters()
    except psutil.Error:
        return 0
    return int(counters.read_chars + counters.write_chars)
