"""Streams and chats that stay open beyond one block of code, and end safely.

`EventStream` is the iterator of all streams of the layer. An async generator alone is not enough: `break` leaves it to the garbage
collector, which cannot await, and trio warns of each one.

`HeldBlock` keeps a context manager open in a task of its own. Nurseries and cancel scopes close in the order in which they opened,
task by task. An owner that moves from one chat to the next in the middle of its caller's blocks (a conversation, a client with
fallbacks) therefore gives each chat a task.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Self, TypeVar

import trio

from clisup.llm.answers import Completion, Finished, StreamEvent
from clisup.llm.chat import Chat, ChatOptions, LanguageModel
from clisup.llm.failures import LLMError
from clisup.llm.messages import Block, Message, Prompt

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


T = TypeVar("T")


class HeldBlock(Generic[T]):
    """Open asynchronous context manager. `value` is the manager's value; `failure` is the exception that ended the block."""

    value: T
    kept_failures: type[Exception] = Exception
    """Exceptions to keep in `failure`. Others end the nursery's task."""

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager = manager
        self._leave, self._left = trio.Event(), trio.Event()
        self.failure: Exception | None = None

    async def enter(self, nursery: trio.Nursery) -> Self:
        """Enter the block in a task of this nursery. Raises the exceptions of entering."""
        await nursery.start(self._hold)
        return self

    @property
    def left(self) -> bool:
        """Return whether the block has ended."""
        return self._left.is_set()

    def leave(self) -> None:
        """End the block without waiting."""
        self._leave.set()

    async def close(self) -> None:
        """End the block and wait for its end."""
        self._leave.set()
        await self._left.wait()

    async def _hold(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        entered = False
        try:
            async with self._manager as self.value:
                entered = True
                task_status.started()
                await self._leave.wait()
        except self.kept_failures as error:
            if not entered:
                raise
            self.failure = error  # raised here, it would cancel the other blocks of the nursery
        finally:
            self._left.set()


class HeldChat(HeldBlock[Chat]):
    """Open chat. `context` is the conversation that the chat holds, or None if the owner does not know.

    A chat that fails between prompts just ends: its owner opens another one with the same history.
    """

    kept_failures = LLMError

    def __init__(self, model: LanguageModel, options: ChatOptions) -> None:
        super().__init__(model.chat(options))
        self.context: tuple[Message, ...] | None = tuple(options.history)

    def has(self, context: tuple[Message, ...]) -> bool:
        """Return whether the chat is open and holds this context. Cache marks are ignored, because a CLI sets its own."""
        return not self.left and self.context is not None and _unmarked(self.context) == _unmarked(context)


def _unmarked(context: tuple[Message, ...]) -> list[Message]:
    return [
        message.model_copy(update={"content": tuple(_without_mark(block) for block in message.content)})
        for message in context
    ]


def _without_mark(block: Block) -> Block:
    return block.model_copy(update={"cache": False}) if getattr(block, "cache", False) else block
