"""Streamed messages of claude, and their retractions.

claude prints deltas first, and one `assistant` frame for each block before the block's own stop. If a stream breaks, the CLI
repeats the request, and no frame confirms the printed deltas. The CLI then prints `abandoned_blocks` in an invented
`message_stop`. If the connection ended together with the data, the CLI prints nothing.
"""

from __future__ import annotations

from msgspec.structs import asdict

from clisup.backends.claude.frames import AbandonedBlocks, MessageHead, UsageCounts
from clisup.backends.frames import join_halves
from clisup.model.events import ContentDelta, DeltaKind, EventBase, MessageStart, MessageStop, Retracted
from clisup.model.usage import Usage

__all__ = ["ClaudeMessages", "StreamedMessage"]


class StreamedMessage:
    """Message that is being streamed to one parent (None: the main conversation)."""

    __slots__ = ("counts", "halves", "message_id", "parent", "shown", "stop_reason")

    def __init__(self, parent: str | None, head: MessageHead) -> None:
        self.parent = parent
        self.message_id = head.id
        self.shown: set[int] = set()  # blocks with deltas that no assistant frame has confirmed
        self.halves: dict[int, tuple[DeltaKind, str]] = {}
        self.stop_reason: str | None = None
        # The output count of message_start is a placeholder (1). The true count comes with message_delta.
        self.counts = _counts(head.usage)
        self.counts.pop("output_tokens", None)

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


class ClaudeMessages:
    """Messages that are being streamed, one for each parent."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[str | None, StreamedMessage] = {}

    def start(self, parent: str | None, head: MessageHead) -> list[EventBase]:
        events = self._retract_all(parent, "the request was repeated")
        self._open[parent] = StreamedMessage(parent, head)
        events.append(MessageStart(message_id=head.id, model=head.model, parent_tool_use_id=parent))
        return events

    def delta(self, parent: str | None, index: int, kind: DeltaKind, text: str) -> tuple[EventBase, ...]:
        """Return a delta. An empty delta (the first of each tool input) gives nothing."""
        message = self._open.get(parent) or self._message(parent)
        if message.halves:
            return self.broken_delta(parent, index, kind, text)
        if not text:
            return ()
        message.shown.add(index)
        return (ContentDelta(kind, text, index, message.message_id, parent),)

    def broken_delta(self, parent: str | None, index: int, kind: DeltaKind, text: str) -> tuple[EventBase, ...]:
        """Return a delta with halves of surrogate pairs. A high half at its end waits for the next delta of the block."""
        message = self._message(parent)
        _, before = message.halves.pop(index, (kind, ""))
        whole, held = join_halves(before + text)
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
        message = self._open.get(parent)
        if message is None:
            return []
        if message.message_id != message_id:
            return self._retract_all(parent, "another message came in its place")
        message.shown.clear()
        return message.give_up_halves()

    def finish(self) -> list[EventBase]:
        """End the turn: later frames confirm nothing."""
        events = [event for parent in self._open for event in self._retract_all(parent, "no message confirmed it")]
        self._open.clear()
        return events

    def _message(self, parent: str | None) -> StreamedMessage:
        message = self._open.get(parent)
        if message is None:
            message = self._open[parent] = StreamedMessage(parent, MessageHead())
        return message

    def _retract_all(self, parent: str | None, reason: str) -> list[EventBase]:
        message = self._open.get(parent)
        return message.retract(0, reason) if message is not None else []


def _counts(usage: UsageCounts | None) -> dict[str, int]:
    return {} if usage is None else {name: value for name, value in asdict(usage).items() if value is not None}
