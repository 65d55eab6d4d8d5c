"""The pace of reading: how much of a CLI's output the daemon takes before every other task has its turn."""

from __future__ import annotations

import trio

from clisup.host import clock

__all__ = ["STEP_S", "Pace", "TimeSlice"]

STEP_S = 0.002
"""Seconds in which one step takes lines of one CLI. What they become is journaled after that, which takes about as long."""


class TimeSlice:
    """One step of work. Lines differ in their cost by a factor of a thousand, so the clock ends it, not a count of lines."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = clock.monotonic() + STEP_S

    @property
    def is_over(self) -> bool:
        """The next line belongs to another step."""
        return clock.monotonic() >= self._end


class Pace:
    """Order the steps of all runs that have more to read: in each round of the loop one of them goes on."""

    def __init__(self) -> None:
        self._line = trio.Lock()

    async def turn(self) -> None:
        """Wait for this run's next turn, first come, first served. Nothing is held after that."""
        # To get the lock takes a round of the loop, and it passes to the next waiter with the next round.
        async with self._line:
            pass
