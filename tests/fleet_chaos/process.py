"""Processor time and memory of processes, from /proc, and the end of all processes of one home."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path

__all__ = ["cpu_s", "end_all", "processes_of", "rss_mib"]

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pids: Iterable[int]) -> float:
    """Return the processor time of these processes so far, in seconds. A process that is gone counts nothing."""
    total = 0.0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += (int(fields[11]) + int(fields[12])) / _TICKS
    return total


def rss_mib(pid: int) -> float:
    """Return the memory of a process, or 0 for a process that is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024


def processes_of(home: str) -> list[int]:
    """Return the processes that were started with this HOME: what a daemon starts has its own."""
    mark, found = f"HOME={home}\0".encode(), []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if mark in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
            except OSError:
                continue
    return found


def end_all(home: str) -> int:
    """Kill every process of a home, as a power loss does. Return their number."""
    number = 0
    while pids := processes_of(home):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
                number += 1
            except ProcessLookupError:
                continue
    return number
