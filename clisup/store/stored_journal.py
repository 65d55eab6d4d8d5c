"""Journal without a writer, read as it is on disk: nothing is locked, cut or created."""

from __future__ import annotations

import os
from typing import BinaryIO

from clisup.host.files import storage_error
from clisup.model.journal import stored_event, whole_lines
from clisup.store.journal_reader import Segments
from clisup.store.journal_store import check_version

__all__ = ["StoredJournal"]

TAIL = 64 * 1024


class StoredJournal(Segments):
    """Segments of a journal on disk, up to the last whole event."""

    def __init__(self, directory: str) -> None:
        """Find the segments and the last event.

        Raises `WorldError(storage_failed)` if the journal cannot be read, and `UsageError(unsupported)` if a newer
        clisup wrote it.
        """
        super().__init__(directory)
        try:
            self._segments = self.listed(directory)
            self._find_end()
        except FileNotFoundError:
            pass  # the session was still being created
        except OSError as error:
            raise storage_error("read the journal in", directory, error) from None

    def _find_end(self) -> None:
        while self._segments:
            path = self.path_of(self._segments[-1])
            with open(path, "rb") as file:
                head = file.readline()
                if head.endswith(b"\n"):
                    check_version(path, head)
                    self.next_seq = (_last_seq(file) or self._segments[-1] - 1) + 1
                    return
            self._segments.pop()  # a crash in the middle of its first line: the segment before is the last


def _last_seq(file: BinaryIO) -> int | None:
    """Return the seq of the last whole event, or None if there is no event.

    A torn line may follow the last whole event.
    """
    end, wanted = file.seek(0, os.SEEK_END), TAIL
    while True:
        file.seek(max(0, end - wanted))
        data = file.read(end - file.tell())
        for line in reversed(data[: whole_lines(data)].split(b"\n")[:-1]):
            if (found := stored_event(line)) is not None:
                return found[0]
        if wanted >= end:
            return None
        wanted *= 4  # a line may be longer
