"""Reading a journal at one's own pace, from any seq: what is damaged or gone is stepped over, and told."""

from __future__ import annotations

import bisect
import errno
import os
from typing import Literal, NamedTuple

from clisup.host.failpoints import failpoint
from clisup.host.files import storage_error
from clisup.model.journal import stored_event, whole_lines

__all__ = ["Gap", "JournalReader", "Segments", "StoredEvent", "near"]

READ_CHUNK = 64 * 1024  # what one piece of work may take: others wait for it
SEARCHED = 64 * 1024  # bytes that are read through rather than searched


class StoredEvent(NamedTuple):
    """An event as it lies in the journal: `line` holds `src` too, for readers that want the CLI's own line."""

    seq: int
    event: bytes
    line: bytes


class Gap(NamedTuple):
    """Events that a reader cannot have: they are `damaged`, or `retention` has removed them."""

    from_seq: int
    to_seq: int
    reason: Literal["damaged", "retention"]


class Segments:
    """The files of a journal, as a reader goes through them: of the daemon that writes it, or at rest. `next_seq` follows the newest."""

    def __init__(self, directory: str) -> None:
        self._dir = directory
        self._segments: list[int] = []
        self.next_seq = 1

    @property
    def first_seq(self) -> int:
        """The oldest seq that is kept."""
        return self._segments[0] if self._segments else self.next_seq

    def path_of(self, first_seq: int) -> str:
        return os.path.join(self._dir, f"{first_seq:012d}.jsonl")

    def locate(self, seq: int) -> tuple[int, int | None]:
        """(segment, offset) at or before the line of `seq`: where a reader that wants `seq` starts; without an offset it has to search."""
        at = max(0, bisect.bisect_right(self._segments, seq) - 1)
        return (self._segments[at] if self._segments else 0), None

    def next_segment(self, segment: int) -> int | None:
        """The segment after `segment`, or None where that is the last."""
        at = bisect.bisect_right(self._segments, segment)
        return self._segments[at] if at < len(self._segments) else None

    def end_of(self, segment: int) -> int | None:
        """Where its events end; None where that is the end of its file, but for a torn line."""
        return None

    def reader(self, after_seq: int) -> JournalReader:
        """A reader of all events above `after_seq`."""
        return JournalReader(self, after_seq)

    @staticmethod
    def listed(directory: str) -> list[int]:
        """The first seqs of the segments that lie there, oldest first. Raises `OSError`."""
        names = (name.removesuffix(".jsonl") for name in os.listdir(directory) if name.endswith(".jsonl"))
        return sorted(int(name) for name in names if name.isdecimal())


class JournalReader:
    """Reads stored events at its own pace; nothing is queued for it, and it holds no one up.

    What is damaged or gone is passed over, and `take_gap` says so: a hole in the numbers is all that it takes to know.
    """

    def __init__(self, store: Segments, after_seq: int) -> None:
        self._store = store
        self._next = after_seq + 1
        self._fd: int | None = None
        self._segment = 0
        self._offset = 0
        self._chunks = 1  # more where a line is longer than one
        self._gap: Gap | None = None
        self._removed = False  # a segment that should be there is not

    @property
    def position(self) -> int:
        """The next seq that it will give."""
        return self._next

    def seek(self, seq: int) -> None:
        """Give `seq` next: all before it was had from elsewhere."""
        if seq != self._next:
            self._next = seq
            self.close()

    def take_gap(self) -> Gap | None:
        """What is missing before the events that `read` has just given (or, where it gave none, at the journal's end)."""
        gap, self._gap = self._gap, None
        return gap

    def read(self) -> list[StoredEvent]:
        """The next events, in order and without a hole, about 64 KiB of them; empty at the journal's end.

        Raises `WorldError(storage_failed)` where the disk cannot be read; the next call tries that again.
        """
        while self._next < self._store.next_seq:
            if self._fd is None:
                self._open(*self._store.locate(self._next))
                continue
            wanted = self._wanted
            data = self._pread(self._fd, wanted)
            whole = whole_lines(data)
            if whole == 0 and len(data) == wanted:
                self._chunks *= 2  # one line longer than the chunk
                continue
            self._chunks = 1
            if whole == 0:
                self._open(self._store.next_segment(self._segment), 0)
            elif events := self._take(data[:whole]):
                return events
        return []

    @property
    def _wanted(self) -> int:
        """Up to a multiple of the chunk: so readers of one journal come to the same places, wherever each began."""
        size = self._chunks * READ_CHUNK - self._offset % READ_CHUNK
        return size if size >= READ_CHUNK // 8 else size + READ_CHUNK

    def _pread(self, fd: int, wanted: int) -> bytes:
        if (end := self._store.end_of(self._segment)) is not None:
            wanted = min(wanted, max(0, end - self._offset))  # beyond it lies what a failed write has left
        try:
            failpoint("journal.read")
            return os.pread(fd, wanted, self._offset)
        except OSError as error:
            size = os.fstat(fd).st_size
            old = self._store.next_segment(self._segment) is not None
            if error.errno != errno.EIO or not old or self._offset >= size:
                raise storage_error("read the journal", self._store.path_of(self._segment), error) from None
            self._offset = min(
                size, self._offset + READ_CHUNK
            )  # a bad sector: what is cut by this has a wrong checksum
            self._chunks = 1
            return self._pread(fd, READ_CHUNK)

    def _take(self, data: bytes) -> list[StoredEvent]:
        limit = self._store.next_segment(self._segment) or self._store.next_seq
        events: list[StoredEvent] = []
        for line in data.split(b"\n")[:-1]:
            event = _stored(line)
            if event is not None and self._next <= event.seq < limit:
                if event.seq > self._next:
                    if events:
                        break  # it is told before the events that come after it: by the next read
                    self._miss(event.seq)
                events.append(event)
                self._next += 1
            self._offset += len(line) + 1
        return events

    def _miss(self, seq: int) -> None:
        """There is nothing below `seq`. Segments are removed from the oldest on, so what lies after one is damage."""
        if seq > self._next:
            removed = self._removed or self._next < self._store.first_seq
            self._gap = Gap(self._next, seq - 1, "retention" if removed else "damaged")
            self._next = seq
        self._removed = False

    def _open(self, segment: int | None, offset: int | None) -> None:
        """Go on in `segment`, or in the next one that is there. After the last, nothing readable is left."""
        self.close()
        while segment is not None:
            path = self._store.path_of(segment)
            try:
                self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                offset = near(self._fd, self._next) if offset is None else offset
            except FileNotFoundError:
                self._removed = True
                segment, offset = self._store.next_segment(segment), 0
            except OSError as error:
                raise storage_error("read the journal", path, error) from None
            else:
                self._segment, self._offset = segment, offset
                return
        self._miss(self._store.next_seq)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _stored(line: bytes) -> StoredEvent | None:
    """The event in a line; None for a snapshot, and for what is damaged."""
    found = stored_event(line)
    return None if found is None else StoredEvent(*found, line)


def near(fd: int, seq: int) -> int:
    """An offset at or before the line of `seq` in a segment: by halves, as its seqs only grow."""
    with open(fd, "rb", closefd=False) as file:
        low, high = 0, os.fstat(fd).st_size
        while high - low > SEARCHED:
            middle = (low + high) // 2
            file.seek(middle)
            file.readline()  # the rest of a line
            at = file.tell()
            event = _stored(file.readline().removesuffix(b"\n"))
            if at < high and event is not None and event.seq <= seq:
                low = at
            else:
                high = middle  # too far, or damaged there: then the reader begins before it, and steps over
    return low
