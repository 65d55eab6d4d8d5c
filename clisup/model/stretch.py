"""Stretch of lines that change nothing but the journal, decoded in one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from clisup.model.deltas import Delta
from clisup.model.events import EventBase

__all__ = ["NO_STRETCH", "STRETCH_LINES", "Row", "Stretch", "Told"]

STRETCH_LINES = 512
"""Lines that a decoder takes at once. The daemon checks the clock between two stretches."""


class Row(Struct, gc=False):
    """Deltas, each the only event of its line. `lines` are the numbers of these lines."""

    deltas: list[Delta]
    lines: list[int]


class Told(Struct, gc=False):
    """Events of line number `line`: at least one, and none that needs a decision."""

    line: int
    events: Sequence[EventBase]


class Stretch(NamedTuple):
    """Decoded lines: their events in order, and the number of lines taken.

    Lines without events leave no trace in `said`.
    """

    said: Sequence[Row | Told]
    taken: int


NO_STRETCH = Stretch((), 0)
