"""Reading of a request's body, bounded in size and time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from starlette.types import Receive

__all__ = ["BodyRefused", "read_body"]


class BodyRefused(Exception):
    """Body that is not read. `status` is that of the answer; 400 goes to a client that has left."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


async def read_body(receive: Receive, most: int, seconds: float) -> bytes:
    """Return the body. Raises `BodyRefused` for one that is too large, too slow, or not whole."""
    pieces, size = [], 0
    with trio.move_on_after(seconds):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise BodyRefused("the client has left", 400)
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > most:
                raise BodyRefused(f"the body has more than {most} bytes", 413)
            if not message.get("more_body"):
                return b"".join(pieces)
    raise BodyRefused(f"the body did not come within {seconds:g} s", 408)
