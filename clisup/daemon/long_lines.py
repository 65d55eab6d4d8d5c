"""Lines of megabytes are made short step by step, so that other sessions' lines do not wait behind them."""

from __future__ import annotations

import trio

from clisup.backends.base import Decoder, passes_on
from clisup.core.framing import Line
from clisup.core.long_line import shorten

__all__ = ["readable"]


async def readable(lines: list[Line], decoder: Decoder, inline_bytes: int) -> list[Line]:
    """The lines as the decoder can have them: none in pieces."""
    if lines and lines[0].pieces:  # only the first one can have begun before what was read last
        lines[0] = await _shortened(lines[0], decoder, inline_bytes)
    return lines


async def _shortened(line: Line, decoder: Decoder, inline_bytes: int) -> Line:
    steps = shorten(line, passes_on(decoder), over=inline_bytes)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            short: Line = done.value
            return short
        await trio.lowlevel.checkpoint()
