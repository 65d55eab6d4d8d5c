"""The way of most lines of a running turn: a delta changes nothing but the journal, so it passes all that others are asked.

What a delta would meet on the way of the others (`Run._take_out`) is decided here once for many lines. Any line that is more
than a delta, that was journaled before, or that is over the inline limit, is left to that way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from clisup.backends.base import Decoded
from clisup.core.events import ContentDelta
from clisup.core.framing import Line
from clisup.core.journal import Source
from clisup.core.ledger import Turn
from clisup.daemon.recorder import Item
from clisup.daemon.run_parts import RunSettings

__all__ = ["Taken", "take_deltas"]


class Taken(NamedTuple):
    """How many lines of those given were taken, and what the next one was decoded to; None after the last."""

    items: list[Item]
    taken: int
    other: Decoded | None


def take_deltas(
    lines: Sequence[Line], begin: int, turn: Turn, settings: RunSettings, decode: Callable[[Line], Decoded]
) -> Taken:
    """Decode lines from `begin` on, and make items of them for as long as they hold deltas alone."""
    items: list[Item] = []
    run, limit, see = settings.number, settings.limits.inline_bytes, settings.frames.see
    turn_id, position = turn.id, turn.position.get("out")
    known = position.end if position is not None else 0
    for at in range(begin, len(lines)):
        line = lines[at]
        decoded = decode(line)
        events = decoded.events
        if len(events) != 1 or type(events[0]) is not ContentDelta or not decoded.plain:
            return Taken(items, at - begin, decoded)
        start, end = line.start, line.end
        if end <= known or end - start > limit:
            return Taken(items, at - begin, decoded)
        see(line, events)
        items.append(Item(events[0], turn_id, Source(run, "out", start, end, 0)))
    return Taken(items, len(lines) - begin, None)
