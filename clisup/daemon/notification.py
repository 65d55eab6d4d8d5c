"""A word to a task that looks, waits, and looks again."""

from __future__ import annotations

import trio

__all__ = ["Wake"]


class Wake:
    """What comes between a look and the wait after it is not lost; what comes before the look is seen by it.

    The event is made with the first look: it takes 0.3 KB, and most sessions have nobody who looks.
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: trio.Event | None = None

    def begin(self) -> None:
        """A look begins; only the one task calls this."""
        self._event = trio.Event()

    def set(self) -> None:
        """There is something to look at."""
        if self._event is not None:
            self._event.set()

    async def wait(self) -> None:
        """Until there is something that came after the last `begin`."""
        assert self._event is not None, "a wait belongs to a look"
        await self._event.wait()
