"""The cap on running turns: first come, first served, and one can see who waits."""

from __future__ import annotations

from collections import deque

import trio

__all__ = ["Slots"]


class Slots:
    """Counts running turns. `total` is the cap; turns adopted at start count too, even above it."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self._waiting: deque[trio.Event] = deque()

    @property
    def waiting(self) -> int:
        """How many turns wait for a slot."""
        return len(self._waiting)

    def resize(self, total: int) -> None:
        """Another cap, from now on. Turns that run go on where it is lower; those that wait start where it is higher."""
        self.total = total
        self._hand_out()

    async def acquire(self) -> None:
        """Take a slot, in order of asking. Cancelling the wait gives the place up."""
        if self.used < self.total and not self._waiting:
            self.used += 1
            return
        turn = trio.Event()
        self._waiting.append(turn)
        try:
            await turn.wait()
        except trio.Cancelled:
            if turn.is_set():
                self.release()  # it was handed over in the very moment of the cancel
            else:
                self._waiting.remove(turn)
            raise

    def force(self) -> None:
        """Count a turn that runs already."""
        self.used += 1

    def release(self) -> None:
        """Give a slot back; the longest waiter gets it."""
        self.used -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and self.used < self.total:
            self.used += 1
            self._waiting.popleft().set()
