"""An HTTP server in this process, and clients that send bytes as they are."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from clisup.http.connections import HttpConnections

PATIENCE_S = 60.0
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """Answer at once, and do not read the body."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


class Server:
    """Server on a port of its own. `notes` are its lines."""

    def __init__(self, app: Any, tls: Any = None) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.notes: list[str] = []
        self.connections = HttpConnections(app, self.listener, tls, self.notes.append)

    @property
    def open(self) -> int:
        return len(self.connections._open)

    async def connect(self, sent: bytes = b"") -> trio.SocketStream:
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        await stream.send_all(sent)
        return stream

    async def ask(self, sent: bytes = GET) -> bytes:
        """Send bytes, and return everything until the server ends the connection."""
        async with await self.connect() as stream:
            try:
                await stream.send_all(sent)
            except trio.BrokenResourceError:
                pass  # the server has ended the connection before all was sent
            return await whole(stream)

    async def is_well(self) -> bool:
        """Tell whether a good client gets its answer."""
        return (await self.ask(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))).endswith(b"hello")


async def whole(stream: trio.abc.ReceiveStream) -> bytes:
    """Return everything until the end of the connection."""
    found = b""
    with trio.fail_after(PATIENCE_S):
        while piece := await stream.receive_some():
            found += piece
    return found


async def answer(stream: trio.abc.ReceiveStream, end: bytes) -> bytes:
    """Return everything until these bytes."""
    found = b""
    with trio.fail_after(PATIENCE_S):
        while not found.endswith(end):
            piece = await stream.receive_some()
            assert piece, found
            found += piece
    return found


async def until(holds: Any) -> None:
    with trio.fail_after(PATIENCE_S):
        while not holds():
            await trio.sleep(0.005)


@asynccontextmanager
async def serving(app: Any = hello, tls: Any = None) -> AsyncIterator[Server]:
    server = Server(app, tls)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.connections.run)
        try:
            yield server
        finally:
            with trio.CancelScope(shield=True):
                await server.connections.stop()
