"""A connection's way out: whole frames, one writer at a time, and at once where the socket takes them.

trio's `send_all` goes round the scheduler with each call, which under load takes as long as a piece of work of every task. A
follower of a flood fell behind by that, and then cost more than it should. So what the socket takes is written where it was
made; what it does not take waits here, one piece at most, and everything else waits for that.
"""

from __future__ import annotations

import os

import trio

from clisup.daemon.clients.buffer_budget import HeldBytes
from clisup.host.failpoints import armed, failpoint

__all__ = ["Outlet"]

_NOTHING = memoryview(b"")


class Outlet:
    """Bytes that wait for the client count as held by it."""

    def __init__(self, stream: trio.SocketStream, held: HeldBytes) -> None:
        self._stream = stream
        self._held = held
        self._lock = trio.Lock()
        self._rest = _NOTHING
        self._waiting: trio.Event | None = None  # one task waits for the socket, others for that one

    @property
    def busy(self) -> bool:
        """Is something being written, or left over?"""
        return bool(self._rest) or self._lock.locked()

    async def write(self, frame: bytes) -> None:
        """Write it after what is under way. Raises `trio.BrokenResourceError`, `trio.ClosedResourceError`."""
        try:
            self._lock.acquire_nowait()
        except trio.WouldBlock:
            await self._lock.acquire()
        try:
            await self._finish_rest()
            _begins()
            if armed("send.torn"):
                half = len(frame) // 2
                await self._write(memoryview(frame)[:half])
                failpoint("send.torn")
                frame = frame[half:]
            await self._write(memoryview(frame))
            _is_over()
        finally:
            self._lock.release()

    async def write_events(self, frames: bytes) -> None:
        """The same for events, which count as held: a client that does not read them holds them like its answers."""
        self._held.add(len(frames))
        await self.write(frames)
        self._held.add(-len(frames))

    def has_room(self) -> bool:
        """May `write_now` be called: does nobody write, and has the socket taken what was left over?"""
        if self._lock.locked() or armed("send.torn"):
            return False
        if self._rest:
            self._keep(self._attempt(self._rest))
        return not self._rest

    def write_now(self, frames: bytes) -> None:
        """Write what the socket takes at once, and keep the rest for `flush`. Only where `has_room`."""
        _begins()
        if rest := self._attempt(memoryview(frames)):
            self._keep(rest)
        _is_over()

    async def flush(self) -> None:
        """Until nobody writes and nothing is left over. Meanwhile `write_now` may leave more, where nobody else writes."""
        if self._lock.locked():
            async with self._lock:
                pass  # who had it has written the rest, too
        await self._finish_rest()

    def _attempt(self, data: memoryview) -> memoryview:
        """What is left of it: all where nothing can be written now. What the matter is, `flush` and `write` tell."""
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
                if data:  # a client that reads as fast as this writes: others have their turn, too
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
        """What is left of it."""
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


def _begins() -> None:
    failpoint("send.before")


def _is_over() -> None:
    failpoint("send.after")
