"""Thinking that led to calls of a program's tools: kept by the ids of the calls, for programs that do not send it back. Pure.

Providers demand it back with the results (DeepSeek, Kimi, Gemini, a thinking Claude), and most programs drop it. After a restart of
the gateway, and beyond the limits, a conversation goes on without.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from clisup.llm.messages import Message, ThinkingBlock, ToolUseBlock

__all__ = ["MAX_KEPT", "MAX_KEPT_CHARS", "KeptThinking"]

MAX_KEPT = 4096
"""Calls whose thinking is kept. The oldest are dropped first."""
MAX_KEPT_CHARS = 32 * 1024 * 1024
"""Characters of all thinking that is kept."""

_Thoughts = tuple[ThinkingBlock, ...]


class KeptThinking:
    """Thinking by the id of the first call that it led to."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Thoughts] = OrderedDict()
        self._chars = 0

    def keep(self, calls: Iterable[ToolUseBlock], said: Message) -> None:
        """Keep the thinking of a message with calls."""
        first = next(iter(calls), None)
        thoughts = tuple(block for block in said.content if isinstance(block, ThinkingBlock) and block.signature)
        if first is None or not thoughts:
            return
        self._drop(first.id)
        self._kept[first.id] = thoughts
        self._chars += _size(thoughts)
        while len(self._kept) > MAX_KEPT or self._chars > MAX_KEPT_CHARS:
            self._drop(next(iter(self._kept)))

    def restored(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        """Return a conversation with the thinking that a program did not send back."""
        return tuple(map(self._restored, messages))

    def _restored(self, message: Message) -> Message:
        first = next((block for block in message.content if isinstance(block, ToolUseBlock)), None)
        thoughts = self._kept.get(first.id, ()) if first is not None else ()
        if not thoughts or any(isinstance(block, ThinkingBlock) for block in message.content):
            return message
        return message.model_copy(update={"content": (*thoughts, *message.content)})

    def _drop(self, call: str) -> None:
        self._chars -= _size(self._kept.pop(call, ()))


def _size(thoughts: _Thoughts) -> int:
    return sum(len(block.text) + len(block.signature or "") for block in thoughts)
