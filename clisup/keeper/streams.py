"""Pipes of the CLI: the output on the way to the spools, and stdin."""

from __future__ import annotations

import errno
import os
import time
from collections import deque

from clisup.keeper.control import ControlSocket
from clisup.keeper.system import BLOCK

REST_BLOCKS = 64  # after the CLI's end: a pipe holds 1 MiB at most, more comes from a kept orphan
TAIL_MAX = 1024 * 1024  # of stderr: the tail is in memory until the end
COPY_S = 0.05  # between two looks at the CLI's stdout file
COPY_BLOCKS = 16  # in one look, so that a flood into the file does not starve the control socket
RETRY_S = 0.25  # between two tries on a full disk
HOPELESS = (errno.EIO, errno.EROFS)  # errors that free space does not mend
HOPELESS_S = 600.0  # of such errors, before the CLI ends
QUEUE_MAX = 64 * 1024 * 1024  # stdin text for a CLI that does not read


class OutputStream:
    """Output pipe of the CLI, with its spool.

    `pending` holds bytes that a full disk refuses. Meanwhile the keeper does not read the pipe.
    """

    def __init__(self, name: str, spool: int, quota: int) -> None:
        self.name, self.spool, self.quota = name, spool, quota
        self.source = -1  # the descriptor to read; -1 at the end of the output
        self.size = os.fstat(spool).st_size
        self.pending = b""
        self.error = 0  # errno of the last write, while bytes are pending
        self.fault = 0  # errno after which the spool takes no more
        self.dropped = 0
        self.finished = False

    def pump(self) -> int:
        """Move one block to the spool. Return its size, or 0 if the pipe has nothing to read now."""
        if self.source < 0 or self.pending:
            return 0
        try:
            data = self._read()
        except BlockingIOError:
            return 0
        self._store(data)
        return len(data)

    def _read(self) -> bytes:
        data = os.read(self.source, BLOCK)
        if not data:
            self.close()
        return data

    def _store(self, data: bytes) -> None:
        """Write within the quota and drop the rest. A CLI over its quota must still be able to write until its end."""
        room = 0 if self.fault else max(0, self.quota - self.size) if self.quota else len(data)
        self._drop(data[room:])
        self.pending = data[:room]
        self.flush()

    def _drop(self, data: bytes) -> None:
        self.dropped += len(data)

    def flush(self) -> None:
        """Write pending bytes to the spool. Sets `error` if the disk refuses."""
        self.error = 0
        while self.pending:
            try:
                written = os.write(self.spool, self.pending)
            except OSError as error:
                self.error = error.errno or errno.EIO
                if self.error == errno.EFBIG:  # RLIMIT_FSIZE: this keeper can never write more
                    self.give_up()
                return
            self.size += written
            self.pending = self.pending[written:]

    def give_up(self) -> None:
        """Drop the pending bytes and all that follow."""
        self.fault, self.error = self.error, 0
        rest, self.pending = self.pending, b""
        self._drop(rest)

    def drain(self) -> None:
        """Read the rest in the pipe of a dead CLI."""
        for _ in range(REST_BLOCKS):
            if not self.pump():
                return

    def finish(self) -> None:
        """Write the end of the spool, once. Called until no bytes are pending."""

    def close(self) -> None:
        """Close the pipe."""
        if self.source >= 0:
            os.close(self.source)
        self.source = -1


