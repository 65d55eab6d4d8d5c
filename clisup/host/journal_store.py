"""A session's journal on disk: append-only segments, one writer, any number of readers at their own pace.

A segment is `<first_seq>.jsonl`; its first line is a snapshot. A write that the disk refuses is taken back whole, so a
segment holds whole lines and at most one torn tail: that of a crash in mid-write, cut at the next start.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from clisup.core.journal import Record, encode_snapshot, event_seq, event_slice, read_lines, whole_lines
from clisup.errors import WorldError
from clisup.host.failpoints import armed, failpoint
from clisup.host.files import make_private_dir, storage_error, sync_directory

__all__ = ["JournalReader", "JournalStore", "StoredEvent"]

READ_CHUNK = 64 * 1024  # what one piece of work may take: others wait for it
LOAD_CHUNK = 1024 * 1024
INDEX_EVERY = 64 * 1024  # bytes of journal between two entries of the index that finds a seq


class StoredEvent(NamedTuple):
    """An event as it lies in the journal: `line` holds `src` too, for readers that want the CLI's own line."""

    seq: int
    event: bytes
    line: bytes


class JournalStore:
    """The writer's side. `load` once, then `append`; `first_seq` and `next_seq` bound what a reader can get."""

    def __init__(self, directory: str, *, segment_bytes: int) -> None:
        self._dir = directory
        self._segment_bytes = segment_bytes
        self._fd: int | None = None
        self._size = 0
        self._head = 0  # bytes of the last segment's snapshot
        self._segments: list[int] = []
        self._index: list[tuple[int, int]] = []  # (seq, offset) in the last segment
        self.next_seq = 1

    @property
    def first_seq(self) -> int:
        """The oldest seq that is kept."""
        return self._segments[0] if self._segments else self.next_seq

    def load(self) -> Iterator[Record]:
        """Open the journal, cut a torn tail, give the last segment's records (its snapshot first).

        Raises `WorldError(storage_failed)` for a segment that is damaged in the middle: nothing is changed then.
        """
        try:
            yield from self._load()
        except OSError as error:
            raise storage_error("read the journal in", self._dir, error) from None

    def _load(self) -> Iterator[Record]:
        make_private_dir(self._dir)
        names = (name.removesuffix(".jsonl") for name in os.listdir(self._dir) if name.endswith(".jsonl"))
        self._segments = sorted(int(name) for name in names if name.isdecimal())
        self._drop_empty_tail()
        if not self._segments:
            return
        path = self.path_of(self._segments[-1])
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        self.next_seq = self._segments[-1]
        yield from self._read_segment(path)

    def _drop_empty_tail(self) -> None:
        """A crash between making a segment and writing its first line leaves half of that: the one before it is the last."""
        while self._segments:
            path = self.path_of(self._segments[-1])
            with open(path, "rb") as file:
                head = file.readline()
            if head.endswith(b"\n"):
                self._head = len(head)
                return
            os.unlink(path)
            self._segments.pop()

    def _read_segment(self, path: str) -> Iterator[Record]:
        fd, offset, rest = self._fd, 0, b""
        assert fd is not None
        while chunk := os.pread(fd, LOAD_CHUNK, offset + len(rest)):
            data = rest + chunk
            whole = whole_lines(data)
            for record in self._records(data[:whole], path, offset):
                if record.event is not None:
                    self.next_seq = record.event["seq"] + 1
                yield record
            if not self._index or offset - self._index[-1][1] >= INDEX_EVERY:
                self._index.append((self.next_seq, offset + whole))
            offset, rest = offset + whole, data[whole:]
        if rest:
            os.ftruncate(fd, offset)
        self._size = offset

    @staticmethod
    def _records(data: bytes, path: str, offset: int) -> list[Record]:
        try:
            return read_lines(data)
        except ValueError as error:
            raise _damaged(path, offset, error) from None

    def append(self, lines: list[bytes], count: int, snapshot: dict[str, Any] | None = None) -> None:
        """Write `lines`, which hold `count` events from `next_seq` on: all of them or none.

        `snapshot` is the state before them; it heads a new segment where one is due. Raises `WorldError(storage_failed)`.
        """
        data = b"".join(lines)
        if self._fd is None or (snapshot is not None and self.wants_snapshot(len(data))):
            self._roll(snapshot or {})
        self._write(data)
        if not self._index or self._size - self._index[-1][1] >= INDEX_EVERY:
            self._index.append((self.next_seq, self._size))
        self._size += len(data)
        self.next_seq += count

    def wants_snapshot(self, more: int) -> bool:
        """The next append of `more` bytes should bring a snapshot, because a new segment is due."""
        if self._fd is None:
            return True
        # Not before the segment holds events, and not for a snapshot alone that is larger than a segment should be.
        full = self._size + more > max(self._segment_bytes, 4 * self._head)
        return full and self.next_seq > self._segments[-1]

    def _write(self, data: bytes) -> None:
        assert self._fd is not None
        try:
            failpoint("journal.before")
            written = 0
            if armed("journal.torn"):
                written = os.write(self._fd, data[: len(data) // 2])
                failpoint("journal.torn")
            while written < len(data):
                written += os.write(self._fd, memoryview(data)[written:])
        except OSError as error:
            os.ftruncate(self._fd, self._size)  # half a line would be a torn tail in the middle of a living journal
            raise storage_error("append to the journal", self.path_of(self._segments[-1]), error) from None
        failpoint("journal.after")

    def _roll(self, snapshot: dict[str, Any]) -> None:
        path = self.path_of(self.next_seq)
        head = encode_snapshot(snapshot)
        try:
            failpoint("segment.before")
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise storage_error("make the journal", path, error) from None
        try:
            if os.write(fd, head) != len(head):
                raise OSError(28, "No space left on device")
            sync_directory(self._dir)
            failpoint("segment.after")
        except OSError as error:
            os.close(fd)
            os.unlink(path)
            raise storage_error("write the journal", path, error) from None
        if self._fd is not None:
            os.close(self._fd)
        self._fd, self._size, self._head, self._index = fd, len(head), len(head), []
        if not self._segments or self._segments[-1] != self.next_seq:
            self._segments.append(self.next_seq)

    def duplicate(self) -> int | None:
        """A descriptor of its own to sync: the store may close its file, for a new segment, while a thread syncs."""
        return os.dup(self._fd) if self._fd is not None else None

    def sync(self, fd: int) -> None:
        """Make what was appended survive a power loss. Blocks: call it in a thread. Raises `WorldError(storage_failed)`."""
        try:
            failpoint("sync.before")
            os.fdatasync(fd)
        except OSError as error:
            raise storage_error("sync the journal in", self._dir, error) from None

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def path_of(self, first_seq: int) -> str:
        return os.path.join(self._dir, f"{first_seq:012d}.jsonl")

    def locate(self, seq: int) -> tuple[int, int]:
        """(segment, offset) at or before the line of `seq`: where a reader that wants `seq` starts."""
        at = max(0, bisect.bisect_right(self._segments, seq) - 1)
        segment = self._segments[at] if self._segments else 0
        if at != len(self._segments) - 1:
            return segment, _near(self.path_of(segment), seq)
        entry = bisect.bisect_right(self._index, (seq, 1 << 62)) - 1
        return segment, self._index[entry][1] if entry >= 0 else 0

    def next_segment(self, segment: int) -> int | None:
        """The segment after `segment`, or None where that is the last."""
        at = bisect.bisect_right(self._segments, segment)
        return self._segments[at] if at < len(self._segments) else None

    def reader(self, after_seq: int) -> JournalReader:
        """A reader of all events above `after_seq`."""
        return JournalReader(self, after_seq)


class JournalReader:
    """Reads stored events at its own pace; nothing is queued for it, and it holds no one up."""

    def __init__(self, store: JournalStore, after_seq: int) -> None:
        self._store = store
        self._next = after_seq + 1
        self._fd: int | None = None
        self._segment = 0
        self._offset = 0
        self._want = READ_CHUNK

    @property
    def position(self) -> int:
        """The next seq that it will give."""
        return self._next

    def read(self) -> list[StoredEvent]:
        """The next events, in order, about 64 KiB of them; empty at the journal's end.

        Raises `WorldError(storage_failed)` where it is damaged.
        """
        if self._next >= self._store.next_seq:
            return []
        if self._fd is None:
            self._open(*self._store.locate(self._next))
        while True:
            assert self._fd is not None
            data = os.pread(self._fd, self._want, self._offset)
            whole = whole_lines(data)
            if whole == 0 and len(data) == self._want:
                self._want *= 2  # one line longer than the chunk
                continue
            if whole == 0:
                following = self._store.next_segment(self._segment)
                if following is None:
                    return []
                self._open(following, 0)
                continue
            self._offset += whole
            self._want = READ_CHUNK
            try:
                events = self._events(data[:whole])
            except ValueError as error:
                path = self._store.path_of(self._segment)
                raise _damaged(path, self._offset - whole, error) from None
            if events:
                self._next = events[-1].seq + 1
                return events

    def _events(self, data: bytes) -> list[StoredEvent]:
        events = []
        for line in data.splitlines():
            event = event_slice(line)
            if event is None and not line.startswith(b'{"snapshot"'):
                raise ValueError("a line that is none of ours")
            if event is not None and (seq := event_seq(event)) >= self._next:
                events.append(StoredEvent(seq, event, line))
        return events

    def _open(self, segment: int, offset: int) -> None:
        self.close()
        self._fd = os.open(self._store.path_of(segment), os.O_RDONLY | os.O_CLOEXEC)
        self._segment, self._offset = segment, offset

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _near(path: str, seq: int) -> int:
    """An offset at or before the line of `seq` in a segment: by halves, as its seqs only grow. All of it is a second's work."""
    with open(path, "rb") as file:
        low, high = 0, os.fstat(file.fileno()).st_size
        while high - low > INDEX_EVERY:
            middle = (low + high) // 2
            file.seek(middle)
            file.readline()  # the rest of a line
            at = file.tell()
            if at < high and _seq_of(file.readline()) <= seq:
                low = at
            else:
                high = middle
    return low


def _seq_of(line: bytes) -> float:
    """Of a journal line; above all others where it is none of ours, which the reader then meets."""
    try:
        event = event_slice(line)
        return event_seq(event) if event is not None else float("inf")
    except ValueError:
        return float("inf")


def _damaged(path: str, offset: int, error: ValueError) -> WorldError:
    return WorldError(
        f"cannot read the journal {path}, because it is damaged after byte {offset}: {error}",
        kind="storage_failed",
        hint="move the session's directory away, or restore it from a backup",
    )
