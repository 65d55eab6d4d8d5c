"""The iterator that all streams of the layer are: events as they come, and a turn that is interrupted where nobody wants them.

An async generator alone would not do: `break` out of its loop leaves it to the garbage collector, which may not await, and trio
warns of each one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Self

import trio

from clisup.llm.chat import Chat, Completion, Finished, StreamEvent
from clisup.llm.messages import Prompt

__all__ = ["CLOSING_S", "EventStream", "stream_of"]

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
        self._stepping = False
        self.completion: Completion | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        if self._stepping:
            raise RuntimeError(
                "cannot take an event of a stream that another task reads: a chat has one stream at a time"
            )
        if self._events is None:
            raise StopAsyncIteration
        self._token = self._token or trio.lowlevel.current_trio_token()
        self._stepping = True
        try:
            event = await anext(self._events)
        except BaseException:  # it is over: it has ended, failed, or was cancelled and has cleaned up after itself
            self._events = None
            raise
        finally:
            self._stepping = False
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
        """End it, and the turn with it where that still runs. Raises `RuntimeError` while another task takes an event of it."""
        if self._stepping:
            raise RuntimeError("cannot end a stream that another task reads: a chat has one stream at a time")
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


def stream_of(chat: Chat, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> EventStream:
    """The chat's stream as an `EventStream`, whatever kind of iterator the chat gives: for `async with`."""
    events = chat.stream(prompt, output_schema=output_schema)
    return events if isinstance(events, EventStream) else EventStream(_generated(events))


async def _generated(events: AsyncIterator[StreamEvent]) -> AsyncGenerator[StreamEvent, None]:
    try:
        async for event in events:
            yield event
    finally:
        if (close := getattr(events, "aclose", None)) is not None:
            await close()
