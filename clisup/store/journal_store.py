"""Journal of one session on disk: append-only segments, one writer, any number of readers at their own pace.

A segment is `<first_seq>.jsonl`; its first line is a snapshot. A write that the disk refuses is undone completely. A
segment therefore holds whole blocks and at most one torn tail. A crash in the middle of a write leaves a torn tail, and
the next start cuts it. After a failed sync the store does not trust unsynced bytes, because the kernel drops such
pages. The next append then begins a segment. Its snapshot holds everything that the old segment should hold.
"""

from __future__ import annotations

import bisect
import errno
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any, BinaryIO

from clisup.errors import UsageError, WorldError
from clisup.host.capacity import file_size_limit
from clisup.host.failpoints import ARMED, failpoint
from clisup.host.files import FILE_LIMIT, make_private_dir, open_regular, storage_error, sync_directory
from clisup.model.journal import (
    JOURNAL_VERSION,
    DamagedEntry,
    Record,
    encode_snapshot,
    read_entries,
    version_of,
)
from clisup.store.journal_reader import Segments

__all__ = ["JournalStore", "check_version", "segment_records"]

LOAD_CHUNK = 1024 * 1024
INDEX_EVERY = 64 * 1024  # bytes of journal between two entries of the index that finds a seq
_APPENDS = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MAX_UNSYNCED = 4  # full segments that wait for the next sync; one more is synced at once


