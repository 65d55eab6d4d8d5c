"""The short way of deltas: they change nothing but the journal, so by the row they pass all that other events are asked.

What a delta would meet on the way of the others (`Run._take_out`) is decided here for the row. Whatever is more than a delta,
may have been journaled before, or is over the inline limit, is left to that way.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from clisup.backends.base import Decoder, deltas_of
from clisup.core.deltas import DeltaRow
from clisup.core.events import ContentDelta
from clisup.core.ledger import Turn
from clisup.daemon.run_parts import RunSettings

__all__ = ["Taken", "take_row"]


class Taken(NamedTuple):
    """How many lines were taken, where the last one ends, and what is to be journaled of them, if anything is."""

    lines: int
    end: int
    row: DeltaRow | None


def take_row(
    pieces: Sequence[bytes], at: int, start: int, turn: Turn, settings: RunSettings, decoder: Decoder
) -> Taken | None:
    """The row that begins with the line `at`, which begins at `start` in the spool; None where that is none.

    The watch over drift wants to see some lines of each kind first.
    """
    frames = settings.frames
    if turn.has_journaled("out", start + 1) or not frames.has_enough(ContentDelta) or not frames.has_enough(None):
        return None
    deltas, lines, taken = deltas_of(decoder)(pieces, at, settings.limits.inline_bytes)
    if not taken:
        return None
    places = list(accumulate([len(piece) + 1 for piece in pieces[at : at + taken]], initial=start))
    if not deltas:
        return Taken(taken, places[-1], None)
    starts, ends = [places[line - at] for line in lines], [places[line - at + 1] for line in lines]
    return Taken(taken, places[-1], DeltaRow(deltas, turn.id, settings.number, starts, ends))
