"""Stretches of claude's lines: what `ClaudeDecoder.decode` says of each, in one loop.

Three of four lines say one delta, and most others what nobody has to decide about. The first line that may be anything more
ends the stretch, and goes the way of all lines. Recorded with claude 2.1.329.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clisup.backends.claude.frames import SAID, BlockDelta, HotFrame, StreamEvent, decode_hot
from clisup.backends.claude.messages import Messages
from clisup.backends.frames import MalformedError
from clisup.model.deltas import Delta
from clisup.model.events import EventBase
from clisup.model.stretch import STRETCH_LINES, Row, Stretch, Told

__all__ = ["stretch"]


def stretch(
    messages: Messages,
    told: Callable[[HotFrame, bytes], Sequence[EventBase] | None],
    lines: Sequence[bytes],
    begin: int,
    limit: int,
) -> Stretch:
    """The lines from `begin` on up to the first that is over `limit` bytes, or that neither this loop nor `told` knows.

    They are `STRETCH_LINES` at most.

    `told` gives the events of a frame that is no delta; None, and where it raises MalformedError, it has noted nothing.
    """
    said: list[Row | Told] = []
    row = Row([], [])
    at, end = begin, min(len(lines), begin + STRETCH_LINES)
    for at in range(begin, end):
        data = lines[at]
        if len(data) >= limit:
            break
        try:
            frame = decode_hot(data)
            if type(frame) is not StreamEvent or type(frame.event) is not BlockDelta:
                if (events := told(frame, data)) is None:
                    break
                if events:
                    row = _after(said, row)
                    said.append(Told(at, events))
                continue
        except (ValueError, RecursionError, MalformedError):
            break
        event, delta, parent = frame.event, frame.event.delta, frame.parent_tool_use_id
        if (found := SAID.get(type(delta))) is None:
            continue  # STREAM_SILENT says why
        kind, text = found[0], getattr(delta, found[1])
        if (message := messages.whole(parent)) is None:
            break
        if text:
            message.shown.add(event.index)
            row.deltas.append(Delta(kind, text, event.index, message.message_id, parent))
            row.lines.append(at)
    else:
        at = end
    _after(said, row)
    return Stretch(said, at - begin)


def _after(said: list[Row | Told], row: Row) -> Row:
    """The row is over, and the next one begins."""
    if not row.deltas:
        return row
    said.append(row)
    return Row([], [])