class JournalStore(Segments):
    """Journal for its writer. Call `load` once, then `append`.

    A reader can get the events from `first_seq` up to `next_seq`. `durable` means that `sync` will be called: a full
    segment then waits for the sync.
    """

    def __init__(self, directory: str, *, segment_bytes: int, durable: bool = True) -> None:
        super().__init__(directory)
        self._segment_bytes = segment_bytes
        self._largest = file_size_limit()
        self._durable = durable
        self._unsynced: list[int] = []  # descriptors of full segments
        self._unlisted = False  # the name of the first segment waits for the next sync, too
        self._distrusted = False  # a sync failed, and no segment was begun since
        self._old = False  # the last segment was begun in an earlier version of the format
        self._torn = False  # half a block at the end that the disk did not let us undo
        self._debris: str | None = None  # path of half a segment that the disk did not let us remove
        self._fd: int | None = None
        self._resting = False  # `rest` has closed the last segment
        self._dirty = False  # the last segment holds events that no sync has reached
        self._size = 0
        self._head = 0  # bytes of the last segment's snapshot
        self._index: list[tuple[int, int]] = []  # (seq, offset) in the last segment

    def renew(self, *, segment_bytes: int, durable: bool) -> None:
        """Use other settings from the next append on. Without `durable`, close the full segments: no sync will come."""
        self._segment_bytes = segment_bytes
        self._durable = durable
        if not durable:
            for fd in self._unsynced:
                os.close(fd)
            self._unsynced = []

    @property
    def head_seq(self) -> int:
        """Return the first seq of the last segment: its snapshot holds everything before."""
        return self._segments[-1] if self._segments else self.next_seq

    def load(self, wanted: Collection[str] | None = None) -> Iterator[Record]:
        """Open the journal, cut a torn tail, and yield the records of the last segment, its snapshot first.

        `wanted` has the meaning it has in `read_entries`. Raises `WorldError(storage_failed)` for a segment that is
        damaged in the middle, and `UsageError(unsupported)` for a segment of a later version; nothing is then changed.
        """
        try:
            yield from self._load(wanted)
        except OSError as error:
            raise storage_error("read the journal in", self._dir, error) from None

    def _load(self, wanted: Collection[str] | None) -> Iterator[Record]:
        make_private_dir(self._dir)
        self._segments = self.listed(self._dir)
        self._drop_empty_tail()
        if not self._segments:
            return
        path = self.path_of(self._segments[-1])
        self._fd = os.open(path, _APPENDS)
        self.next_seq = self._segments[-1]
        yield from self._read_segment(path, wanted)

    def _drop_empty_tail(self) -> None:
        """Remove last segments without a whole first line. The segment before is then the last.

        A crash between creating a segment and writing its first line leaves such a file.
        """
        while self._segments:
            path = self.path_of(self._segments[-1])
            with open(open_regular(path), "rb") as file:
                head = file.readline(FILE_LIMIT)
            if len(head) == FILE_LIMIT:
                raise OSError(errno.EFBIG, "its first line is too long", path)
            if head.endswith(b"\n"):
                self._old = check_version(path, head) < JOURNAL_VERSION
                self._head = len(head)
                return
            os.unlink(path)
            self._segments.pop()

    def _read_segment(self, path: str, wanted: Collection[str] | None) -> Iterator[Record]:
        assert self._fd is not None
        with open(self._fd, "rb", closefd=False) as file:
            for offset, records in segment_records(path, file, wanted):
                for record in records:
                    if record.event is not None:
                        self.next_seq = record.event["seq"] + 1
                    yield record
                if not self._index or offset - self._index[-1][1] >= INDEX_EVERY:
                    self._index.append((self.next_seq, offset))
                self._size = offset
        if self._size < os.fstat(self._fd).st_size:
            os.ftruncate(self._fd, self._size)  # a torn tail

    def append(self, data: bytes, count: int, snapshot: dict[str, Any] | None = None) -> None:
        """Write all of `data` or nothing. The data are blocks that hold `count` events from `next_seq` on.

        `snapshot` is the state before the events; it becomes the head of a new segment if one is due. Raises
        `WorldError(storage_failed)`.
        """
        if self._torn or self._debris is not None:
            self._mend()
        if self._fd is None or (snapshot is not None and self.wants_snapshot(len(data))):
            self._roll(snapshot or {})
        self._write(data)
        if not self._index or self._size - self._index[-1][1] >= INDEX_EVERY:
            self._index.append((self.next_seq, self._size))
        self._size += len(data)
        self.next_seq += count

    def wants_snapshot(self, more: int) -> bool:
        """Tell whether the next append of `more` bytes should bring a snapshot, because a new segment is due.

        Every append asks first. Raises `WorldError(storage_failed)` if the segment of a resting journal cannot be opened.
        """
        if self._resting:
            self._wake()
        if self._fd is None:
            return True
        # No segment is due before this one holds events, or because its snapshot alone exceeds the segment size.
        size = max(self._segment_bytes, 4 * self._head)
        if self._largest is not None:
            size = min(size, self._largest)
        due = self._distrusted or self._old or self._size + more > size
        return due and self.next_seq > self._segments[-1]

    def _write(self, data: bytes) -> None:
        assert self._fd is not None
        self._dirty = True
        try:
            written = 0
            if ARMED:
                failpoint("journal.before")
            if "journal.torn" in ARMED:
                written = os.write(self._fd, data[: len(data) // 2])
                failpoint("journal.torn")
            while written < len(data):
                written += os.write(self._fd, memoryview(data)[written:])
        except OSError as error:
            self._torn = True
            with suppress(WorldError):
                self._mend()
            raise storage_error("append to the journal", self.path_of(self._segments[-1]), error) from None
        if ARMED:
            failpoint("journal.after")

    def _mend(self) -> None:
        """Remove the remains of a failed write. Nothing is appended before this has worked.

        Half a block would be a torn tail in the middle of a live journal. The next start would take half a segment for
        the last segment.
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
            fd = os.open(
                path,
                _APPENDS | os.O_CREAT | os.O_TRUNC,
                0o600,
            )
        except OSError as error:
            raise storage_error("make the journal", path, error) from None
        try:
            if os.write(fd, head) != len(head):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._make_durable(fd)
            failpoint("segment.after")
        except OSError as error:
            os.close(fd)
            self._debris = path
            with suppress(WorldError):
                self._mend()
            raise storage_error("write the journal", path, error) from None
        if self._fd is not None:
            self._retire(self._fd)
        self._resting = False
        self._fd, self._size, self._head, self._index = fd, len(head), len(head), []
        self._distrusted = self._old = False
        if not self._segments or self._segments[-1] != self.next_seq:
            self._segments.append(self.next_seq)

    def _make_durable(self, fd: int) -> None:
        """Sync a new segment, which replaces the segments before it.

        The first segment replaces none: its sync may wait until its first event is synced.
        """
        self._unlisted = self._durable and not self._segments
        if self._unlisted:
            return
        if self._durable:
            os.fdatasync(fd)
        sync_directory(self._dir)

    def release(self, upto: int, snapshot: dict[str, Any]) -> list[str]:
        """Drop the segments without an event above `upto`. Return their paths, oldest first, for the caller to unlink.

        If no other segment is left, begin a new segment with `snapshot`. Raises `WorldError(storage_failed)`.
        """
        if self._segments and self._segments[-1] < self.next_seq <= upto + 1:
            self._roll(snapshot)  # replaces a resting segment, too
        ends = [following - 1 for following in self._segments[1:]]
        count = sum(end <= upto for end in ends)
        gone, self._segments = self._segments[:count], self._segments[count:]
        return [self.path_of(segment) for segment in gone]

    def _retire(self, fd: int) -> None:
        """Keep a full segment until its end is synced. Only a few segments wait for that."""
        if not self._durable:
            os.close(fd)
            return
        self._unsynced.append(fd)
        if len(self._unsynced) > MAX_UNSYNCED:
            with suppress(WorldError):  # the next sync that needs this one fails and reports the error
                self.sync([self._unsynced.pop(0)])

    def unsynced(self) -> list[int]:
        """Return descriptors of everything that a sync has to reach, for one call of `sync`, which closes them.

        Raises `WorldError(storage_failed)`.
        """
        own: list[int] = []
        try:
            if self._fd is not None:
                own.append(os.dup(self._fd))
            if self._unlisted:
                own.append(os.open(self._dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except OSError as error:
            for fd in own:
                os.close(fd)
            raise storage_error("sync the journal in", self._dir, error) from None
        fds, self._unsynced, self._unlisted, self._dirty = [*self._unsynced, *own], [], False, False
        return fds

    def sync(self, fds: list[int]) -> None:
        """Make the appended events survive a power loss. Raises `WorldError(storage_failed)`.

        The function blocks: call it in a thread. After a failure every further call fails until an append has begun a
        segment.
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

    def rest(self) -> None:
        """Close the last segment until the next append: a session at rest holds no descriptor. Nothing unsynced is closed."""
        if self._fd is None or self._torn or (self._durable and (self._dirty or self._unlisted)):
            return
        os.close(self._fd)
        self._fd, self._resting = None, True

    def _wake(self) -> None:
        """Open the last segment again. If a tool has removed or changed the file, leave it: a new segment is due."""
        path = self.path_of(self._segments[-1])
        try:
            fd = os.open(path, _APPENDS)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENXIO, errno.ELOOP):
                raise storage_error("append to the journal", path, error) from None
            self._resting = False
            return
        self._resting = False
        if os.fstat(fd).st_size == self._size:
            self._fd = fd
        else:
            os.close(fd)

    def close(self) -> None:
        """Close the files. A second call is safe."""
        while self._unsynced:
            os.close(self._unsynced.pop())
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def locate(self, seq: int) -> tuple[int, int | None]:
        """Return the (segment, offset) where a reader of `seq` starts. The last segment has an index."""
        segment, _ = super().locate(seq)
        if self._segments and segment != self._segments[-1]:
            return segment, None
        entry = bisect.bisect_right(self._index, (seq, 1 << 62)) - 1
        return segment, self._index[entry][1] if entry >= 0 else 0

    def end_of(self, segment: int) -> int | None:
        """Return the end of the written and reported bytes of the last segment, or None for an earlier segment.

        The remains of a failed write lie after this end.
        """
        return self._size if self._segments and segment == self._segments[-1] else None


def check_version(path: str, head: bytes) -> int:
    """Return the version of a segment from its first line.

    Raises `UsageError(unsupported)` for a later version than this code knows.
    """
    version = version_of(head)
    if version > JOURNAL_VERSION:
        raise UsageError(
            f"cannot read the journal {path}, because a newer clisup wrote it (version {version})",
            kind="unsupported",
            hint="use that version, or move the session's directory away",
        )
    return version


def segment_records(
    path: str, file: BinaryIO, wanted: Collection[str] | None = None, *, skip_damage: bool = False
) -> Iterator[tuple[int, list[Record]]]:
    """Yield the records of a segment in parts, each with the offset of its end. Leave a torn tail out.

    `wanted` and `skip_damage` have the meaning they have in `read_entries`. Raises `WorldError(storage_failed)` for a
    damaged entry.
    """
    offset, rest = 0, b""
    # As much again as an unfinished entry has, so that a long one is read in few steps, but not much more than one may have.
    while chunk := file.read(min(max(LOAD_CHUNK, len(rest)), FILE_LIMIT + LOAD_CHUNK - len(rest))):
        data = rest + chunk
        try:
            records, whole = read_entries(data, wanted, skip_damage=skip_damage)
        except DamagedEntry as damage:
            raise _damaged(path, offset + damage.offset, damage.why) from None
        offset, rest = offset + whole, data[whole:]
        yield offset, records
        if len(rest) > FILE_LIMIT:  # a tool may have made the file as large as it likes
            raise _damaged(path, offset, f"an entry has no end within {FILE_LIMIT} bytes")


def _damaged(path: str, offset: int, why: str) -> WorldError:
    """Return the error of a damaged segment, with a hint that says how to repair it."""
    return WorldError(
        f"cannot read the journal {path}, because it is damaged at byte {offset}: {why}",
        kind="storage_failed",
        hint=f"stop the daemon, copy that file, and `truncate -s {offset}` it: what lies before is kept",
        path=path,
        offset=offset,
    )
