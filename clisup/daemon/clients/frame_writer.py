"""Writer of whole frames to a connection, one task at a time, and at once if the socket accepts them.

trio's `send_all` makes a round of the scheduler with each call. Under load a round takes as long as one step of every
task, and followers of a flood fell behind. `write_now` writes without a round. At most one piece that the socket does
not accept waits here, and all later frames wait for this piece.
"""

from __future__ import annotations

import os

import trio

from clisup.daemon.clients.buffer_budget import HeldBytes
from clisup.host.failpoints import ARMED, failpoint

__all__ = ["FrameWriter"]

_EMPTY = memoryview(b"")


class FrameWriter:
    """Writer of one connection. Unsent bytes count as held by the client."""

    def __init__(self, stream: trio.SocketStream, held: HeldBytes) -> None:
        self._stream = stream
        self._held = held
        self._lock = trio.Lock()
        self._rest = _EMPTY
        self._waiting: trio.Event | None = None  # one task waits for the socket, and other tasks wait for that task

    @property
    def busy(self) -> bool:
        """True while a task writes, or bytes are left over."""
        return bool(self._rest) or self._lock.locked()

    async def write(self, frame: bytes) -> None:
        """Write a frame after the current one. Raises `trio.BrokenResourceError`, `trio.ClosedResourceError`."""
        try:
            self._lock.acquire_nowait()
        except trio.WouldBlock:
            await self._lock.acquire()
        try:
            await self._finish_rest()
            _before_send()
            if "send.torn" in ARMED:
                half = len(frame) // 2
                await self._write(memoryview(frame)[:half])
                failpoint("send.torn")
                frame = frame[half:]
            await self._write(memoryview(frame))
            _after_send()
        finally:
            self._lock.release()

    async def write_events(self, frames: bytes) -> None:
        """Write events. The bytes count as held until the client reads the events."""
        self._held.add(len(frames))
        await self.write(frames)
        self._held.add(-len(frames))

    def has_room(self) -> bool:
        """Return True if `write_now` is allowed: no task writes, and no bytes are left over."""
        if self._lock.locked() or "send.torn" in ARMED:
            return False
        if self._rest:
            self._keep(self._attempt(self._rest))
        return not self._rest

    def write_now(self, frames: bytes) -> None:
        """Write as much as the socket accepts at once, and keep the rest for `flush`. Requires `has_room`."""
        if ARMED:
            _before_send()
        if rest := self._attempt(memoryview(frames)):
            self._keep(rest)
        if ARMED:
            _after_send()

    async def flush(self) -> None:
        """Wait until no task writes and no bytes are left over."""
        if self._lock.locked():
            async with self._lock:
                pass  # the owner of the lock has written the rest
        await self._finish_rest()

    def _attempt(self, data: memoryview) -> memoryview:
        """Write without waiting and return the rest. `flush` and `write` report a broken socket."""
        try:
            return self._write_some(data)
        except (BlockingIOError, trio.BrokenResourceError, trio.ClosedResourceError):
            return data

    async def _finish_rest(self) -> None:
        while self._rest:
            try:
                self._keep(self._write_some(self._rest))
            except BlockingIOError:
                await self._writable()

    async def _write(self, data: memoryview) -> None:
        while data:
            try:
                data = self._write_some(data)
            except BlockingIOError:
                await self._writable()
            else:
                if data:  # the client may read as fast as this writes, and other tasks must run
                    await trio.lowlevel.checkpoint()

    async def _writable(self) -> None:
        if self._waiting is not None:
            await self._waiting.wait()
            return
        self._waiting = trio.Event()
        try:
            await trio.lowlevel.wait_writable(self._fd)
        finally:
            self._waiting.set()
            self._waiting = None

    def _write_some(self, data: memoryview) -> memoryview:
        """Write once and return the rest."""
        fd = self._fd
        try:
            return data[os.write(fd, data) :]
        except BlockingIOError:
            raise
        except OSError as error:
            raise trio.BrokenResourceError(f"socket connection broken: {error}") from error

    def _keep(self, rest: memoryview) -> None:
        self._held.add(len(rest) - len(self._rest))
        self._rest = rest

    @property
    def _fd(self) -> int:
        if (fd := self._stream.socket.fileno()) < 0:
            raise trio.ClosedResourceError
        return fd


def _before_send() -> None:
    failpoint("send.before")


def _after_send() -> None:
    failpoint("send.after")
