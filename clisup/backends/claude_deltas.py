"""Rows of claude's deltas, which are three of four of its lines: what `ClaudeDecoder.decode` says of each, in one loop.

A line is taken here only where it says one delta and nothing else; the first that is anything more ends the row, and goes
the way of all lines. Recorded with claude 2.1.329; one that puts the fields in another order is decoded there, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec

from clisup.backends.claude_frames import BlockDelta, InputDelta, StreamEvent, TextDelta, ThinkingDelta
from clisup.backends.claude_messages import Messages
from clisup.core.deltas import Delta

__all__ = ["row_of"]

_HEAD = b'{"type":"stream_event","event":{"type":"content_block_delta",'
_decode = msgspec.json.Decoder(StreamEvent).decode


def row_of(messages: Messages, lines: Sequence[bytes], begin: int, limit: int) -> list[Delta]:
    """The deltas of the lines from `begin` on, one of each, up to the first line that is no plain delta or over `limit` bytes."""
    deltas: list[Delta] = []
    for data in islice(lines, begin, None):
        if not data.startswith(_HEAD) or len(data) >= limit:
            break
        try:
            frame = _decode(data)
        except (ValueError, RecursionError):
            break
        event, parent = frame.event, frame.parent_tool_use_id
        if type(event) is not BlockDelta:  # a second `type` in one object, say
            break
        delta = event.delta
        made: Delta | None = None
        if type(delta) is TextDelta:
            made = messages.plain_delta(parent, event.index, "text", delta.text)
        elif type(delta) is InputDelta:
            made = messages.plain_delta(parent, event.index, "tool_input", delta.partial_json)
        elif type(delta) is ThinkingDelta:
            made = messages.plain_delta(parent, event.index, "thinking", delta.thinking)
        if made is None:
            break
        deltas.append(made)
    return deltas
