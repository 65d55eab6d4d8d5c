"""Lines of megabytes are made short step by step, so that other sessions' lines do not wait behind them."""

from __future__ import annotations

import trio

from clisup.backends.base import Decoder, passes_on
from clisup.core.framing import Line
from clisup.core.long_line import shorten

__all__ = ["readable"]


async def readable(line: Line, decoder: Decoder, inline_bytes: int) -> Line:
    """A line that came in pieces, as the decoder can have it."""
    steps = shorten(line, passes_on(decoder), over=inline_bytes)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            short: Line = done.value
            return short
        await trio.lowlevel.checkpoint()
