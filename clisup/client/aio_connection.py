"""Connection to the daemon over trio: the counterpart of `clisup.client.raw.RawClient`."""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Any, Self

import trio

from clisup.client.failures import ConnectionLost, cannot_connect, lost, too_slow
from clisup.client.raw import (
    CONNECT_TIMEOUT_S,
    SEND_TIMEOUT_S,
    Frame,
    LineBuffer,
    answer_limit,
    check_path,
    check_server,
    check_size,
    encode_request,
    event_of,
    initialize_params,
    result_of,
)
from clisup.errors import ClisupError
from clisup.locations import box_of

if TYPE_CHECKING:
    from clisup.fleet.link import SshLink

__all__ = ["AsyncConnection"]

_CHUNK = 64 * 1024


class AsyncConnection:
    """One connection. A cancelled receive loses nothing. `server` is the daemon's answer to `initialize`."""

    def __init__(self, path: str, stream: trio.SocketStream, link: SshLink | None = None) -> None:
        self.path = path
        self._link = link
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
            with trio.fail_after(answer_limit(path)):
                connection.server = await connection.call("initialize", **initialize_params(name))
        except trio.TooSlowError:
            raise connection._failed(too_slow(path, "initialize", answer_limit(path))) from None
        except ClisupError as error:
            raise connection._failed(error) from None
        except BaseException:
            connection.close()
            if connection._link is not None:
                connection._link.end()
            raise
        return connection

    @classmethod
    async def dial(cls, path: str) -> Self:
        """Connect, and check who serves. Nothing is sent."""
        box, target = box_of(path), path
        if box:
            from clisup.fleet.link import way_to

            target, link = way_to(box)
            if link is not None:
                return cls(path, trio.SocketStream(trio.socket.from_stdlib_socket(link.socket)), link)
        check_path(target)
        try:
            with trio.fail_after(CONNECT_TIMEOUT_S):
                stream = await trio.open_unix_socket(target)
        except OSError as error:
            raise cannot_connect(target, error, box) from None
        except trio.TooSlowError:
            raise cannot_connect(target, TimeoutError(), box) from None
        try:
            check_server(target, stream.socket)
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
                    raise self._lost() from None
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
        if self._link is not None:
            self._link.close()

    def drop(self) -> None:
        """Close a connection without readers, from any thread, and after the end of trio."""
        if (fd := self._stream.socket.detach()) >= 0:
            os.close(fd)
        if self._link is not None:
            self._link.close()

    def _failed(self, error: ClisupError) -> ClisupError:
        self._stream.socket.close()
        return error if self._link is None else self._link.failed(error)

    def _lost(self) -> ConnectionLost:
        reason = "it closed the connection"
        return lost(self.path, reason if self._link is None else self._link.reason(reason))

    async def _receive(self) -> Frame:
        while not self._lines:
            try:
                data = bytes(await self._stream.receive_some(_CHUNK))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                raise self._lost() from None
            if not data:
                raise self._lost()
            self._lines.feed(data)
        return self._lines.pop_frame()
