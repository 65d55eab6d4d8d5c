"""One spool of a run: where it is read, and how it is cut into lines."""

from __future__ import annotations

from clisup.core.framing import LineFramer
from clisup.host.spool import SpoolReader

__all__ = ["Stream"]


class Stream:
    """`read` gives the next bytes of the file, `framer` the lines in them; a line is at most `limit` bytes."""

    def __init__(self, path: str, offset: int, limit: int) -> None:
        self.reader = SpoolReader(path, offset)
        self.framer = LineFramer(offset=offset, limit=limit)
        self.read = self.reader.read
        self.close = self.reader.close
