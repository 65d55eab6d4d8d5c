"""A stretch of lines that change nothing but the journal: what a decoder makes of them in one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from clisup.model.deltas import Delta
from clisup.model.events import EventBase

__all__ = ["NO_STRETCH", "STRETCH_LINES", "Row", "Stretch", "Told"]

STRETCH_LINES = 512
"""Lines that a decoder takes at once; the daemon looks at the clock between two stretches."""


class Row(Struct, gc=False):
    """Deltas, each the only event of its line; `lines` are the numbers of these lines."""

    deltas: list[Delta]
    lines: list[int]


class Told(Struct, gc=False):
    """The events of line number `line`: at least one, and none that anything has to be decided for."""

    line: int
    events: Sequence[EventBase]


class Stretch(NamedTuple):
    """What was said, in order, and how many lines were taken. Of lines that say nothing there is nothing in it."""

    said: Sequence[Row | Told]
    taken: int


NO_STRETCH = Stretch((), 0)
