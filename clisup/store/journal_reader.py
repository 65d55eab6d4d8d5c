"""Reader of a journal, at its own pace and from any seq. Damaged or removed events are skipped and reported."""

from __future__ import annotations

import bisect
import errno
import os
from collections.abc import Iterator
from typing import BinaryIO, Literal, NamedTuple

from clisup.host.failpoints import failpoint
from clisup.host.files import FILE_LIMIT, open_regular, storage_error
from clisup.model.envelope import FRAME_BEGIN
from clisup.model.journal import JournalBlock, StoredEvent, first_seq_of, joined, scan

__all__ = ["JournalGap", "JournalReader", "Segments", "near"]

READ_CHUNK = 64 * 1024  # limit of one piece of work: other tasks wait for it
SEARCHED = 64 * 1024  # a span of this many bytes is read through, not searched


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
        """Return the (segment, offset) where a reader of `seq` starts, at or before the block of `seq`.

        An offset of None means that the reader has to search the segment.
        """
        at = max(0, bisect.bisect_right(self._segments, seq) - 1)
        return (self._segments[at] if self._segments else 0), None

    def next_segment(self, segment: int) -> int | None:
        """Return the segment after `segment`, or None if `segment` is the last."""
        at = bisect.bisect_right(self._segments, segment)
        return self._segments[at] if at < len(self._segments) else None

    def end_of(self, segment: int) -> int | None:
        """Return the end of the events in `segment`. None means the end of the file, except for a torn tail."""
        return None

    def reader(self, after_seq: int) -> JournalReader:
        """Return a reader of all events above `after_seq`."""
        return JournalReader(self, after_seq)

    def events(self, after_seq: int) -> Iterator[StoredEvent]:
        """Yield all events above `after_seq`, without a word about gaps. Raises `WorldError(storage_failed)`."""
        reader = self.reader(after_seq)
        try:
            while (block := reader.read()) is not None:
                yield from block.events()
        finally:
            reader.close()

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
        self._chunks = 1  # more if a block is longer than a chunk
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

    def read(self) -> JournalBlock | None:
        """Return about 64 KiB of the next events, in order and without a hole.

        Return None at the journal's end.

        Raises `WorldError(storage_failed)` if the disk cannot be read; the next call tries again.
        """
        while self._next < self._store.next_seq:
            if self._fd is None:
                self._open(*self._store.locate(self._next))
                continue
            wanted = self._chunks * READ_CHUNK
            data = self._pread(self._fd, wanted)
            events, whole = self._take(data)
            self._offset += whole
            if whole == 0 and len(data) == wanted:
                self._chunks *= 2  # one block is longer than the data
                continue
            self._chunks = 1
            if events is not None:
                return events
            if whole == 0:
                self._open(self._store.next_segment(self._segment), 0)
        return None

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
            self._offset = min(size, self._offset + READ_CHUNK)  # a bad sector: the rest of a block is damage
            self._chunks = 1
            return self._pread(fd, READ_CHUNK)

    def _take(self, data: bytes) -> tuple[JournalBlock | None, int]:
        """Return the next events of the data, and the bytes that are done with."""
        limit = self._store.next_segment(self._segment) or self._store.next_seq
        blocks, whole = list[JournalBlock](), 0
        for end, entry in scan(data):
            block = entry.between(self._next, limit) if isinstance(entry, JournalBlock) else None
            if block is not None and block.sources:
                if block.frames.first > self._next:
                    if blocks:
                        break  # the next read reports the gap, before the events after it
                    self._miss(block.frames.first)
                blocks.append(block)
                self._next = block.frames.end
            whole = end
        return (joined(blocks) if blocks else None), whole

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
                self._fd = open_regular(path)
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


def near(fd: int, seq: int) -> int:
    """Return an offset at or before the block of `seq` in a segment, by binary search.

    The seqs of a segment only grow.
    """
    with open(fd, "rb", closefd=False) as file:
        low, high = 0, os.fstat(fd).st_size
        while high - low > SEARCHED:
            middle = (low + high) // 2
            file.seek(middle)
            file.readline(FILE_LIMIT)  # the rest of a line
            at, first = _next_entry(file, high)
            if at < high and first is not None and first <= seq:
                low = at
            else:
                high = middle  # too far, or damaged: the reader begins before the damage and skips it
    return low


def _next_entry(file: BinaryIO, high: int) -> tuple[int, int | None]:
    """Return the offset of the next entry below `high` and its first seq. Pass over the rest of a block."""
    at, line = file.tell(), file.readline(FILE_LIMIT)
    while line.startswith(FRAME_BEGIN) and at < high:
        at, line = file.tell(), file.readline(FILE_LIMIT)
    return at, first_seq_of(line)
