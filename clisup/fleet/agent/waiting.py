"""Wait of a part of the agent for news, with a limit."""

from __future__ import annotations

import asyncio
from contextlib import suppress

__all__ = ["wait_at_most"]


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, for so many seconds at most.

    `asyncio.wait_for` of Python 3.11 may swallow a cancellation that comes with the event. The part would go on then.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
