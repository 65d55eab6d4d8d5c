"""One spool of a run: where it is read, and how it is cut into lines."""

from __future__ import annotations

from collections.abc import Callable

from clisup.core.framing import LineFramer
from clisup.core.long_line import LONG_LINE
from clisup.host.spool import SpoolReader

__all__ = ["Stream"]


class Stream:
    """`read` gives the bytes that are new, `framer` makes lines of them. `place` is where all before it has been cut."""

    def __init__(self, path: str, offset: int, limit: int) -> None:
        self.reader = SpoolReader(path, offset)
        self.framer = LineFramer(offset=offset, limit=limit, pieces_over=LONG_LINE)
        self.read: Callable[[], bytes] = self.reader.read
        self.close: Callable[[], None] = self.reader.close

    @property
    def place(self) -> int:
        """The end of the last whole line."""
        return self.framer.offset - self.framer.pending
