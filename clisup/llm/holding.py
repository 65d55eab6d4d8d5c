"""A chat that is kept open in a task of its own.

A chat is an `async with` block, and who goes from one chat to the next (a conversation, a client with fallbacks) does that in the
middle of its caller's blocks: nurseries and cancel scopes must be left in the order in which they were entered, task by task.
So each chat gets a task in its owner's nursery.
"""

from __future__ import annotations

from typing import Self

import trio

from clisup.llm.chat import Chat, ChatOptions, LanguageModel
from clisup.llm.failures import LLMError
from clisup.llm.messages import Block, Message

__all__ = ["HeldChat"]


class HeldChat:
    """An open chat. `context` is what it has been told and has said, as far as its owner knows; None: it is not known."""

    chat: Chat

    def __init__(self, context: tuple[Message, ...]) -> None:
        self.context: tuple[Message, ...] | None = context
        self._leave, self._left = trio.Event(), trio.Event()

    @classmethod
    async def open(cls, nursery: trio.Nursery, model: LanguageModel, options: ChatOptions) -> Self:
        """Open a chat with this history. Raises what `model.chat` does at its beginning."""
        held = cls(tuple(options.history))
        await nursery.start(held._hold, model, options)
        return held

    @property
    def left(self) -> bool:
        """It is closed: as it was told to, or by itself."""
        return self._left.is_set()

    def has(self, context: tuple[Message, ...]) -> bool:
        """Is it open, and is this what it has? Marks of the cache are none of it: a CLI sets its own."""
        return not self.left and self.context is not None and _unmarked(self.context) == _unmarked(context)

    def leave(self) -> None:
        """Have it closed, without waiting for that."""
        self._leave.set()

    async def close(self) -> None:
        """Have it closed, and wait for that."""
        self._leave.set()
        await self._left.wait()

    async def _hold(
        self, model: LanguageModel, options: ChatOptions, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        opened = False
        try:
            async with model.chat(options) as self.chat:
                opened = True
                task_status.started()
                await self._leave.wait()
        except LLMError:
            if not opened:
                raise
            # it ended by itself, or badly: the next prompt gets another one, with the same history
        finally:
            self._left.set()


def _unmarked(context: tuple[Message, ...]) -> list[Message]:
    return [
        message.model_copy(update={"content": tuple(_without_mark(block) for block in message.content)})
        for message in context
    ]


def _without_mark(block: Block) -> Block:
    return block.model_copy(update={"cache": False}) if getattr(block, "cache", False) else block
