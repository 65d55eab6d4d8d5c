"""Cap on running turns, first come, first served."""

from __future__ import annotations

from collections import deque

import trio

__all__ = ["RunningSlots"]


class RunningSlots:
    """Counter of running turns. `total` is the cap. Turns adopted at the start count too, even above the cap."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self._waiting: deque[trio.Event] = deque()

    @property
    def waiting(self) -> int:
        """Return the number of turns waiting for a slot."""
        return len(self._waiting)

    def resize(self, total: int) -> None:
        """Change the cap. Running turns continue under a lower cap, and waiting turns start under a higher one."""
        self.total = total
        self._hand_out()

    async def acquire(self) -> None:
        """Take a slot, in order of the calls. A cancelled wait gives up its place."""
        if self.used < self.total and not self._waiting:
            self.used += 1
            return
        turn = trio.Event()
        self._waiting.append(turn)
        try:
            await turn.wait()
        except trio.Cancelled:
            if turn.is_set():
                self.release()  # the slot was assigned just before the cancellation
            else:
                self._waiting.remove(turn)
            raise

    def force(self) -> None:
        """Count an already running turn."""
        self.used += 1

    def release(self) -> None:
        """Return a slot. The longest waiting turn gets the slot."""
        self.used -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and self.used < self.total:
            self.used += 1
            self._waiting.popleft().set()
