"""The iterator of all streams of the layer. It gives events as they come, and interrupts the turn of an abandoned stream.

An async generator alone is not enough: `break` leaves it to the garbage collector, which cannot await, and trio warns of each one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Self

import trio

from clisup.llm.answers import Completion, Finished, StreamEvent
from clisup.llm.chat import Chat
from clisup.llm.messages import Prompt

CLOSING_S = 10.0
"""Seconds that the end of an abandoned stream may take: the interrupt of its turn, and the CLI's reaction."""


class EventStream:
    """Asynchronous iterator of `StreamEvent`s. `completion` is set after a successful end.

    The last event or an exception ends the stream. Before that, `aclose`, the end of an `async with` block, a `break`
    out of the loop and a cancellation end its turn. The first two wait for the turn's end, for `CLOSING_S` at most.
    """

    def __init__(self, events: AsyncGenerator[StreamEvent, None]) -> None:
        self._events: AsyncGenerator[StreamEvent, None] | None = events
        self._token: trio.lowlevel.TrioToken | None = None
        self._stepping = False
        self.completion: Completion | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        if self._stepping:
            raise RuntimeError("another task reads this stream: a chat has one stream at a time")
        if self._events is None:
            raise StopAsyncIteration
        self._token = self._token or trio.lowlevel.current_trio_token()
        self._stepping = True
        try:
            event = await anext(self._events)
        except BaseException:  # the generator has ended and cleaned up
            self._events = None
            raise
        finally:
            self._stepping = False
        if isinstance(event, Finished):
            self.completion = event.completion
        return event

    async def finish(self) -> Completion:
        """Read the rest and return the completion. Raises the exceptions of the iteration."""
        async for _ in self:
            pass
        if self.completion is None:
            raise RuntimeError("the stream ended without a completion")
        return self.completion

    async def aclose(self) -> None:
        """End the stream, and its turn if the turn still runs. Raises `RuntimeError` while another task reads."""
        if self._stepping:
            raise RuntimeError("another task reads this stream: a chat has one stream at a time")
        events, self._events = self._events, None
        if events is not None:
            await _close(events)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        """End a stream after a `break`, in a system task of trio. The garbage collector may run in another thread."""
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
    try:
        await _close(events)
    except Exception:  # nobody hears it, and in a system task it would end the program
        return


def stream_of(chat: Chat, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> EventStream:
    """Return the chat's stream as an `EventStream`, for `async with`."""
    events = chat.stream(prompt, output_schema=output_schema)
    return events if isinstance(events, EventStream) else EventStream(_generated(events))


async def _generated(events: AsyncIterator[StreamEvent]) -> AsyncGenerator[StreamEvent, None]:
    try:
        async for event in events:
            yield event
    finally:
        if (close := getattr(events, "aclose", None)) is not None:
            await close()
