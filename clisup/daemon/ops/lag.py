"""How long a task waits that could run: the daemon does one thing at a time, and this is what one thing costs all others."""

from __future__ import annotations

import trio

from clisup.ops.figures import Figures

__all__ = ["LOOK_EVERY_S", "watch_lag"]

LOOK_EVERY_S = 1.0


async def watch_lag(figures: Figures) -> None:
    """Once a second: how late does this task run? Until cancelled."""
    while True:
        due = trio.current_time() + LOOK_EVERY_S
        await trio.sleep_until(due)
        figures.lag.observe(trio.current_time() - due)
