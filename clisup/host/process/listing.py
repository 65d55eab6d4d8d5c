"""List of the live processes below a keeper, with command lines, for people."""

from __future__ import annotations

import os
from typing import NamedTuple

from clisup.host.process.evidence import below

__all__ = ["ARGV_BYTES", "SeenProcess", "processes_below"]

ARGV_BYTES = 16 * 1024
"""Bytes of a command line that are read at most."""

_PAGE = os.sysconf("SC_PAGE_SIZE")


class SeenProcess(NamedTuple):
    """Process as /proc showed it. `start_time` is in clock ticks since boot, and unique with the pid."""

    pid: int
    parent: int
    start_time: int
    state: str
    name: str
    argv: list[str]
    rss_bytes: int


def processes_below(root: int) -> list[SeenProcess]:
    """Return the processes below `root`, without `root`. The function blocks: call it in a thread."""
    return [found for pid in sorted(below(root)) if (found := _seen(pid)) is not None]


def _seen(pid: int) -> SeenProcess | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            head, _, tail = file.read().rpartition(b")")  # a name may hold ") "
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(ARGV_BYTES).rstrip(b"\0").split(b"\0")
    except OSError:
        return None  # the process left during the look
    fields = tail.split()
    name = head.partition(b"(")[2].decode(errors="replace")
    argv = [word.decode(errors="replace") for word in words] if words != [b""] else []
    return SeenProcess(pid, int(fields[1]), int(fields[19]), fields[0].decode(), name, argv, int(fields[21]) * _PAGE)
