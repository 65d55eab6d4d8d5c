"""Collections of Python's garbage collector. Each of them stops the daemon, and nearly none of them frees anything."""

from __future__ import annotations

import gc
import sys

import trio

__all__ = ["collect_garbage"]

YOUNG = 5_000
"""New objects, less the freed ones, after which Python collects the young objects.

Beside 1,200 clients one such collection takes up to 37 ms, and up to 98 ms with 50,000: objects that live for a moment die
meanwhile, but all that took the place of older ones is looked at. Fewer than 5,000 make it no shorter.
"""

AFTER = 20
"""Young collections before a full one: 100,000 objects. Python's own default is 70,000."""

EVERY_S = 1.0
"""Seconds between two looks."""

SHARE = 0.0005
"""Part of the time for full collections at most. One takes 15 ms, and 40 to 270 ms beside 1,200 clients."""

GROWTH, GROWTH_PART = 500_000, 0.25
"""Growth in allocated blocks, about 64 MB, and as a part of all, after which a full collection does not wait for its share."""

_NEVER = 2**30  # a threshold is a C int


async def collect_garbage() -> None:
    """Make all full collections in place of Python, which begins to make the young ones. Until cancelled."""
    gc.enable()
    gc.freeze()  # the objects of the start live to the end
    gc.set_threshold(YOUNG, _NEVER, _NEVER)
    known, blocks, due_at = _collections(), sys.getallocatedblocks(), trio.current_time()
    while True:
        began = trio.current_time()
        # Unlike the resident memory, the count of blocks needs no descriptor, which may be wanting.
        grown = sys.getallocatedblocks() - blocks > max(GROWTH, GROWTH_PART * blocks)
        if grown or (began >= due_at and _collections() - known >= AFTER):
            gc.collect()
            due_at = began + (trio.current_time() - began) / SHARE
            known, blocks = _collections(), sys.getallocatedblocks()
        await trio.sleep(EVERY_S)


def _collections() -> int:
    """Return the number of collections since the start of the process."""
    return sum(int(row["collections"]) for row in gc.get_stats())
