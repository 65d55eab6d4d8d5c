"""Full collections of Python's garbage collector, which stop the daemon, for a bounded share of the time."""

from __future__ import annotations

import gc

import trio

__all__ = ["collect_garbage"]

EVERY_S = 1.0
"""Seconds between two looks."""

AFTER = 10
"""Collections of the middle generation before a full one, as Python's own default."""

SHARE = 0.005
"""Part of the time for full collections at most. One takes 15 ms, and 120 ms beside 1,200 clients."""

_NEVER = 2**30  # a threshold is a C int


async def collect_garbage() -> None:
    """Make all full collections in place of Python, which begins to make the others. Until cancelled."""
    gc.enable()
    gc.freeze()  # the objects of the start live to the end
    gc.set_threshold(*gc.get_threshold()[:2], _NEVER)
    while True:
        began = trio.current_time()
        if gc.get_count()[2] >= AFTER:
            gc.collect()
        await trio.sleep(max(EVERY_S, (trio.current_time() - began) / SHARE))
