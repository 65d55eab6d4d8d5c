"""Connections of an HTTP server: their accept loop, their number, and their end. A full server ends those that wait longest."""

from __future__ import annotations

import errno
import resource
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext

from clisup.http.connection import HttpConnection, OneAnswer, fault_barrier

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["GRACE_S", "MOST_CONNECTIONS", "HttpConnections"]

MOST_CONNECTIONS = 512
"""Connections at once. A further one ends the one whose client keeps the server waiting longest, or is refused."""

GRACE_S = 1.0
"""Seconds for the answers at work after SIGTERM."""

_RESERVE = 64
"""Descriptors for everything else."""

_RETRY_S = 0.1
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class HttpConnections:
    """Connections of `listener`. An exception of one of them is a line for `note`, and ends that one alone."""

    def __init__(
        self, app: ASGIApp, listener: socket.socket, tls: ssl.SSLContext | None, note: Callable[[str], None]
    ) -> None:
        self._app, self._note, self._tls = OneAnswer(app, note), note, tls
        self._listener = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
        self._config, self._context = Config(), WorkerContext(None)
        self._config.include_server_header, self._config.errorlog = False, None
        self._open: set[HttpConnection] = set()
        self._accepting, self._ended, self._full = trio.CancelScope(), trio.Event(), False
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = max(1, min(MOST_CONNECTIONS, soft - _RESERVE))

    async def run(self) -> None:
        """Accept and serve connections until `stop`."""
        async with trio.open_nursery() as nursery:
            with self._accepting:
                while True:
                    await self._accept(nursery)
            await self._listener.aclose()
        self._ended.set()

    async def stop(self) -> None:
        """Accept nothing more, let answers at work end within `GRACE_S`, then end their connections."""
        self._accepting.cancel()
        await self._context.terminated.set()
        for one in self._open:
            one.stop()
        with trio.move_on_after(GRACE_S):
            await self._ended.wait()
        for one in self._open:
            one.abort()

    async def _accept(self, nursery: trio.Nursery) -> None:
        try:
            stream = await self._listener.accept()
        except OSError as error:
            if error.errno not in _NO_DESCRIPTORS:
                raise
            self._tell_full(f"no connection can be accepted: {error.strerror}")
            self._end_oldest()
            await trio.sleep(_RETRY_S)
            return
        if len(self._open) < self._most:
            self._full = False
        elif not self._end_oldest():
            self._tell_full(f"connections are refused: {self._most} are at work, and that is the limit")
            nursery.start_soon(_refuse, stream, self._tls is None)
            return
        nursery.start_soon(self._serve, stream)

    async def _serve(self, stream: trio.SocketStream) -> None:
        with fault_barrier(self._note, "connection"):
            over = (
                stream
                if self._tls is None
                else trio.SSLStream(stream, self._tls, server_side=True, https_compatible=True)
            )
            one = HttpConnection(self._app, self._config, self._context, over)
            self._open.add(one)
            try:
                await one.run()
            finally:
                self._open.discard(one)

    def _end_oldest(self) -> bool:
        """End the connection that waits longest for its client, and tell whether there was one."""
        waiting = [(since, one) for one in self._open if (since := one.waits_since) is not None]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda each: each[0])[1]
        self._open.discard(oldest)
        oldest.abort()
        return True

    def _tell_full(self, text: str) -> None:
        """Note the limit once, until it is left."""
        if not self._full:
            self._full = True
            self._note(text)


async def _refuse(stream: trio.SocketStream, plain: bool) -> None:
    with trio.move_on_after(_RETRY_S), fault_barrier(lambda _: None, "refusal"):
        if plain:
            await stream.send_all(_FULL)
            await stream.send_eof()
            await stream.receive_some(1)
    await trio.aclose_forcefully(stream)
