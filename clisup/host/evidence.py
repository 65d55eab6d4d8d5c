"""What a process tree did lately, by psutil: the look before a silent tool is ended, and the scale for memory and pids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clisup.host import clock

if TYPE_CHECKING:
    import psutil  # its 13 ms are for the first look, not for the start

__all__ = ["Evidence", "look"]

CPU_NOISE_S = 0.02  # two ticks: a sleeping shell that wakes to poll is no sign of work


@dataclass(frozen=True, slots=True)
class Evidence:
    """One look at a tree. CPU and I/O are sums over the processes that live now."""

    processes: int
    cpu_s: float
    io_bytes: int
    rss_bytes: int
    at: float
    members: frozenset[tuple[int, float]]

    def grew_since(self, earlier: Evidence) -> bool:
        """Has the tree worked since: CPU beyond noise, any I/O, or a process that was not there before?"""
        return (
            self.cpu_s - earlier.cpu_s > CPU_NOISE_S
            or self.io_bytes > earlier.io_bytes
            or bool(self.members - earlier.members)
        )

    def words(self) -> dict[str, Any]:
        """For an event and for status."""
        return {"processes": self.processes, "cpu_s": round(self.cpu_s, 2), "io_bytes": self.io_bytes}


def look(keeper_pid: int | None, *, cli_pid: int | None = None) -> Evidence:
    """Look at everything below a keeper, which is the subreaper of its tree. Blocks for some milliseconds: use a thread.

    The CPU and I/O of `cli_pid` are left out: claude's own event loop reads and writes a little for ever, also while the
    tool that it waits for is hung (2.1.329).
    """
    import psutil

    cpu, io, rss = 0.0, 0, 0
    members: set[tuple[int, float]] = set()
    for process in _below(keeper_pid):
        try:
            with process.oneshot():
                times, started = process.cpu_times(), process.create_time()
                rss += process.memory_info().rss
            members.add((process.pid, started))
            if process.pid != cli_pid:
                cpu += times.user + times.system
                io += _io_bytes(process)
        except psutil.Error:
            continue  # it left while we looked
    return Evidence(len(members), cpu, io, rss, clock.monotonic(), frozenset(members))


def _below(pid: int | None) -> list[psutil.Process]:
    import psutil

    try:
        return psutil.Process(pid).children(recursive=True) if pid is not None else []
    except psutil.Error:
        return []


def _io_bytes(process: psutil.Process) -> int:
    """Characters read and written, so that pipes and sockets count too; 0 where /proc does not tell us."""
    import psutil

    try:
        counters = process.io_counters()
    except psutil.Error:
        return 0
    return int(counters.read_chars + counters.write_chars)
