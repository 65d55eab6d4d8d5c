"""The short way of lines that change nothing but the journal: a stretch of them passes all that other lines are asked, in one step.

What such a line would meet on the way of the others (`Run._take_out`) is decided here, and by the run, for the whole stretch.
Whatever is more than that, may have been journaled before, or is over the inline limit, is left to that way.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from clisup.backends.base import Decoder
from clisup.daemon.runs.run_parts import RunSettings
from clisup.daemon.sessions.recorder import Entry, Item
from clisup.model.deltas import DeltaRow
from clisup.model.events import ContentDelta, EventBase
from clisup.model.journal import Source
from clisup.model.lines.framing import Line
from clisup.model.sessions.ledger import Turn
from clisup.model.stretch import Row, Told
from clisup.ops.drift import FrameSample

__all__ = ["Taken", "take_stretch"]


class Taken(NamedTuple):
    """How many lines were taken, where the last one ends, what is to be journaled of them, and their events but for the deltas."""

    lines: int
    end: int
    entries: list[Entry]
    told: list[EventBase]


def take_stretch(
    pieces: Sequence[bytes], at: int, start: int, turn: Turn, settings: RunSettings, decoder: Decoder
) -> Taken | None:
    """The stretch that begins with the line `at`, which begins at `start` in the spool; None where there is none."""
    if turn.has_journaled("out", start + 1):
        return None
    said, taken = decoder.stretch(pieces, at, settings.limits.inline_bytes)
    if not taken:
        return None
    places = list(accumulate([len(piece) + 1 for piece in pieces[at : at + taken]], initial=start))
    frames = settings.frames
    if _is_watched(frames, said, taken):
        _watch(frames, said, [Line(*of) for of in zip(places, places[1:], pieces[at : at + taken], strict=False)], at)
    entries: list[Entry] = []
    told: list[EventBase] = []
    for part in said:
        if isinstance(part, Row):
            starts, ends = [places[line - at] for line in part.lines], [places[line - at + 1] for line in part.lines]
            entries.append(DeltaRow(part.deltas, turn.id, settings.number, starts, ends))
            continue
        begin, end, events = places[part.line - at], places[part.line - at + 1], part.events
        if not frames.has_enough(type(events[0])):
            frames.look(Line(begin, end, pieces[part.line]), type(events[0]))
        told += events
        for k, event in enumerate(events):
            entries.append(Item(event, turn.id, Source(settings.number, "out", begin, end, k)))
    return Taken(taken, places[-1], entries, told)


def _is_watched(frames: FrameSample, said: Sequence[Row | Told], taken: int) -> bool:
    """Are there deltas, or lines that say nothing, of which it has not seen enough?"""
    if not frames.has_enough(ContentDelta):
        return True
    silent = taken - sum([len(part.lines) if isinstance(part, Row) else 1 for part in said])
    return silent > 0 and not frames.has_enough(None)


def _watch(frames: FrameSample, said: Sequence[Row | Told], lines: Sequence[Line], at: int) -> None:
    """The watch over drift wants to see some of the lines that say a delta, and of those that say nothing."""
    became: dict[int, type[EventBase] | None] = dict.fromkeys(range(at, at + len(lines)))
    for part in said:
        if isinstance(part, Row):
            became |= dict.fromkeys(part.lines, ContentDelta)
        else:
            del became[part.line]
    for number, kind in became.items():
        frames.look(lines[number - at], kind)