class LimitedStderr(OutputStream):
    """stderr under a quota: the head goes to the spool, the tail stays in memory until the end, the middle is dropped."""

    def __init__(self, name: str, spool: int, limit: int) -> None:
        self.tail_max = min(limit // 2, TAIL_MAX)
        self.tail = bytearray()
        super().__init__(name, spool, limit - self.tail_max)

    def _drop(self, data: bytes) -> None:
        self.tail += data
        surplus = max(0, len(self.tail) - self.tail_max)
        del self.tail[:surplus]
        self.dropped += surplus

    def finish(self) -> None:
        if self.finished or self.pending:
            return
        self.finished = True
        note = f"\n[clisup: {self.dropped} bytes of stderr dropped]\n".encode() if self.dropped else b""
        self.pending = note + bytes(self.tail)
        self.tail.clear()
        self.flush()


class OutputFile(OutputStream):
    """stdout of a CLI that loses unread pipe data at its exit. The CLI writes to a file, and the keeper copies the file."""

    shrunk = False
    _offset = 0

    def _read(self) -> bytes:
        if os.fstat(self.source).st_size < self._offset:
            # A tool's `> /dev/stdout` cut the file. The removed bytes were copied before, and new bytes start at 0.
            self.shrunk, self._offset = True, 0
        data = os.pread(self.source, BLOCK, self._offset)
        self._offset += len(data)
        return data

    def drain(self) -> None:
        """Copy up to the file's present end, because a kept orphan may write forever."""
        end = os.fstat(self.source).st_size if self.source >= 0 else 0
        while self._offset < end and self.pump():
            pass


class Outputs:
    """stdout and stderr. Reports growth and a full disk to the daemon, and retries after a full disk."""

    def __init__(self, out: OutputStream, err: OutputStream, control: ControlSocket) -> None:
        self.out, self.err = out, err
        self._control = control
        self._retry_at: float | None = None
        self._refused_at = 0.0
        self._copy_at = 0.0

    @property
    def sizes(self) -> tuple[int, int]:
        return self.out.size, self.err.size

    @property
    def blocked(self) -> bool:
        """Tell whether the disk refuses bytes."""
        return bool(self.out.pending or self.err.pending)

    @property
    def at_end(self) -> bool:
        """Tell whether both pipes are at their end. A file has no end."""
        return self.err.source < 0 and (self.out.source < 0 or isinstance(self.out, OutputFile))

    @property
    def file_shrunk(self) -> bool:
        return isinstance(self.out, OutputFile) and self.out.shrunk

    def readable(self) -> list[OutputStream]:
        """Return the pipes to poll."""
        return [
            stream
            for stream in (self.out, self.err)
            if stream.source >= 0 and not stream.pending and not isinstance(stream, OutputFile)
        ]

    def deadlines(self) -> list[float]:
        """Return the times of the next retry and the next look at a stdout file."""
        due = [] if self._retry_at is None else [self._retry_at]
        if self._copies():
            due.append(self._copy_at)
        return due

    def check(self, now: float) -> None:
        """Handle the due deadlines."""
        if self._retry_at is not None and now >= self._retry_at:
            self._retry()
        if self._copies() and now >= self._copy_at:
            self._copy_file(now)

    def _copies(self) -> bool:
        return isinstance(self.out, OutputFile) and self.out.source >= 0 and not self.out.pending

    def _copy_file(self, now: float) -> None:
        was_shrunk, self._copy_at = self.file_shrunk, now + COPY_S
        for _ in range(COPY_BLOCKS):
            if not self.out.pump():
                break
        else:
            self._copy_at = now
        if self.file_shrunk and not was_shrunk:
            self._control.push({"push": "file_shrunk"})
        self.report()

    def _retry(self) -> None:
        for stream in (self.out, self.err):
            stream.flush()
            if stream.error in HOPELESS and time.monotonic() - self._refused_at > HOPELESS_S:
                stream.give_up()
        self._retry_at = time.monotonic() + RETRY_S if self.blocked else None
        if not self.blocked:
            self._control.push({"push": "unblocked"})
        self._control.report_growth(self.sizes)

    def report(self) -> None:
        """Report growth, and a disk that began to refuse bytes."""
        for stream in (self.out, self.err):
            if stream.error and self._retry_at is None:
                self._refused_at = time.monotonic()
                self._retry_at = self._refused_at + RETRY_S
                self._control.push({"push": "blocked", "stream": stream.name, "errno": stream.error})
        self._control.report_growth(self.sizes)

    def drain(self) -> None:
        """Read the rest in the pipes of a dead CLI."""
        for stream in (self.out, self.err):
            stream.drain()
        self.report()

    def finish(self) -> None:
        """Stop reading, and write the tail of stderr."""
        self.drain()
        self.err.finish()
        self.report()

    def record(self) -> dict[str, int]:
        """Return the fields of the exit record about output."""
        return {
            "out": self.out.size, "err": self.err.size,
            "out_dropped": self.out.dropped, "err_dropped": self.err.dropped,
        }  # fmt: skip


class StdinQueue:
    """Messages to the CLI's stdin. Each is written whole, in order, and each id at most once."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.last_taken = self.last_written = 0
        self.error: str | None = None
        self._queue: deque[tuple[int | None, bytes | None]] = deque()  # id and text; None for the end of stdin
        self._left = memoryview(b"")  # of the first message: cut without copies
        self._queued = 0  # bytes
        self._first_refused = 0  # the first id without room: later ids must not overtake it

    def __bool__(self) -> bool:
        """Tell whether a message waits for the CLI to read."""
        return self.fd >= 0 and bool(self._queue)

    def add(self, number: int | None, data: bytes | None) -> str | None:
        """Queue a message. Return the reason of a refusal, or None: `write` then returns the id of the whole written message."""
        if self.fd < 0:
            return self.error or "closed"
        if self._queue and self._queue[-1][1] is None:
            return "closed"
        size = len(data or b"")
        if self._queued + size > QUEUE_MAX or (number and 0 < self._first_refused < number):
            self._first_refused = self._first_refused or number or 0
            return "full"
        self._first_refused, self.last_taken = 0, number or self.last_taken
        self._queue.append((number, data))
        self._queued += size
        if len(self._queue) == 1:
            self._left = memoryview(data or b"")
        return None

    def write(self) -> list[int]:
        """Write as much as the pipe takes. Return the ids of whole messages. Set `error` if the CLI closed stdin."""
        done: list[int] = []
        while self._queue:
            number, data = self._queue[0]
            try:
                while self._left:
                    written = os.write(self.fd, self._left)
                    self._left, self._queued = self._left[written:], self._queued - written
            except BlockingIOError:
                break
            except OSError as error:
                self.error = errno.errorcode.get(error.errno or 0, "EIO")
                break
            self._next()
            if data is None:
                self._close()
            if number is not None:
                self.last_written = number
                done.append(number)
        return done

    def _next(self) -> None:
        self._queue.popleft()
        self._left = memoryview((self._queue[0][1] or b"") if self._queue else b"")

    def abandon(self) -> list[int]:
        """Close the pipe. Return the ids of messages that stay incomplete."""
        lost = [number for number, _ in self._queue if number is not None]
        self._queue.clear()
        self._left, self._queued = memoryview(b""), 0
        self._close()
        return lost

    def _close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
