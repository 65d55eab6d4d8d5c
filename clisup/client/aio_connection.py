"""Connection to the daemon over trio: the counterpart of `clisup.client.raw.RawClient`."""

from __future__ import annotations

import os
from collections import deque
from typing import Any, Self

import trio

from clisup.client.failures import ConnectionLost, cannot_connect, lost
from clisup.client.raw import (
    CONNECT_TIMEOUT_S,
    SEND_TIMEOUT_S,
    Frame,
    LineBuffer,
    check_path,
    check_server,
    check_size,
    encode_request,
    event_of,
    initialize_params,
    result_of,
)

__all__ = ["AsyncConnection"]

_CHUNK = 64 * 1024


class AsyncConnection:
    """One connection. A cancelled receive loses nothing. `server` is the daemon's answer to `initialize`."""

    def __init__(self, path: str, stream: trio.SocketStream) -> None:
        self.path = path
        self.server: Frame = {}
        self._stream = stream
        self._lines = LineBuffer(path)
        self._early: deque[Frame] = deque()
        self._last_id = 0
        self._sending = trio.Lock()

    @classmethod
    async def connect(cls, path: str, *, name: str) -> Self:
        """Connect and introduce this client as `name`. The id of that request is 1."""
        connection = await cls.dial(path)
        try:
            connection.server = await connection.call("initialize", **initialize_params(name))
        except BaseException:
            connection.close()
            raise
        return connection

    @classmethod
    async def dial(cls, path: str) -> Self:
        """Connect, and check who serves. Nothing is sent."""
        check_path(path)
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

    async def call(self, method: str, /, **params: Any) -> Any:
        """Send a request and return its result, while no other task reads. Events that come first are kept."""
        self._last_id += 1
        id_ = self._last_id
        try:
            await self.send(encode_request(id_, method, params))
        except ConnectionLost:
            pass  # the daemon's last words may say why; otherwise reading fails the same way
        while True:
            frame = await self._receive()
            if "method" in frame:
                self._early.append(frame)
            elif frame.get("id") in (id_, None):
                return result_of(frame)

    async def send(self, line: bytes) -> None:
        """Send whole lines one after the other. A line that the daemon does not accept within `SEND_TIMEOUT_S` ends the connection."""
        check_size(line, self.server)
        async with self._sending:
            with trio.move_on_after(SEND_TIMEOUT_S, shield=True):
                try:
                    return await self._stream.send_all(line)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    raise lost(self.path) from None
        self.close()
        raise lost(self.path, "it does not take what is sent")

    @property
    def at_hand(self) -> bool:
        """Tell whether a received frame was not read yet."""
        return bool(self._early or self._lines)

    async def next_frame(self) -> Frame:
        """Wait for the next frame."""
        return self._early.popleft() if self._early else await self._receive()

    async def next_event(self, session_id: str) -> Frame:
        """Wait for the next event of a subscribed session, or of any session for `"*"`."""
        while (event := event_of(await self.next_frame(), session_id)) is None:
            pass
        return event

    def close(self) -> None:
        """Close the connection. Running turns go on."""
        self._stream.socket.close()

    def drop(self) -> None:
        """Close a connection without readers, from any thread, and after the end of trio."""
        if (fd := self._stream.socket.detach()) >= 0:
            os.close(fd)

    async def _receive(self) -> Frame:
        while not self._lines:
            try:
                data = bytes(await self._stream.receive_some(_CHUNK))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                raise lost(self.path) from None
            if not data:
                raise lost(self.path)
            self._lines.feed(data)
        return self._lines.pop_frame()
