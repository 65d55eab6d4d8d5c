"""Resident memory of many process trees, by one pass over /proc: the column MEM of `clisup status`.

`psutil.Process.children()` reads all of /proc for each tree: a million reads for 500 sessions. This module reads each
process once, and the memory only of processes in a tree. The numbers equal psutil's `memory_info().rss`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from clisup.host.sockets.peers import parent_of

__all__ = ["below", "tree_memory"]

_PAGE = os.sysconf("SC_PAGE_SIZE")


def tree_memory(roots: Iterable[int]) -> dict[int, int]:
    """Return the resident bytes below each root, without the root itself; 0 for a root without a child.

    The function blocks: call it in a thread. The roots are keepers. Each is the subreaper of its tree, so every process
    that its CLI has started is below it. Pages that several processes share count for each of them, as in `ps` and
    `top`.
    """
    below = _children()
    return {root: sum(_resident(pid) for pid in _descendants(root, below)) for root in roots}


def below(root: int) -> list[int]:
    """Return the pids below `root`, without `root`.

    With hidepid= (proc(5)) no keeper is visible: `root` need not be.
    """
    return _descendants(root, _children())


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            parent = parent_of(int(name))
        except (OSError, ValueError, IndexError):
            continue  # the process left during the look
        found.setdefault(parent, []).append(int(name))
    return found


def _descendants(root: int, below: dict[int, list[int]]) -> list[int]:
    found: list[int] = []
    left = list(below.get(root, ()))
    while left:
        pid = left.pop()
        found.append(pid)
        left += below.get(pid, ())
    return found


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split(None, 2)[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0
