"""Lines by the stretch wherever a decoder takes some, and else one by one: as a run goes through them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clisup.backends.base import Decoder
from clisup.model.lines.framing import Line
from clisup.model.stretch import Row, Told

__all__ = ["through"]


def through(decoder: Decoder, lines: Sequence[Line], limit: int) -> Iterator[tuple[Sequence[Row | Told], int]]:
    """What was said, step by step, and how many lines the stretch took: 0 where the line was decoded by itself."""
    pieces, at = [b"" if line.oversize or not line.complete else line.data for line in lines], 0
    while at < len(lines):
        said, taken = decoder.stretch(pieces, at, limit)
        if taken:
            yield said, taken
        else:
            events = decoder.decode(lines[at]).events
            yield [Told(at, events)] if events else [], 0
        at += taken or 1
