"""Rows of claude's deltas, which are three of four of its lines: what `ClaudeDecoder.decode` says of each, in one loop.

A line is taken here only where it says one delta, or nothing at all; the first that is anything more ends the row, and goes
the way of all lines. Recorded with claude 2.1.329; one that puts the fields in another order is decoded there, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from clisup.backends.claude_frames import (
    SAID,
    BlockDelta,
    BlockStart,
    BlockStop,
    MessageDelta,
    StreamEvent,
)
from clisup.backends.claude_messages import Messages
from clisup.core.deltas import Delta, Row

__all__ = ["row_of"]

_HEAD = b'{"type":"stream_event","event":{"type":"'
_decode = msgspec.json.Decoder(StreamEvent).decode


def row_of(messages: Messages, lines: Sequence[bytes], begin: int, limit: int) -> Row:
    """The lines from `begin` on up to the first that says anything but one delta, or is over `limit` bytes."""
    deltas: list[Delta] = []
    places: list[int] = []
    at = begin
    for at in range(begin, len(lines)):
        data = lines[at]
        if not data.startswith(_HEAD) or len(data) >= limit:
            break
        try:
            frame = _decode(data)
        except (ValueError, RecursionError):
            break
        event, parent = frame.event, frame.parent_tool_use_id
        if type(event) is not BlockDelta:
            if not _is_silent(messages, event, parent):
                break
            continue
        delta = event.delta
        if (found := SAID.get(type(delta))) is None:
            continue  # STREAM_SILENT says why
        kind, text = found[0], getattr(delta, found[1])
        if (message := messages.whole(parent)) is None:
            break
        if text:
            message.shown.add(event.index)
            deltas.append(Delta(kind, text, event.index, message.message_id, parent))
            places.append(at)
    else:
        at = len(lines)
    return Row(deltas, places, at - begin)


def _is_silent(messages: Messages, event: object, parent: str | None) -> bool:
    """Does it say nothing? Then it has been taken note of."""
    if type(event) is MessageDelta:
        messages.note_end(parent, event.delta.stop_reason, event.usage)
        return True
    return type(event) is BlockStart or (type(event) is BlockStop and messages.whole(parent) is not None)
