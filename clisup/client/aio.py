"""The trio client: calls that run concurrently on one connection, and subscriptions that survive a restart of the daemon.

    async with open_client() as client:
        opened = await client.call("session/new", backend="claude", cwd="/srv/app")
        async for event in client.subscribe(opened["session_id"], after_seq=0):
            ...

Waits have no time-out of their own here: put `trio.move_on_after` around what should end. Connecting is bounded, and so is
coming back (`RECONNECT_S`).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

import trio

from clisup import __version__
from clisup.client.failures import lost
from clisup.client.following import RECONNECT_S, RETRY_PAUSE_S, may_come_back
from clisup.client.frame_stream import FrameStream, result_of
from clisup.client.transport import SEND_TIMEOUT_S, encode_request
from clisup.errors import ClisupError, error_from_wire
from clisup.locations import socket_for_client

__all__ = ["AsyncClient", "Subscription", "open_client"]


@asynccontextmanager
async def open_client(path: str | None = None, *, name: str = "clisup-client") -> AsyncIterator[AsyncClient]:
    """A connected client; it hangs up, and ends its subscriptions, when the block ends."""
    lines = await FrameStream.connect(path or socket_for_client(os.environ, os.getuid()))
    client = AsyncClient(lines, name)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client._read_answers)
            client.server = await client.call("initialize", protocol_version=1, client=_introduction(name))
            yield client
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:  # the nursery is ours: the caller's own exception comes out as it was
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
    finally:
        client._close()


class AsyncClient:
    """Made by `open_client`. `server` is what the daemon said of itself."""

    def __init__(self, lines: FrameStream, name: str) -> None:
        self._lines, self._name = lines, name
        self._last_id = 0
        self._waiting: dict[int, trio.MemorySendChannel[dict[str, Any]]] = {}
        self._sending = trio.Lock()
        self._ended: ClisupError | None = None
        self._subscriptions: list[Subscription] = []
        self.server: dict[str, Any] = {}

    async def call(self, method: str, /, **params: Any) -> Any:
        """Send a request and give its result; raises what the daemon refused it with, by `kind`.

        Cancelling a call ends the waiting; a turn that it started goes on.
        """
        self._last_id += 1
        id_ = self._last_id
        send, receive = trio.open_memory_channel[dict[str, Any]](1)
        self._waiting[id_] = send
        try:
            await self._send(encode_request(id_, method, params))
            return result_of(await receive.receive())
        except trio.EndOfChannel:
            raise self._ended or lost(self._lines.path) from None
        finally:
            self._waiting.pop(id_, None)
            send.close()

    def subscribe(self, session_id: str, after_seq: int | None = None, **options: Any) -> Subscription:
        """An asynchronous iterator of event dicts, each seq exactly once, on a connection of its own."""
        subscription = Subscription(self._lines.path, self._name, session_id, after_seq, options)
        self._subscriptions.append(subscription)
        return subscription

    async def _send(self, line: bytes) -> None:
        if self._ended:
            raise self._ended
        async with self._sending:
            with trio.move_on_after(SEND_TIMEOUT_S, shield=True):  # half a frame would spoil it for every other call
                await self._lines.send(line)
                return
        raise lost(self._lines.path, "it does not take what is sent")

    async def _read_answers(self) -> None:
        try:
            while True:
                frame = await self._lines.next_frame()
                if "method" not in frame:
                    self._hand_over(frame)
        except ClisupError as error:
            self._ended = error
            for send in self._waiting.values():
                send.close()

    def _hand_over(self, frame: dict[str, Any]) -> None:
        if frame.get("id") is None and "error" in frame:
            raise error_from_wire(frame["error"])  # the daemon says why it hangs up
        if waiting := self._waiting.get(frame.get("id", 0)):
            waiting.send_nowait(frame)

    def _close(self) -> None:
        for subscription in self._subscriptions:
            subscription.close()
        self._lines.close()


class Subscription:
    """An asynchronous iterator over one session's events. It connects at the first step and again whenever it must.

    `cursor` is the last seq given. History that retention removed is told by one dict of type `gap`, without a `seq`.
    """

    def __init__(self, path: str, name: str, session_id: str, after_seq: int | None, options: dict[str, Any]) -> None:
        self._path, self._name, self._session_id, self._options = path, name, session_id, options
        self._lines: FrameStream | None = None
        self._closed = False
        self.cursor = after_seq
        self.on_lost: Callable[[], None] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> dict[str, Any]:
        while not self._closed:
            try:
                frame = await (self._lines or await self._open()).next_frame()
            except ClisupError as error:
                if self._lines is None or not may_come_back(error):
                    raise
                await self._come_back(error)
                continue
            if (event := _event_of(frame, self._session_id)) and self._advance(event):
                return event
        raise StopAsyncIteration

    def close(self) -> None:
        """End the subscription; the iteration stops."""
        self._closed = True
        self._hang_up()

    def _hang_up(self) -> None:
        if self._lines:
            self._lines.close()
            self._lines = None

    def _advance(self, event: dict[str, Any]) -> bool:
        seq = int(event["to_seq"] if event["type"] == "gap" else event["seq"])
        if self.cursor is not None and seq <= self.cursor:
            return False
        self.cursor = seq
        return True

    async def _open(self) -> FrameStream:
        """Connect and subscribe; the answer comes before the first event."""
        lines = await FrameStream.connect(self._path)
        cursor = {} if self.cursor is None else {"after_seq": self.cursor}
        params = {"session_id": self._session_id, **cursor, **self._options}
        try:
            hello = {"protocol_version": 1, "client": _introduction(self._name)}
            await lines.send(encode_request(1, "initialize", hello) + encode_request(2, "session/subscribe", params))
            await lines.answer(1)
            opened = await lines.answer(2)
        except BaseException:
            lines.close()
            raise
        if self.cursor is None:
            self.cursor = int(opened["next_seq"]) - 1
        self._lines = lines
        return lines

    async def _come_back(self, first: ClisupError) -> None:
        self._hang_up()
        if self.on_lost:
            self.on_lost()
        with trio.move_on_after(RECONNECT_S):
            while True:
                try:
                    await self._open()
                except ClisupError as error:
                    if not may_come_back(error):
                        raise
                else:
                    return
                await trio.sleep(RETRY_PAUSE_S)
        raise first


def _introduction(name: str) -> dict[str, str]:
    return {"name": name, "version": __version__}


def _event_of(frame: dict[str, Any], session_id: str) -> dict[str, Any] | None:
    params: dict[str, Any] = frame.get("params", {})
    if params.get("session_id") != session_id:
        return None
    return {"type": "gap", **params} if frame.get("method") == "session/gap" else params
