"""Folding of unparsed lines: beyond a limit, consecutive lines share one event, which counts them."""

from __future__ import annotations

from msgspec.structs import replace

from clisup.daemon.runs.batch import Batch
from clisup.daemon.sessions.recorder import Item
from clisup.model.events import EventBase, Unparsed
from clisup.model.lines.framing import Line
from clisup.policy.spill import raw_name

__all__ = ["UnparsedLines"]


class UnparsedLines:
    """Unparsed lines of one turn. `limit` is the limit `unparsed_events`.

    Lines that are decoded again after a restart are counted again, so the count is right without being stored. The place of
    a shared event ends with its last line, so none of its lines gets an event again.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._seen = 0

    def new_turn(self) -> None:
        """Begin to count anew."""
        self._seen = 0

    def count(self, event: EventBase) -> None:
        """Count the event of a line that is decoded."""
        self._seen += type(event) is Unparsed

    def fold(self, item: Item, batch: Batch) -> bool:
        """Join the item with the last one of the batch. Return False if it gets an event of its own."""
        if self._seen <= self._limit + 1 or type(item.event) is not Unparsed:
            return False  # the first one beyond the limit begins the first shared event
        return batch.fold(item, _joined)


def _joined(first: Item, then: Item) -> Item | None:
    """Return both as one item, or None if they are no neighbours of one kind."""
    one, two, begin, end = first.event, then.event, first.src, then.src
    if type(one) is not Unparsed or type(two) is not Unparsed or begin is None or end is None:
        return None
    if (first.turn_id, begin.run, begin.spool) != (then.turn_id, end.run, end.spool):
        return None
    blob = raw_name(end.run, end.spool, Line(begin.start, end.end, b""))
    whole = replace(one, bytes=one.bytes + two.bytes, lines=(one.lines or 1) + 1, blob=blob)
    return replace(first, event=whole, src=replace(end, start=begin.start))
