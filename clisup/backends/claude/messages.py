"""Streamed messages of claude with their retractions, and content blocks as events.

claude prints deltas first, and one `assistant` frame for each block before the block's own stop. If a stream breaks, the CLI
repeats the request, and no frame confirms the printed deltas. The CLI then prints `abandoned_blocks` in an invented
`message_stop`. If the connection ended together with the data, the CLI prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import asdict

from clisup.backends.claude.frames import AbandonedBlocks, ContentBlock, MessageHead, UsageCounts, as_blocks
from clisup.backends.frames import MOST_TOKENS, Count, Half, MalformedError, join_halves, status
from clisup.model.events import (
    Block,
    ContentDelta,
    DeltaKind,
    EventBase,
    MessageStart,
    MessageStop,
    Retracted,
    ToolResult,
    ToolUse,
)
from clisup.model.usage import Usage

__all__ = ["ClaudeMessages", "blocks_of", "tool_result", "tool_uses", "user_text"]


CountName = Literal["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"]


class StreamedMessage(Struct):
    """Message that is being streamed to one parent (None: the main conversation).

    `shown` are the blocks with deltas that no assistant frame has confirmed.
    """

    parent: str | None
    message_id: str | None = None
    shown: set[Count] = field(default_factory=set)
    halves: dict[Count, tuple[DeltaKind, Half]] = field(default_factory=dict)
    stop_reason: str | None = None
    counts: dict[CountName, Count] = field(default_factory=dict)

    def delta(self, kind: DeltaKind, text: str, index: int) -> ContentDelta:
        return ContentDelta(kind, text, index, self.message_id, self.parent)

    def give_up_halves(self) -> list[EventBase]:
        """Replace each half of a surrogate pair without its other half by one unknown character."""
        events: list[EventBase] = [self.delta(kind, "\ufffd", index) for index, (kind, _) in self.halves.items()]
        self.halves.clear()
        return events

    def retract(self, from_index: int, reason: str) -> list[EventBase]:
        gone = {index for index in self.shown if index >= from_index}
        self.halves = {index: half for index, half in self.halves.items() if index < from_index}
        self.shown -= gone
        return [Retracted(message_id=self.message_id, from_index=min(gone), reason=reason)] if gone else []


class ClaudeMessages(Struct):
    """Messages that are being streamed, one for each parent: "" is the main conversation."""

    open: dict[str, StreamedMessage] = field(default_factory=dict)

    def start(self, parent: str | None, head: MessageHead) -> list[EventBase]:
        events = self._retract_all(parent, "the request was repeated")
        # The output count of message_start is a placeholder (1). The true count comes with message_delta.
        counts = _counts(head.usage)
        counts.pop("output_tokens", None)
        self.open[parent or ""] = StreamedMessage(parent, head.id, counts=counts)
        events.append(MessageStart(message_id=head.id, model=head.model, parent_tool_use_id=parent))
        return events

    def delta(self, parent: str | None, index: int, kind: DeltaKind, text: str) -> tuple[EventBase, ...]:
        """Return a delta. An empty delta (the first of each tool input) gives nothing."""
        message = self.open.get(parent or "") or self._message(parent)
        if message.halves:
            return self.broken_delta(parent, index, kind, text)
        if not text:
            return ()
        message.shown.add(index)
        return (ContentDelta(kind, text, index, message.message_id, parent),)

    def broken_delta(self, parent: str | None, index: int, kind: DeltaKind, text: str) -> tuple[EventBase, ...]:
        """Return a delta with halves of surrogate pairs. A high half at its end waits for the next delta of the block."""
        message = self._message(parent)
        _, before = message.halves.pop(index, (kind, 0))
        whole, held = join_halves(text, before)
        if held:
            message.halves[index] = (kind, held)
        message.shown.add(index)
        return (message.delta(kind, whole, index),) if whole else ()

    def stop_block(self, parent: str | None) -> list[EventBase]:
        return self._message(parent).give_up_halves()

    def note_end(self, parent: str | None, stop_reason: str | None, usage: UsageCounts | None) -> None:
        """Remember `message_delta` for the `message_stop` that follows."""
        message = self._message(parent)
        message.stop_reason = stop_reason
        message.counts |= _counts(usage)

    def stop(self, parent: str | None, abandoned: AbandonedBlocks | None) -> list[EventBase]:
        message = self._message(parent)
        events: list[EventBase] = []
        if abandoned is not None:
            events += message.retract(abandoned.from_block_index, "the stream was cut")
        events += message.give_up_halves()
        usage = Usage(**message.counts, source="reported") if message.counts else None
        events.append(
            MessageStop(
                message_id=message.message_id, stop_reason=message.stop_reason, usage=usage, parent_tool_use_id=parent
            )
        )
        return events

    def confirm(self, parent: str | None, message_id: str | None) -> list[EventBase]:
        """Note an assistant frame: it confirms the deltas of its message, and retracts those of another message."""
        message = self.open.get(parent or "")
        if message is None:
            return []
        if message.message_id != message_id:
            return self._retract_all(parent, "another message came in its place")
        message.shown.clear()
        return message.give_up_halves()

    def finish(self) -> list[EventBase]:
        """End the turn: later frames confirm nothing."""
        events = [event for parent in self.open for event in self._retract_all(parent, "no message confirmed it")]
        self.open.clear()
        return events

    def _message(self, parent: str | None) -> StreamedMessage:
        message = self.open.get(parent or "")
        if message is None:
            message = self.open[parent or ""] = StreamedMessage(parent)
        return message

    def _retract_all(self, parent: str | None, reason: str) -> list[EventBase]:
        message = self.open.get(parent or "")
        return message.retract(0, reason) if message is not None else []


def _counts(usage: UsageCounts | None) -> dict[CountName, int]:
    told: dict[CountName, int | None] = {} if usage is None else asdict(usage)  # type: ignore[assignment]
    return {name: value for name, value in told.items() if value is not None and 0 <= value <= MOST_TOKENS}


# Content blocks

_INTERRUPTED = "[Request interrupted by user"
# Begins a result that the CLI cut: a preview, and the path of the file with the whole result.
_PERSISTED = "<persisted-output>"


def _image(block: ContentBlock) -> Block:
    source = block.source if isinstance(block.source, dict) else {}
    media_type, data = (source.get(name) for name in ("media_type", "data"))
    return Block(
        kind="image",
        media_type=media_type if isinstance(media_type, str) else None,
        data=data if isinstance(data, str) else None,
    )


_MAKERS: dict[str, Callable[[ContentBlock], Block]] = {
    "text": lambda block: Block(kind="text", text=block.text or ""),
    "thinking": lambda block: Block(kind="thinking", text=block.thinking or "", signature=block.signature or None),
    "redacted_thinking": lambda _: Block(kind="redacted_thinking"),
    "tool_use": lambda block: Block(kind="tool_use", tool_use_id=block.id, name=block.name, input=block.input or {}),
    "image": _image,
}


def _other(block: ContentBlock) -> Block:
    return Block(
        kind="other",
        native_kind=block.type,
        text=block.text,
        tool_use_id=block.tool_use_id or block.id,
        name=block.name,
    )


def blocks_of(content: list[ContentBlock] | str) -> tuple[Block, ...]:
    """Return the blocks of a message. A block of an unknown type becomes `other` with its own name."""
    if isinstance(content, str):
        return (Block(kind="text", text=content),)
    return tuple(_MAKERS.get(block.type, _other)(block) for block in content)


def tool_uses(content: list[ContentBlock] | str, parent: str | None) -> list[EventBase]:
    """Return the calls in a message, except tools that the API runs itself (`server_tool_use`): they have no result frame."""
    if isinstance(content, str):
        return []
    return [
        ToolUse(tool_use_id=block.id, name=block.name, input=block.input or {}, parent_tool_use_id=parent)
        for block in content
        if block.type == "tool_use" and block.id and block.name
    ]


def tool_result(block: ContentBlock, parent: str | None) -> ToolResult:
    """Return a tool's result. `is_error` may be absent (Read, Write, MCP). Raises MalformedError for a wrong shape."""
    if block.tool_use_id is None:
        raise MalformedError("a tool result without tool_use_id")
    text, blocks = _result_content(block)
    return ToolResult(
        tool_use_id=block.tool_use_id,
        content=text,
        blocks=blocks,
        is_error=block.is_error or False,
        truncated=text.startswith(_PERSISTED),
        parent_tool_use_id=parent,
    )


def _result_content(block: ContentBlock) -> tuple[str, tuple[Block, ...] | None]:
    if not isinstance(block.content, list):
        return (block.content if isinstance(block.content, str) else "", None)
    items = as_blocks(block.content)
    text = "\n".join(item.text or "" for item in items if item.type == "text")
    only_text = all(item.type == "text" for item in items)
    return text, None if only_text else blocks_of(items)


def user_text(content: list[ContentBlock] | str, name: str) -> list[EventBase]:
    """Return the texts of a user frame as a status: the CLI wrote them, not the caller."""
    blocks: Sequence[Block] = [block for block in blocks_of(content) if block.native_kind != "tool_result"]
    if not blocks:
        return []
    text = "\n".join(block.text or f"[{block.native_kind or block.kind}]" for block in blocks)
    if text.startswith(_INTERRUPTED):
        name = "interrupted"
    return [status(name, text)]
