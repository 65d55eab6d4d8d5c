"""The iterator that all streams of the layer are: events as they come, and a turn that is interrupted where nobody wants them.

An async generator alone would not do: `break` out of its loop leaves it to the garbage collector, which may not await, and trio
warns of each one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Self

import trio

from clisup.llm.chat import Completion, Finished, StreamEvent

__all__ = ["CLOSING_S", "EventStream"]

CLOSING_S = 10.0
"""How long the end of a stream that was left may take: the interrupt of its turn, with the CLI's answer to it."""


class EventStream:
    """An asynchronous iterator of `StreamEvent`s; `completion` is set once it has ended well.

    It ends where its last event was given or it raised. Before that, `aclose`, the end of an `async with` block, a `break`
    out of its loop and cancellation end its turn; the first two wait for that, for `CLOSING_S` at most.
    """

    def __init__(self, events: AsyncGenerator[StreamEvent, None]) -> None:
        self._events: AsyncGenerator[StreamEvent, None] | None = events
        self._token: trio.lowlevel.TrioToken | None = None
        self.completion: Completion | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        if self._events is None:
            raise StopAsyncIteration
        self._token = self._token or trio.lowlevel.current_trio_token()
        try:
            event = await anext(self._events)
        except BaseException:  # it is over: it has ended, failed, or was cancelled and has cleaned up after itself
            self._events = None
            raise
        if isinstance(event, Finished):
            self.completion = event.completion
        return event

    async def finish(self) -> Completion:
        """Take what is left of it, and give the completion. Raises as the iteration does."""
        async for _ in self:
            pass
        if self.completion is None:
            raise RuntimeError("a stream that was left has no completion")
        return self.completion

    async def aclose(self) -> None:
        """End it, and the turn with it where that still runs."""
        events, self._events = self._events, None
        if events is not None:
            await _close(events)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        """The loop was left by `break`: what has to be awaited goes on in a task of trio's own. It may be another thread here."""
        if self._events is None or self._token is None:
            return
        try:
            self._token.run_sync_soon(trio.lowlevel.spawn_system_task, _close_quietly, self._events)
        except trio.RunFinishedError:
            pass  # trio has closed all generators at its end


async def _close(events: AsyncGenerator[StreamEvent, None]) -> None:
    with trio.move_on_after(CLOSING_S, shield=True):
        await events.aclose()


async def _close_quietly(events: AsyncGenerator[StreamEvent, None]) -> None:
    """Nobody is there to be told what goes wrong, and in a system task it would end the program."""
    try:
        await _close(events)
    except Exception:
        return
