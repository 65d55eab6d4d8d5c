"""A journal that nobody writes, to be read as it lies there: nothing is locked, cut or made."""

from __future__ import annotations

import bisect
import os
from typing import BinaryIO

from clisup.core.journal import stored_event, whole_lines
from clisup.host.files import storage_error
from clisup.host.journal_reader import JournalReader, segments_in
from clisup.host.journal_store import check_version

__all__ = ["StoredJournal"]

TAIL = 64 * 1024


class StoredJournal:
    """What `JournalReader` asks of a journal. `next_seq` is the one after its last whole event."""

    def __init__(self, directory: str) -> None:
        """Raises `WorldError(storage_failed)` where it cannot be read, `UsageError(unsupported)` where a newer clisup wrote it."""
        self._dir = directory
        self._segments: list[int] = []
        self.next_seq = 1
        try:
            self._segments = segments_in(directory)
            self._find_end()
        except FileNotFoundError:
            pass  # of a session that was being made
        except OSError as error:
            raise storage_error("read the journal in", directory, error) from None

    @property
    def first_seq(self) -> int:
        return self._segments[0] if self._segments else self.next_seq

    def path_of(self, first_seq: int) -> str:
        return os.path.join(self._dir, f"{first_seq:012d}.jsonl")

    def locate(self, seq: int) -> tuple[int, int | None]:
        at = max(0, bisect.bisect_right(self._segments, seq) - 1)
        return (self._segments[at] if self._segments else 0), None

    def next_segment(self, segment: int) -> int | None:
        at = bisect.bisect_right(self._segments, segment)
        return self._segments[at] if at < len(self._segments) else None

    def end_of(self, segment: int) -> int | None:
        """A torn line at its end is no event, and who reads knows it."""
        return None

    def reader(self, after_seq: int = 0) -> JournalReader:
        """A reader of all events above `after_seq`."""
        return JournalReader(self, after_seq)

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
