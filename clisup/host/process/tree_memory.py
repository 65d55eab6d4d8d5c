"""The resident memory of many process trees, by one pass over /proc: what `clisup status` shows as MEM.

`psutil.Process.children()` reads all of /proc for each tree, which for 500 sessions is a million reads; this reads each process
once, and the memory only of those that belong to a tree. The numbers are those of psutil's `memory_info().rss`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from clisup.host.sockets.peers import parent_of

__all__ = ["below", "tree_memory"]

_PAGE = os.sysconf("SC_PAGE_SIZE")


def tree_memory(roots: Iterable[int]) -> dict[int, int]:
    """Bytes resident below each root, the root itself left out; 0 for one that has no child. Blocks: call it in a thread.

    The roots are keepers: each is the subreaper of its tree, so whatever its CLI has started is below it. Pages that several
    processes share are counted for each of them, as `ps` and `top` do.
    """
    below = _children()
    return {root: sum(_resident(pid) for pid in _descendants(root, below)) for root in roots}


def below(root: int) -> list[int]:
    """Return the pids below `root`, itself left out. `root` need not be visible: with hidepid= (proc(5)) no keeper is."""
    return _descendants(root, _children())


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            parent = parent_of(int(name))
        except (OSError, ValueError, IndexError):
            continue  # it left while we looked
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
