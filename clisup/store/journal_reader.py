"""Reader of a journal, at its own pace and from any seq. Damaged or removed events are skipped and reported."""

from __future__ import annotations

import bisect
import errno
import os
from typing import Literal, NamedTuple

from clisup.host.failpoints import failpoint
from clisup.host.files import storage_error
from clisup.model.journal import stored_event, whole_lines

__all__ = ["JournalGap", "JournalReader", "Segments", "StoredEvent", "near"]

READ_CHUNK = 64 * 1024  # limit of one piece of work: other tasks wait for it
SEARCHED = 64 * 1024  # a span of this many bytes is read through, not searched


class StoredEvent(NamedTuple):
    """Event as stored in the journal. `line` also holds `src`, for readers that want the CLI's own line."""

    seq: int
    event: bytes
    line: bytes


class JournalGap(NamedTuple):
    """Gap of events that a reader cannot get: the events are `damaged`, or `retention` has removed them."""

    from_seq: int
    to_seq: int
    reason: Literal["damaged", "retention"]


class Segments:
    """Segment files of a journal, as a reader sees them. `next_seq` follows the newest event.

    A daemon may be writing the journal, or the journal may be at rest.
    """

    def __init__(self, directory: str) -> None:
        self._dir = directory
        self._segments: list[int] = []
        self.next_seq = 1

    @property
    def first_seq(self) -> int:
        """Return the oldest seq that is kept."""
        return self._segments[0] if self._segments else self.next_seq

    def path_of(self, first_seq: int) -> str:
        """Return the path of the segment that begins with `first_seq`."""
        return os.path.join(self._dir, f"{first_seq:012d}.jsonl")

    def locate(self, seq: int) -> tuple[int, int | None]:
        """Return the (segment, offset) where a reader of `seq` starts, at or before the line of `seq`.

        An offset of None means that the reader has to search the segment.
        """
        at = max(0, bisect.bisect_right(self._segments, seq) - 1)
        return (self._segments[at] if self._segments else 0), None

    def next_segment(self, segment: int) -> int | None:
        """Return the segment after `segment`, or None if `segment` is the last."""
        at = bisect.bisect_right(self._segments, segment)
        return self._segments[at] if at < len(self._segments) else None

    def end_of(self, segment: int) -> int | None:
        """Return the end of the events in `segment`. None means the end of the file, except for a torn line."""
        return None

    def reader(self, after_seq: int) -> JournalReader:
        """Return a reader of all events above `after_seq`."""
        return JournalReader(self, after_seq)

    @staticmethod
    def listed(directory: str) -> list[int]:
        """Return the first seqs of the segments in `directory`, oldest first. Raises `OSError`."""
        names = (name.removesuffix(".jsonl") for name in os.listdir(directory) if name.endswith(".jsonl"))
        return sorted(int(name) for name in names if name.isdecimal())


class JournalReader:
    """Reader of stored events, at its own pace. Nothing is queued for the reader, and the reader delays nobody else.

    The reader skips damaged and removed events, and `take_gap` reports them. A hole in the seqs is enough to detect
    them.
    """

    def __init__(self, store: Segments, after_seq: int) -> None:
        self._store = store
        self._next = after_seq + 1
        self._fd: int | None = None
        self._segment = 0
        self._offset = 0
        self._chunks = 1  # more if a line is longer than a chunk
        self._gap: JournalGap | None = None
        self._removed = False  # an expected segment is missing

    @property
    def position(self) -> int:
        """Return the seq of the next event to read."""
        return self._next

    def seek(self, seq: int) -> None:
        """Continue at `seq`: the caller already has all earlier events."""
        if seq != self._next:
            self._next = seq
            self.close()

    def take_gap(self) -> JournalGap | None:
        """Return and clear the gap before the events of the last `read`.

        After an empty `read`, the gap is at the journal's end.
        """
        gap, self._gap = self._gap, None
        return gap

    def read(self) -> list[StoredEvent]:
        """Return about 64 KiB of the next events, in order and without a hole.

        Return an empty list at the journal's end.

        Raises `WorldError(storage_failed)` if the disk cannot be read; the next call tries again.
        """
        while self._next < self._store.next_seq:
            if self._fd is None:
                self._open(*self._store.locate(self._next))
                continue
            wanted = self._wanted
            data = self._pread(self._fd, wanted)
            whole = whole_lines(data)
            if whole == 0 and len(data) == wanted:
                self._chunks *= 2  # one line is longer than the chunk
                continue
            self._chunks = 1
            if whole == 0:
                self._open(self._store.next_segment(self._segment), 0)
            elif events := self._take(data[:whole]):
                return events
        return []

    @property
    def _wanted(self) -> int:
        """Return the number of bytes to the next multiple of the chunk.

        Readers of one journal thereby read the same chunks, even if they began at different offsets.
        """
        size = self._chunks * READ_CHUNK - self._offset % READ_CHUNK
        return size if size >= READ_CHUNK // 8 else size + READ_CHUNK

    def _pread(self, fd: int, wanted: int) -> bytes:
        if (end := self._store.end_of(self._segment)) is not None:
            wanted = min(wanted, max(0, end - self._offset))  # a failed write may have left bytes after the end
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
            )  # a bad sector: a line that this cuts has a wrong checksum
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
                        break  # the next read reports the gap, before the events after it
                    self._miss(event.seq)
                events.append(event)
                self._next += 1
            self._offset += len(line) + 1
        return events

    def _miss(self, seq: int) -> None:
        """Record that no event below `seq` can be read.

        Segments are removed from the oldest on, so a gap after an existing segment is damage.
        """
        if seq > self._next:
            removed = self._removed or self._next < self._store.first_seq
            self._gap = JournalGap(self._next, seq - 1, "retention" if removed else "damaged")
            self._next = seq
        self._removed = False

    def _open(self, segment: int | None, offset: int | None) -> None:
        """Continue in `segment`, or in the next existing segment. After the last segment, nothing readable is left."""
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
        """Close the file. A second call is safe."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _stored(line: bytes) -> StoredEvent | None:
    """Return the event of a line, or None for a snapshot and for a damaged line."""
    found = stored_event(line)
    return None if found is None else StoredEvent(*found, line)


def near(fd: int, seq: int) -> int:
    """Return an offset at or before the line of `seq` in a segment, by binary search.

    The seqs of a segment only grow.
    """
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
                high = middle  # too far, or damaged: the reader begins before the damage and skips it
    return low
