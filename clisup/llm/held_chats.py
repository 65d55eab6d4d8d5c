"""Context managers that stay open in tasks of their own.

Nurseries and cancel scopes close in the order in which they opened, task by task. An owner that moves from one chat to the
next in the middle of its caller's blocks (a conversation, a client with fallbacks) therefore gives each chat a task.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Generic, Self, TypeVar

import trio

from clisup.llm.chat import Chat, ChatOptions, LanguageModel
from clisup.llm.failures import LLMError
from clisup.llm.messages import Block, Message

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
