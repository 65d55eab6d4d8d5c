"""Stream of lines from one spool of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from clisup.model.lines.framing import Line, LineFramer
from clisup.model.lines.long_line import LONG_LINE
from clisup.store.spool import SpoolReader

__all__ = ["Stream"]

CHUNK_LINES = 128
"""Most lines of one chunk. The daemon checks the clock between two chunks."""


class Stream:
    """`read` returns new bytes, `cut` makes lines of them. The lines wait until `passed` says that they are taken."""

    def __init__(self, path: str, offset: int, limit: int) -> None:
        self.reader = SpoolReader(path, offset)
        self.framer = LineFramer(offset=offset, limit=limit, pieces_over=LONG_LINE)
        self.read: Callable[[], bytes] = self.reader.read
        self.close: Callable[[], None] = self.reader.close
        self._lines: list[Line] = []
        self._at = 0  # the lines before it are taken

    def cut(self, data: bytes) -> None:
        """Cut the next bytes into lines. All earlier lines have been taken."""
        self._lines, self._at = self.framer.feed(data), 0

    @property
    def waits(self) -> bool:
        """Tell whether a line waits to be taken."""
        return self._at < len(self._lines)

    def next(self) -> Line:
        """Return the first line that waits."""
        return self._lines[self._at]

    def chunk(self, limit: int) -> Iterator[Line]:
        """Yield the lines that wait, up to the first that is longer than `limit` bytes."""
        for line in islice(self._lines, self._at, self._at + CHUNK_LINES):
            if line.end - line.start > limit:
                return
            yield line

    def passed(self, lines: int) -> None:
        """Drop so many lines: they have been taken."""
        self._at += lines

    @property
    def place(self) -> int:
        """Return the end of the last line that was taken."""
        return self._lines[self._at].start if self.waits else self.framer.offset - self.framer.pending
