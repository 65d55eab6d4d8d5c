"""One spool of a run: where it is read, and how it is cut into lines."""

from __future__ import annotations

from collections.abc import Callable

from clisup.core.framing import LineFramer
from clisup.core.long_line import LONG_LINE
from clisup.daemon.storage import Storage
from clisup.host.spool import SpoolReader

__all__ = ["Stream"]


class Stream:
    """`framer` makes lines of what `read` gives, long ones in pieces. `place` is where all before it has been cut."""

    def __init__(self, path: str, offset: int, limit: int, storage: Storage) -> None:
        self.reader = SpoolReader(path, offset)
        self.framer = LineFramer(offset=offset, limit=limit, pieces_over=LONG_LINE)
        self.close: Callable[[], None] = self.reader.close
        self._storage = storage

    def read(self) -> bytes:
        """The bytes that are new. Raises `WorldError(storage_failed)`."""
        with self._storage.watched():
            return self.reader.read()

    @property
    def place(self) -> int:
        """The end of the last whole line."""
        return self.framer.offset - self.framer.pending
