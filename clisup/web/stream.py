"""Answer of server-sent events that ends when the browser leaves, the token is revoked, or the server stops."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

import trio
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive, Scope, Send

    from clisup.web.access.guard import Visitor

__all__ = ["KEEP_ALIVE_S", "MOST_STREAMS", "LiveMessage", "LiveStream"]

MOST_STREAMS = 100
"""Live pages at once. A further page is shown without live updates."""

KEEP_ALIVE_S = 15.0
"""Seconds after which a silent stream sends a comment, and the token is checked again."""

_HEADERS = {"content-type": "text/event-stream", "x-accel-buffering": "no"}


class LiveMessage(NamedTuple):
    """Message of a stream. `id` is the seq up to which the page is complete; empty: the page keeps the id that it has."""

    html: str
    id: str = ""

    def encode(self) -> bytes:
        """Return the bytes on the wire. A line end of any kind in the HTML begins a further data line."""
        lines = self.html.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        head = f"id: {self.id}\n" if self.id else ""
        return (head + "".join(f"data: {line}\n" for line in lines) + "\n").encode("utf-8", "replace")


class LiveStream(Response):
    """Stream of the messages that `run` puts into a channel. A slow browser holds up `run`, and nothing else.

    The channel holds one message, so the memory of a stream does not grow.
    """

    def __init__(self, run: Callable[[trio.MemorySendChannel[LiveMessage]], object], visitor: Visitor) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._run, self._visitor = run, visitor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        messages, source = trio.open_memory_channel[LiveMessage](0)

        async with trio.open_nursery(strict_exception_groups=True) as nursery:

            async def produce() -> None:
                async with messages:
                    await self._run(messages)  # type: ignore[misc]

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            nursery.start_soon(produce)
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for piece in self._pieces(source):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            nursery.cancel_scope.cancel()

    async def _pieces(self, source: trio.MemoryReceiveChannel[LiveMessage]) -> AsyncIterator[bytes]:
        while True:
            piece = b": still here\n\n"
            with trio.move_on_after(KEEP_ALIVE_S):
                try:
                    piece = (await source.receive()).encode()
                except trio.EndOfChannel:
                    return
            if not self._visitor.is_valid:
                return
            yield piece
