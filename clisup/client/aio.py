"""The trio client: calls that run concurrently on one connection, and subscriptions that survive a restart of the daemon.

    async with open_client() as client, client.session("claude", "/srv/app") as session:
        async for envelope in session.run("Say hello."):
            print(envelope.seq, envelope.event)

`call`, `prompt` and `subscribe` return dicts, as on the wire. The named methods return typed results.

Waits have no time-out of their own: put `trio.move_on_after` around them. Connecting and reconnecting are bounded.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Unpack
from weakref import WeakSet

import trio

from clisup.client.aio_connection import AsyncConnection
from clisup.client.aio_requests import AsyncFollower, again_until, call_surely
from clisup.client.aio_tools import AsyncToolClient, ToolCalls
from clisup.client.failures import ConnectionLost, hung_up, lost
from clisup.client.nurseries import check_trio, open_plain_nursery
from clisup.client.options import SessionOptions
from clisup.client.raw import Frame, JsonObject, encode_request, result_of, says_goodbye
from clisup.client.reconnect import FollowCursor, new_key
from clisup.errors import ClisupError
from clisup.locations import socket_for_client

if TYPE_CHECKING:
    from clisup.client.aio_session import AsyncSession

__all__ = ["AsyncClient", "AsyncFollower", "open_client"]

_LAST_WORDS_S = 2.0
"""The daemon's last words before it ended the connection are in this machine's memory."""

_SPARE_REQUESTS = 8
"""The daemon runs a limited number of requests of a connection at once, and reads no more until one ends. Calls that wait for
the end of a turn leave so many of them free: for interrupts, answers to approvals, and results of tools."""

_MAX_REQUESTS = 64  # unless the daemon says otherwise


@asynccontextmanager
async def open_client(path: str | None = None, *, name: str = "clisup-client") -> AsyncIterator[AsyncClient]:
    """Connect a client for the block. At the end the client closes its connection and its subscriptions."""
    check_trio()
    path = path or socket_for_client(os.environ, os.getuid())
    connection = await AsyncConnection.connect(path, name=name)
    client = None
    try:
        async with open_plain_nursery() as nursery:
            client = AsyncClient(path, name, nursery)
            client._take_up(connection)
            yield client
    finally:
        if client is not None:
            client._close()


class AsyncClient(AsyncToolClient):
    """Client of any number of tasks, made by `open_client`. `server` is the daemon's last answer to `initialize`."""

    def __init__(self, path: str, name: str, nursery: trio.Nursery) -> None:
        self._path, self._name, self._nursery = path, name, nursery
        self._connection: AsyncConnection
        self._last_id = 1
        self._waiting: dict[int, trio.MemorySendChannel[Frame]] = {}
        self._turns_waited_for = trio.CapacityLimiter(_MAX_REQUESTS - _SPARE_REQUESTS)
        self._tool_calls = ToolCalls()
        self._gone = trio.Event()  # of this connection
        self._dialling = trio.Lock()
        self._ended: ClisupError | None = None
        self._followers: WeakSet[AsyncFollower] = WeakSet()  # those that the caller still holds
        self._closed = False
        self.server: Frame = {}

    @asynccontextmanager
    async def session(
        self, backend: str | None, cwd: str, **options: Unpack[SessionOptions]
    ) -> AsyncIterator[AsyncSession]:
        """`open` for an `async with` block: the session is closed at the end."""
        async with await self.open(backend, cwd, **options) as session:
            yield session

    async def call(self, method: str, /, **params: Any) -> Any:
        """Send a request and return its result. Raises the daemon's refusal, by `kind`.

        When the daemon goes away, a call that was under way raises `ConnectionLost`: nobody knows whether the daemon received
        it. The next call connects again, and waits for a daemon that is restarting. Cancelling a call ends the waiting; a
        turn that it started goes on. Calls that wait for the end of a turn are limited, so that others come through.
        """
        if not params.get("wait"):
            return await self._asked(method, params)
        async with self._turns_waited_for:
            return await self._asked(method, params)

    async def _asked(self, method: str, params: Mapping[str, Any]) -> Any:
        if self._closed:
            raise hung_up(method, "its block is over")
        await self._stand()
        self._last_id += 1
        id_ = self._last_id
        send, receive = trio.open_memory_channel[Frame](1)
        self._waiting[id_] = send
        try:
            await self._send(encode_request(id_, method, params))
            return result_of(await receive.receive())
        except trio.EndOfChannel:
            raise self._ended or lost(self._path) from None
        finally:
            self._waiting.pop(id_, None)
            send.close()

    async def prompt(
        self,
        session_id: str,
        prompt: str | list[JsonObject],
        *,
        key: str | None = None,
        wait: bool = True,
        **options: Any,
    ) -> Frame:
        """Send a prompt and return the turn's result, also across restarts of the daemon; without `wait`, the acceptance.

        A lost request is repeated with the same `key`, which never prompts twice. A key is made if none is given. The result
        `delivery: "uncertain"` means: nobody knows whether the CLI received the prompt. The `evidence` tells more. Only the
        caller can decide to send the prompt again, with another key.
        Raises the daemon's refusal, and `daemon_not_running` if the daemon stays away for `RECONNECT_S`.
        """
        params = {"session_id": session_id, "prompt": prompt, "key": key, "wait": wait, **options}
        return await self._call_by_key("session/prompt", params)

    def subscribe(
        self, session_id: str, after_seq: int | Mapping[str, int] | None = None, **options: Any
    ) -> AsyncFollower:
        """Iterate over the events of a session, or of all sessions (`"*"`), as dicts, each seq exactly once.

        The iterator has a connection of its own. `options` are those of `session/subscribe`: `types`, `deltas`, `raw`, `name`.
        With `name` the cursor is durable: `ack` an event when you are done with it, and a later subscription of this name
        begins after it, whatever `after_seq` says.
        """
        return self._follower(session_id, after_seq, options)

    def _follower(
        self,
        session_id: str,
        after_seq: int | Mapping[str, int] | None,
        options: Mapping[str, Any],
        *,
        on_lost: Callable[[], None] | None = None,
        on_back: Callable[[], None] | None = None,
        expected: bool = False,
    ) -> AsyncFollower:
        cursor = FollowCursor(session_id, after_seq)
        follower = AsyncFollower(self._path, self._name, cursor, options, self._call_surely)
        follower.on_lost, follower.on_back, follower.expected = on_lost, on_back, expected
        self._followers.add(follower)
        return follower

    async def _call_surely(self, method: str, /, **params: Any) -> Any:
        return await call_surely(self.call, lambda: self.server, method, params)

    async def _call_by_key(self, method: str, params: JsonObject) -> Frame:
        result: Frame = await self._call_surely(method, **(params | {"key": params.get("key") or new_key()}))
        return result

    async def _stand(self) -> None:
        """Connect again if the connection has ended."""
        async with self._dialling:
            if self._ended is not None:
                self._connection.close()
                self._take_up(
                    await again_until(lambda: AsyncConnection.connect(self._path, name=self._name), self._ended)
                )

    def _take_up(self, connection: AsyncConnection) -> None:
        self._connection, self.server, self._ended = connection, connection.server, None
        self._gone = trio.Event()
        at_once = self.server.get("limits", {}).get("max_requests", _MAX_REQUESTS)
        self._turns_waited_for.total_tokens = max(1, at_once - _SPARE_REQUESTS)
        self._nursery.start_soon(self._read_answers, connection)

    async def _send(self, line: bytes) -> None:
        if self._ended:
            raise self._ended
        gone = self._gone
        try:
            await self._connection.send(line)
        except ConnectionLost as error:
            with trio.move_on_after(_LAST_WORDS_S):
                await gone.wait()  # the reader finds the daemon's last words, which say why
            raise self._ended or error from None

    async def _read_answers(self, connection: AsyncConnection) -> None:
        try:
            while True:
                frame = await connection.next_frame()
                if "method" in frame:
                    self._tool_calls.received(frame, connection)
                elif says_goodbye(frame):
                    result_of(frame)
                elif waiting := self._waiting.get(frame.get("id", 0)):
                    waiting.send_nowait(frame)
        except ClisupError as error:
            self._ended = error
            self._gone.set()
            for send in self._waiting.values():
                send.close()

    def _close(self) -> None:
        self._closed = True
        for follower in tuple(self._followers):
            follower.close()
        self._connection.close()
