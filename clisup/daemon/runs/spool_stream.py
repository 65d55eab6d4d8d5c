"""One spool of a run: where it is read, how it is cut into lines, and which of them wait to be taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clisup.model.lines.framing import Line, LineFramer
from clisup.model.lines.long_line import LONG_LINE
from clisup.store.spool import SpoolReader

__all__ = ["Stream"]


class Stream:
    """`read` gives the bytes that are new, `cut` makes lines of them, which wait until `passed` says that they are taken."""

    def __init__(self, path: str, offset: int, limit: int) -> None:
        self.reader = SpoolReader(path, offset)
        self.framer = LineFramer(offset=offset, limit=limit, pieces_over=LONG_LINE)
        self.read: Callable[[], bytes] = self.reader.read
        self.close: Callable[[], None] = self.reader.close
        self._lines: list[Line] = []  # the last one first; these come before the others
        self._pieces: Sequence[bytes] = ()  # whole lines without their newlines
        self._at = 0  # those before it are taken
        self._start = offset  # where that one begins

    def cut(self, data: bytes) -> None:
        """Cut the next bytes into lines. All lines of before have been taken."""
        lines, self._start, self._pieces = self.framer.cut(data)
        self._lines, self._at = lines[::-1], 0

    @property
    def waits(self) -> bool:
        """A line has been cut and not taken."""
        return self._at < len(self._pieces) or bool(self._lines)

    def stretch(self) -> tuple[Sequence[bytes], int, int]:
        """The lines, which of them is the first that waits, and where it begins. None where it had begun in an earlier read."""
        return ((), 0, 0) if self._lines else (self._pieces, self._at, self._start)

    def next(self) -> Line:
        """The first line that waits."""
        if self._lines:
            return self._lines[-1]
        piece = self._pieces[self._at]
        return Line(self._start, self._start + len(piece) + 1, piece)

    def passed(self, lines: int, end: int) -> None:
        """So many lines have been taken; the last of them ends at `end`."""
        if self._lines:
            self._lines.pop()
        else:
            self._at, self._start = self._at + lines, end

    @property
    def place(self) -> int:
        """The end of the last line that was taken."""
        if self._lines:
            return self._lines[-1].start
        return self._start if self._at < len(self._pieces) else self.framer.offset - self.framer.pending
