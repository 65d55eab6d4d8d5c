"""Streamed messages and reasoning of codex: begun, confirmed or retracted.

`item/completed` has the whole text. A message that a broken stream cut has no such frame: the CLI repeats the request without the
message, so the printed deltas are retracted. A message that was whole before the cut stays: the model gets the message again.
"""

from __future__ import annotations

from typing import Any, Literal

from clisup.backends.codex.items import item_id, kind_of, message_blocks
from clisup.backends.frames import MalformedError, get_int, get_str
from clisup.model.events import AssistantMessage, Block, ContentDelta, EventBase, MessageStart, MessageStop, Retracted

__all__ = ["CodexMessages"]

Frame = dict[str, Any]
Kind = Literal["text", "thinking"]


class CodexMessages:
    """Messages of one turn. `last_text` is the last whole answer, which is codex's final text of a turn."""

    __slots__ = ("_open", "last_text", "model")

    def __init__(self) -> None:
        self._open: dict[str, dict[tuple[Kind, int], list[str]]] = {}
        self.last_text = ""
        self.model: str | None = None

    def text_delta(self, params: Frame) -> list[EventBase]:
        return self._delta(params, "text", 0)

    def thinking_delta(self, params: Frame) -> list[EventBase]:
        index = get_int(params, "summaryIndex")
        return self._delta(params, "thinking", get_int(params, "contentIndex") or 0 if index is None else index)

    def _delta(self, params: Frame, kind: Kind, index: int) -> list[EventBase]:
        message_id, text = get_str(params, "itemId"), get_str(params, "delta")
        if message_id is None or text is None:
            raise MalformedError("a delta without its item or text")
        if not text:
            return []
        begun = self._begin(message_id)
        self._open[message_id].setdefault((kind, index), []).append(text)
        return [*begun, ContentDelta(kind=kind, text=text, index=index, message_id=message_id)]

    def _begin(self, message_id: str) -> list[EventBase]:
        """Begin a message with its first text: codex begins items that stay empty (a refusal, encrypted reasoning)."""
        if message_id in self._open:
            return []
        self._open[message_id] = {}
        return [MessageStart(message_id=message_id, model=self.model)]

    def completed(self, item: Frame) -> list[EventBase]:
        """Complete a message. A message without a text and without deltas gives no event."""
        message_id, blocks = item_id(item), message_blocks(item)
        if kind_of(item) != "reasoning" and blocks:
            self.last_text = blocks[0].text or ""
        if not blocks and message_id not in self._open:
            return []
        return [*self._begin(message_id), *self._finish(message_id, blocks)]

    def _finish(self, message_id: str, blocks: tuple[Block, ...]) -> list[EventBase]:
        del self._open[message_id]
        return [AssistantMessage(message_id=message_id, blocks=blocks), MessageStop(message_id=message_id)]

    def retract(self, reason: str) -> list[EventBase]:
        """Retract the open messages: nothing will confirm their deltas."""
        events: list[EventBase] = []
        for message_id in self._open:
            events += [Retracted(message_id=message_id, reason=reason), MessageStop(message_id=message_id)]
        self._open.clear()
        return events

    def keep(self) -> list[EventBase]:
        """Complete the open messages of an interrupted turn from their deltas."""
        events: list[EventBase] = []
        for message_id, parts in list(self._open.items()):
            blocks = tuple(Block(kind=kind, text="".join(text)) for (kind, _), text in sorted(parts.items()))
            events += self._finish(message_id, blocks)
        return events
