"""The short way of deltas: they change nothing but the journal, so by the row they pass all that other events are asked.

What a delta would meet on the way of the others (`Run._take_out`) is decided here for the row. Whatever is more than a delta,
may have been journaled before, or is over the inline limit, is left to that way.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from clisup.backends.base import Decoder, deltas_of
from clisup.core.deltas import DeltaRow
from clisup.core.events import ContentDelta
from clisup.core.ledger import Turn
from clisup.daemon.run_parts import RunSettings

__all__ = ["take_row"]


def take_row(
    pieces: Sequence[bytes], at: int, start: int, turn: Turn, settings: RunSettings, decoder: Decoder
) -> DeltaRow | None:
    """The row of deltas that begins with the line `at`, which begins at `start` in the spool; None where that is none.

    The watch over drift wants to see some lines of each kind first.
    """
    if turn.has_journaled("out", start + 1) or not settings.frames.has_enough(ContentDelta):
        return None
    deltas = deltas_of(decoder)(pieces, at, settings.limits.inline_bytes)
    if not deltas:
        return None
    lengths = (len(piece) + 1 for piece in pieces[at : at + len(deltas)])
    _, *ends = accumulate(lengths, initial=start)
    return DeltaRow(deltas, turn.id, settings.number, start, ends)
