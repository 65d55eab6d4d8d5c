"""A journal that nobody writes, to be read as it lies there: nothing is locked, cut or made."""

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
    """What lies there, up to its last whole event."""

    def __init__(self, directory: str) -> None:
        """Raises `WorldError(storage_failed)` where it cannot be read, `UsageError(unsupported)` where a newer clisup wrote it."""
        super().__init__(directory)
        try:
            self._segments = self.listed(directory)
            self._find_end()
        except FileNotFoundError:
            pass  # of a session that was being made
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
            self._segments.pop()  # a crash in the middle of its first line: the one before it is the last


def _last_seq(file: BinaryIO) -> int | None:
    """Of the last event that is whole: behind it there may be a torn line. None where there is none."""
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
