"""Lines of megabytes are made short step by step, so that other sessions' lines do not wait behind them."""

from __future__ import annotations

import trio

from clisup.backends.base import Decoder
from clisup.config.model import LimitsConfig
from clisup.model.lines.framing import Line
from clisup.model.lines.json_values import has_more_values
from clisup.model.lines.long_line import shorten

__all__ = ["readable"]


async def readable(line: Line, decoder: Decoder, limits: LimitsConfig) -> Line:
    """Make a line readable for the decoder. One of more than `line_values` values becomes an oversize line, unread."""
    if line.pieces:
        line = await _short(line, decoder, limits)
    return line.without_text() if has_more_values(line.data, limits.line_values) else line


async def _short(line: Line, decoder: Decoder, limits: LimitsConfig) -> Line:
    steps = shorten(line, decoder.passes_on, over=limits.inline_bytes, most_values=limits.line_values)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            short: Line = done.value
            return short
        await trio.lowlevel.checkpoint()
