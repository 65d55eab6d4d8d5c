"""The trio client: calls that run concurrently on one connection, and subscriptions that survive a restart of the daemon.

    async with open_client() as client, client.session("claude", "/srv/app") as session:
        async for envelope in session.run("Say hello."):
            print(envelope.seq, envelope.event)

`call`, `prompt` and `subscribe` give what is on the wire, as dicts; the named methods (`clisup.client.aio_calls`,
`clisup.client.aio_session`) give what is typed.

Waits have no time-out of their own here: put `trio.move_on_after` around what should end. Connecting is bounded, and so is
coming back (`RECONNECT_S`).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakSet

import trio

from clisup.client.aio_calls import AsyncCalls
from clisup.client.aio_following import Subscription, again_until
from clisup.client.aio_tool_calls import ToolCalls
from clisup.client.coming_back import RETRY_PAUSE_S, Repeats, may_come_back, new_key, stays_away
from clisup.client.cursor import Cursor
from clisup.client.failures import ConnectionLost, hung_up, lost
from clisup.client.frame_stream import FrameStream, dial, result_of
from clisup.client.nurseries import check_trio, open_plain_nursery
from clisup.client.transport import encode_request
from clisup.errors import ClisupError, error_from_wire
from clisup.locations import socket_for_client

__all__ = ["AsyncClient", "Subscription", "open_client"]

_LAST_WORDS_S = 2.0
"""What the daemon has said before it hung up lies in this machine's memory."""

_SPARE_REQUESTS = 8
"""Of those that the daemon runs at once for a connection, as many are left for calls that do not wait for the end of a turn: an
interrupt, the answer to an approval, what a tool gives. Where all of them wait, nothing else of the connection is read."""
_MAX_REQUESTS = 64  # unless the daemon says otherwise


@asynccontextmanager
async def open_client(path: str | None = None, *, name: str = "clisup-client") -> AsyncIterator[AsyncClient]:
    """A connected client; it hangs up, and ends its subscriptions, when the block ends."""
    check_trio()
    path = path or socket_for_client(os.environ, os.getuid())
    lines, server = await dial(path, name)
    client = None
    try:
        async with open_plain_nursery() as nursery:
            client = AsyncClient(path, name, nursery)
            client._take_up(lines, server)
            yield client
    finally:
        if client is not None:
            client._close()


