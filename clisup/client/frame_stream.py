"""The daemon's frames over a trio stream: what `clisup.client.transport` is to the blocking client."""

from __future__ import annotations

import os
from typing import Any

import trio

from clisup import __version__
from clisup.client.failures import ConnectionLost, cannot_connect, lost, not_json, path_too_long, too_large
from clisup.client.transport import CONNECT_TIMEOUT_S, SEND_TIMEOUT_S, check_server, decode, encode_request
from clisup.errors import error_from_wire
from clisup.locations import SOCKET_PATH_LIMIT

__all__ = ["FrameStream", "dial", "result_of"]

_CHUNK = 64 * 1024


class FrameStream:
    """A stream of frames. Receiving may be cancelled and taken up again: nothing is lost.

    `limit` is what the daemon takes in one line, once it has said so.
    """

    def __init__(self, path: str, stream: trio.SocketStream) -> None:
        self.path = path
        self.limit: int | None = None
        self._stream = stream
        self._lines: list[bytes] = []
        self._parts: list[bytes] = []
        self._early: list[dict[str, Any]] = []
        self._sending = trio.Lock()

    @classmethod
    async def connect(cls, path: str) -> FrameStream:
        if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
            raise path_too_long(path)
        try:
            with trio.fail_after(CONNECT_TIMEOUT_S):
                stream = await trio.open_unix_socket(path)
        except OSError as error:
            raise cannot_connect(path, error) from None
        except trio.TooSlowError:
            raise cannot_connect(path, TimeoutError()) from None
        try:
            check_server(path, stream.socket)
        except BaseException:
            stream.socket.close()
            raise
        return cls(path, stream)

    async def send(self, line: bytes) -> None:
        if self.limit is not None and len(line) - 1 > self.limit:
            raise too_large(self.limit)
        try:
            await self._stream.send_all(line)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise lost(self.path) from None

    async def send_whole(self, line: bytes) -> None:
        """`send`, one line after the other and never half of one: what is not taken in `SEND_TIMEOUT_S` ends the connection."""
        async with self._sending:
            with trio.move_on_after(SEND_TIMEOUT_S, shield=True):
                await self.send(line)
                return
        self.close()
        raise lost(self.path, "it does not take what is sent")

    async def ask(self, id_: int, line: bytes) -> Any:
        """The result of request `id_`, which `line` is. For who alone reads here."""
        try:
            await self.send(line)
        except ConnectionLost:
            pass  # what comes yet may say why, and else says the same
        return await self.answer(id_)

    async def answer(self, id_: int) -> Any:
        """The result of request `id_`; events that overtake it are kept for `next_frame`."""
        while True:
            frame = await self._receive()
            if "method" in frame:
                self._early.append(frame)
            elif frame.get("id") in (id_, None):
                return result_of(frame)

    async def next_frame(self) -> dict[str, Any]:
        return self._early.pop(0) if self._early else await self._receive()

    async def _receive(self) -> dict[str, Any]:
        while not self._lines:
            self._take(await self._read())
        try:
            return decode(self._lines.pop())
        except ValueError:
            raise not_json(self.path) from None

    async def _read(self) -> bytes:
        try:
            data = bytes(await self._stream.receive_some(_CHUNK))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise lost(self.path) from None
        if not data:
            raise lost(self.path)
        return data

    def _take(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._parts, lines[0]])
            self._parts.clear()
            self._lines = lines[::-1]  # taken from the end, which is cheap
        if rest:
            self._parts.append(rest)

    def close(self) -> None:
        self._stream.socket.close()

    def drop(self) -> None:
        """`close` of one that nobody waits at, from any thread, and when trio is over."""
        if (fd := self._stream.socket.detach()) >= 0:
            os.close(fd)


async def dial(path: str, name: str) -> tuple[FrameStream, dict[str, Any]]:
    """Connect and introduce oneself as `name`: the stream, and what the daemon said. The request's id is 1."""
    lines = await FrameStream.connect(path)
    try:
        hello = {"protocol_version": 1, "client": {"name": name, "version": __version__}}
        server = await lines.ask(1, encode_request(1, "initialize", hello))
        lines.limit = server.get("limits", {}).get("max_frame_bytes")
        return lines, server
    except BaseException:
        lines.close()
        raise


def result_of(frame: dict[str, Any]) -> Any:
    if "error" in frame:
        raise error_from_wire(frame["error"])
    return frame.get("result")
