"""A session's journal on disk: append-only segments, one writer, any number of readers at their own pace.

A segment is `<first_seq>.jsonl`; its first line is a snapshot. A write that the disk refuses is taken back whole, so a
segment holds whole lines and at most one torn tail: that of a crash in mid-write, cut at the next start. What was not synced
is not trusted after a failed sync (the kernel gives such pages up): the next append begins a segment, whose snapshot says
all that the old one should have said.
"""

from __future__ import annotations

import bisect
import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from clisup.core.journal import (
    JOURNAL_VERSION,
    DamagedLine,
    Record,
    encode_snapshot,
    event_seq,
    event_slice,
    is_intact,
    read_lines,
    version_of,
    whole_lines,
)
from clisup.errors import UsageError, WorldError
from clisup.host.failpoints import armed, failpoint
from clisup.host.files import make_private_dir, storage_error, sync_directory

__all__ = ["Gap", "JournalReader", "JournalStore", "StoredEvent"]

READ_CHUNK = 256 * 1024
INDEX_EVERY = 64 * 1024  # bytes of journal between two entries of the index that finds a seq
MAX_UNSYNCED = 4  # segments that are full and wait for the next sync; one more is synced at once


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


class JournalStore:
    """The writer's side. `load` once, then `append`; `first_seq` and `next_seq` bound what a reader can get.

    `durable` says that `sync` is going to be called: a segment that is full then waits for it.
    """

    def __init__(self, directory: str, *, segment_bytes: int, durable: bool = True) -> None:
        self._dir = directory
        self._segment_bytes = segment_bytes
        self._durable = durable
        self._unsynced: list[int] = []  # descriptors of full segments
        self._distrusted = False  # a sync failed, and no segment was begun since
        self._torn = False  # half a line at the end, that the disk did not let us take back
        self._debris: str | None = None  # so for half a segment
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

        Raises `WorldError(storage_failed)` for a segment that is damaged in the middle and `UsageError(unsupported)` for one
        of a later version: nothing is changed then.
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
                _check_version(path, head)
                self._head = len(head)
                return
            os.unlink(path)
            self._segments.pop()

    def _read_segment(self, path: str) -> Iterator[Record]:
        fd, offset, rest = self._fd, 0, b""
        assert fd is not None
        while chunk := os.pread(fd, READ_CHUNK * 4, offset + len(rest)):
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
        except DamagedLine as damage:
            raise _damaged(path, offset + damage.offset, damage.why) from None

    def append(self, lines: list[bytes], count: int, snapshot: dict[str, Any] | None = None) -> None:
        """Write `lines`, which hold `count` events from `next_seq` on: all of them or none.

        `snapshot` is the state before them; it heads a new segment where one is due. Raises `WorldError(storage_failed)`.
        """
        self._mend()
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
        due = self._distrusted or self._size + more > max(self._segment_bytes, 4 * self._head)
        return due and self.next_seq > self._segments[-1]

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
            self._torn = True
            with suppress(WorldError):
                self._mend()
            raise storage_error("append to the journal", self.path_of(self._segments[-1]), error) from None
        failpoint("journal.after")

    def _mend(self) -> None:
        """Take back what a failed write has left: half a line would be a torn tail in the middle of a living journal, and
        half a segment would be taken for the last one at the next start. Nothing is appended before that has worked.
        """
        try:
            if self._torn and self._fd is not None:
                failpoint("journal.mend")
                os.ftruncate(self._fd, self._size)
                self._torn = False
            if self._debris is not None:
                failpoint("segment.mend")
                with suppress(FileNotFoundError):
                    os.unlink(self._debris)
                self._debris = None
        except OSError as error:
            raise storage_error("mend the journal in", self._dir, error) from None

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
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self._durable:
                os.fdatasync(fd)
            sync_directory(self._dir)
            failpoint("segment.after")
        except OSError as error:
            os.close(fd)
            self._debris = path
            with suppress(WorldError):
                self._mend()
            raise storage_error("write the journal", path, error) from None
        if self._fd is not None:
            self._retire(self._fd)
        self._fd, self._size, self._head, self._index = fd, len(head), len(head), []
        self._distrusted = False
        if not self._segments or self._segments[-1] != self.next_seq:
            self._segments.append(self.next_seq)

    def release(self, upto: int, snapshot: dict[str, Any]) -> list[str]:
        """Give up the segments that hold no event above `upto`; their paths, for the caller to unlink, oldest first.

        Where that is all there is, a new segment is begun with `snapshot`. Raises `WorldError(storage_failed)`.
        """
        if self._segments and self._segments[-1] < self.next_seq <= upto + 1:
            self._roll(snapshot)
        ends = [following - 1 for following in self._segments[1:]]
        count = sum(end <= upto for end in ends)
        gone, self._segments = self._segments[:count], self._segments[count:]
        return [self.path_of(segment) for segment in gone]

    def _retire(self, fd: int) -> None:
        """The end of a full segment has still to be synced: only a few of them wait for that."""
        if not self._durable:
            os.close(fd)
            return
        self._unsynced.append(fd)
        if len(self._unsynced) > MAX_UNSYNCED:
            with suppress(WorldError):  # the sync that counts on it says so
                self.sync([self._unsynced.pop(0)])

    def unsynced(self) -> list[int]:
        """Descriptors of all that a sync has to reach, for one call of `sync`; it closes them."""
        try:
            own = [os.dup(self._fd)] if self._fd is not None else []
        except OSError as error:
            raise storage_error("sync the journal in", self._dir, error) from None
        fds, self._unsynced = [*self._unsynced, *own], []
        return fds

    def sync(self, fds: list[int]) -> None:
        """Make what was appended survive a power loss. Blocks: call it in a thread. Raises `WorldError(storage_failed)`.

        After a failure every further call fails until an append has begun a segment.
        """
        try:
            failpoint("sync.before")
            for fd in fds:
                os.fdatasync(fd)
            if self._distrusted:
                raise OSError(errno.EIO, "an earlier sync failed")
        except OSError as error:
            self._distrusted = True
            raise storage_error("sync the journal in", self._dir, error) from None
        finally:
            for fd in fds:
                os.close(fd)

    def close(self) -> None:
        """Close the files; safe to call twice."""
        while self._unsynced:
            os.close(self._unsynced.pop())
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
            return segment, 0
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
    """Reads stored events at its own pace; nothing is queued for it, and it holds no one up.

    What is damaged or gone is passed over, and `take_gap` says so: a hole in the numbers is all that it takes to know.
    """

    def __init__(self, store: JournalStore, after_seq: int) -> None:
        self._store = store
        self._next = after_seq + 1
        self._fd: int | None = None
        self._segment = 0
        self._offset = 0
        self._want = READ_CHUNK
        self._gap: Gap | None = None
        self._removed = False  # a segment that should be there is not

    @property
    def position(self) -> int:
        """The next seq that it will give."""
        return self._next

    def take_gap(self) -> Gap | None:
        """What is missing before the events that `read` has just given (or, where it gave none, at the journal's end)."""
        gap, self._gap = self._gap, None
        return gap

    def read(self) -> list[StoredEvent]:
        """The next events, in order and without a hole, about 256 KiB of them; empty at the journal's end.

        Raises `WorldError(storage_failed)` where the disk cannot be read; the next call tries that again.
        """
        while self._next < self._store.next_seq:
            if self._fd is None:
                self._open(*self._store.locate(self._next))
                continue
            data = self._pread(self._fd)
            whole = whole_lines(data)
            if whole == 0 and len(data) == self._want:
                self._want *= 2  # one line longer than the chunk
                continue
            self._want = READ_CHUNK
            if whole == 0:
                self._open(self._store.next_segment(self._segment), 0)
            elif events := self._take(data[:whole]):
                return events
        return []

    def _pread(self, fd: int) -> bytes:
        try:
            failpoint("journal.read")
            return os.pread(fd, self._want, self._offset)
        except OSError as error:
            size = os.fstat(fd).st_size
            old = self._store.next_segment(self._segment) is not None
            if error.errno != errno.EIO or not old or self._offset >= size:
                raise storage_error("read the journal", self._store.path_of(self._segment), error) from None
            self._offset = min(
                size, self._offset + READ_CHUNK
            )  # a bad sector: what is cut by this has a wrong checksum
            self._want = READ_CHUNK
            return self._pread(fd)

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

    def _open(self, segment: int | None, offset: int) -> None:
        """Go on in `segment`, or in the next one that is there. After the last, nothing readable is left."""
        self.close()
        while segment is not None:
            path = self._store.path_of(segment)
            try:
                self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
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
    if not is_intact(line):
        return None
    try:
        event = event_slice(line)
        return None if event is None else StoredEvent(event_seq(event), event, line)
    except ValueError:
        return None


def _check_version(path: str, head: bytes) -> None:
    version = version_of(head)
    if version > JOURNAL_VERSION:
        raise UsageError(
            f"cannot read the journal {path}, because a newer clisup wrote it (version {version})",
            kind="unsupported",
            hint="use that version, or move the session's directory away",
        )


def _damaged(path: str, offset: int, why: str) -> WorldError:
    return WorldError(
        f"cannot read the journal {path}, because it is damaged at byte {offset}: {why}",
        kind="storage_failed",
        hint=f"stop the daemon, copy that file, and `truncate -s {offset}` it: what lies before is kept",
        path=path,
        offset=offset,
    )