class AsyncClient(AsyncCalls):
    """Made by `open_client`. `server` is what the daemon said of itself, at the last connection."""

    def __init__(self, path: str, name: str, nursery: trio.Nursery) -> None:
        self._path, self._name, self._nursery = path, name, nursery
        self._lines: FrameStream
        self._last_id = 1
        self._waiting: dict[int, trio.MemorySendChannel[dict[str, Any]]] = {}
        self._turns_waited_for = trio.CapacityLimiter(_MAX_REQUESTS - _SPARE_REQUESTS)
        self._tool_calls = ToolCalls()
        self._gone = trio.Event()  # of this connection
        self._dialling = trio.Lock()
        self._ended: ClisupError | None = None
        self._subscriptions: WeakSet[Subscription] = WeakSet()  # those that somebody still has
        self._closed = False
        self.server: dict[str, Any] = {}

    async def call(self, method: str, /, **params: Any) -> Any:
        """Send a request and give its result; raises what the daemon refused it with, by `kind`.

        When the daemon goes away, a call that was under way raises `ConnectionLost`: nobody knows whether it was heard. The
        next call connects again, and waits for a daemon that is restarting. Cancelling a call ends the waiting; a turn that it
        started goes on. Of those that wait for the end of a turn, only so many are sent at once that others come through.
        """
        if not params.get("wait"):
            return await self._asked(method, params)
        async with self._turns_waited_for:
            return await self._asked(method, params)

    async def _asked(self, method: str, params: dict[str, Any]) -> Any:
        if self._closed:
            raise hung_up(method, "its block is over")
        await self._stand()
        self._last_id += 1
        id_ = self._last_id
        send, receive = trio.open_memory_channel[dict[str, Any]](1)
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
        prompt: str | list[dict[str, Any]],
        *,
        key: str | None = None,
        wait: bool = True,
        **options: Any,
    ) -> dict[str, Any]:
        """Send a prompt and give the turn's result, also across restarts of the daemon; without `wait`, its acceptance.

        When the daemon goes away it is asked again by the same `key` (made here where none is given), which never prompts
        twice. A result with `delivery: "uncertain"` says that nobody saw whether the CLI took the prompt, with the `evidence`:
        to send it once more, under another key, is the caller's decision.
        Raises what the daemon refuses it with, and `daemon_not_running` where it stays away for `RECONNECT_S`.
        """
        params = {"session_id": session_id, "prompt": prompt, "key": key or new_key(), "wait": wait, **options}
        result: dict[str, Any] = await self._call_surely("session/prompt", **params)
        return result

    def subscribe(
        self, session_id: str, after_seq: int | Mapping[str, int] | None = None, **options: Any
    ) -> Subscription:
        """An asynchronous iterator of the events of a session, or of all (`"*"`), each seq exactly once.

        It has a connection of its own. `options` are those of `session/subscribe`: `types`, `deltas`, `raw`, `name`. With
        `name` the place is durable: `ack` an event when you are done with it, and a later subscription of this name begins
        after it, whatever `after_seq` says.
        """
        cursor = Cursor(session_id, after_seq)
        subscription = Subscription(self._path, self._name, cursor, options, self._call_surely)
        self._subscriptions.add(subscription)
        return subscription

    async def _call_surely(self, method: str, /, **params: Any) -> Any:
        """`call`, again after each restart: for what may be asked twice."""
        repeats = Repeats()
        while True:
            repeats.begin()
            try:
                return await self.call(method, **params)
            except ClisupError as error:
                if stays_away(error) or not may_come_back(error) or repeats.spent(error, self.server):
                    raise
            await trio.sleep(RETRY_PAUSE_S)  # a daemon that is there and refuses is not asked in a spin

    async def _stand(self) -> None:
        """See to it that there is a connection."""
        async with self._dialling:
            if self._ended is not None:
                self._lines.close()
                self._take_up(*await again_until(lambda: dial(self._path, self._name), self._ended))

    def _take_up(self, lines: FrameStream, server: dict[str, Any]) -> None:
        self._lines, self.server, self._ended, self._gone = lines, server, None, trio.Event()
        at_once = server.get("limits", {}).get("max_requests", _MAX_REQUESTS)
        self._turns_waited_for.total_tokens = max(1, at_once - _SPARE_REQUESTS)
        self._nursery.start_soon(self._read_answers, lines)

    async def _send(self, line: bytes) -> None:
        if self._ended:
            raise self._ended
        gone = self._gone
        try:
            await self._lines.send_whole(line)
        except ConnectionLost as error:
            with trio.move_on_after(_LAST_WORDS_S):
                await gone.wait()  # whoever reads comes to the end, too, and to what the daemon has said before it
            raise self._ended or error from None

    async def _read_answers(self, lines: FrameStream) -> None:
        try:
            while True:
                frame = await lines.next_frame()
                if "method" in frame:
                    self._tool_calls.hear(frame, lines)
                else:
                    self._hand_over(frame)
        except ClisupError as error:
            self._ended = error
            self._gone.set()
            for send in self._waiting.values():
                send.close()

    def _hand_over(self, frame: dict[str, Any]) -> None:
        if frame.get("id") is None and "error" in frame:
            raise error_from_wire(frame["error"])  # the daemon says why it hangs up
        if waiting := self._waiting.get(frame.get("id", 0)):
            waiting.send_nowait(frame)

    def _close(self) -> None:
        self._closed = True
        for subscription in tuple(self._subscriptions):
            subscription.close()
        self._lines.close()
