"""Requests that survive a restart of the daemon: retried calls, and followers that give each event once.

`clisup.client.sync_requests` is generated from this file by `make client`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

import trio  # blocking: from contextlib import nullcontext

from clisup.client import reconnect
from clisup.client.aio_connection import AsyncConnection
from clisup.client.options import given
from clisup.client.raw import JsonObject
from clisup.client.reconnect import FollowCursor, Repeats, ack_params, gone, may_come_back, stays_away
from clisup.errors import ClisupError

if TYPE_CHECKING:
    from clisup.client.answers import Approval, Decision

__all__ = ["AsyncClosable", "AsyncFollower", "AsyncRequests", "again_until", "call_surely"]

_T = TypeVar("_T")
_Told = Callable[[], None] | None


async def again_until(action: Callable[[], Awaitable[_T]], first: ClisupError) -> _T:
    """Repeat `action` until the daemon is back. Raise a refusal after `RECONNECT_S`, any other error at once."""
    last, until = first, time.monotonic() + reconnect.RECONNECT_S
    with trio.move_on_after(reconnect.RECONNECT_S):  # blocking: with nullcontext():
        while True:
            try:
                return await action()
            except ClisupError as error:
                if not may_come_back(error):
                    raise
                last = error
            if time.monotonic() > until:
                break
            await trio.sleep(reconnect.pause_after(last))
    raise gone(last, first)


async def call_surely(
    call: Callable[..., Awaitable[Any]], server: Callable[[], JsonObject], method: str, params: Mapping[str, Any]
) -> Any:
    """Call `method`, and call it again after each restart of the daemon. For requests that may be sent twice.

    `call` reconnects; `server` returns how the daemon introduced itself. Raises what `Repeats` says.
    """
    repeats = Repeats()
    while True:
        repeats.begin()
        try:
            return await call(method, **params)
        except ClisupError as error:
            if stays_away(error) or not may_come_back(error) or repeats.spent(error, server()):
                raise
        await trio.sleep(reconnect.RETRY_PAUSE_S)  # a daemon that refuses is not asked in a busy loop


class AsyncClosable:
    """Base of the iterators. In an `async with` block the iterator is closed at the end."""

    def close(self) -> None:
        """Stop listening; the iteration ends."""
        raise NotImplementedError

    def __aiter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self.close()


class AsyncFollower(AsyncClosable):
    """Iterator over the events of one session, or of all sessions (`"*"`), as dicts.

    The iterator subscribes at the first step, or by `open`. After a restart of the daemon it goes on after its cursor: each
    seq of each session once and in order, and new sessions from their first event. Missing history is reported by a dict
    of type `gap`, without a `seq`. `on_lost` and `on_back` are called when the connection breaks and when it stands again.
    """

    def __init__(
        self,
        path: str,
        name: str,
        cursor: FollowCursor,
        options: Mapping[str, Any],
        call: Callable[..., Awaitable[Any]],
    ) -> None:
        """`call` sends a request on another connection, and again after a restart."""
        self._path, self._name, self._cursor, self._options, self._call = path, name, cursor, options, call
        self._connection: AsyncConnection | None = None
        self._closed = False
        self.expected = False
        """Tell whether the session is known to exist. Then the first connection is retried, too."""
        self.on_lost: _Told = None
        self.on_back: _Told = None

    @property
    def cursor(self) -> int | dict[str, int] | None:
        """The last seq given, or a map of them for all sessions. Another iterator accepts the value as `after_seq`."""
        return self._cursor.value

    @property
    def closed(self) -> bool:
        """Tell whether `close` was called."""
        return self._closed

    @property
    def at_hand(self) -> bool:
        """Tell whether an event was received and not given yet. Then the next step does not wait, unless it is a duplicate."""
        return self._connection is not None and self._connection.at_hand

    async def open(self) -> Self:
        """Subscribe now. Without `after_seq`, "from now on" is this moment and not that of the first step."""
        if self._connection is None and not self._closed:
            try:
                await self._subscribed()
            except ClisupError as error:
                if not self.expected or not may_come_back(error):
                    raise
                await again_until(self._subscribed, error)
        return self

    async def __anext__(self) -> JsonObject:
        while not self._closed:
            try:
                connection = self._connection or await self._subscribed()
                event = await connection.next_event(self._cursor.session_id)
            except ClisupError as error:
                if self._closed:  # by another task
                    break
                if not self.expected or not may_come_back(error):
                    raise
                await self._come_back(error)
                continue
            if self._cursor.advance(event):
                return event
        raise StopAsyncIteration

    async def ack(self, event: Mapping[str, Any]) -> None:
        """Acknowledge all events of the session up to this one: a later iterator of this `name` begins after it.

        The cursor is stored when this returns. The request is repeated after a restart. Raises `invalid_params` without a
        `name`, and `storage_failed`. A deleted session is no error.
        """
        params = ack_params(self._options.get("name"), event)
        try:
            await self._call("session/ack", **params)
        except ClisupError as error:
            if error.kind != "session_not_found":
                raise

    def close(self) -> None:
        """End the subscription; the iteration stops. A durable cursor stays."""
        self._closed = True
        self._hang_up()

    def __del__(self) -> None:
        """Close the connection of an iterator that nobody holds any longer, as after `break` in a loop over a turn."""
        connection = getattr(self, "_connection", None)  # blocking:
        if connection is not None:  # blocking: if hasattr(self, "_connection"):
            connection.drop()  # blocking: self.close()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _subscribed(self) -> AsyncConnection:
        """Connect and subscribe. The answer comes before the first event."""
        connection = await AsyncConnection.connect(self._path, name=self._name)
        try:
            params = self._cursor.params() | dict(self._options)
            self._cursor.opened(await connection.call("session/subscribe", **params))
        except BaseException:
            connection.close()
            raise
        self._connection, self.expected = connection, True
        if self._closed:  # meanwhile
            self._hang_up()
        return connection

    async def _come_back(self, first: ClisupError) -> None:
        self._hang_up()
        if self.on_lost:
            self.on_lost()
        await again_until(self._subscribed, first)
        if self.on_back:
            self.on_back()


class AsyncRequests(ABC):
    """Requests that sessions and clients share. The client implements the abstract methods."""

    @abstractmethod
    async def call(self, method: str, /, **params: Any) -> Any:
        """Send any request of the protocol, as it is on the wire, and return the result."""

    @abstractmethod
    async def _call_surely(self, method: str, /, **params: Any) -> Any:
        """`call`, repeated after each restart: for requests that may be sent twice."""

    @abstractmethod
    async def _call_by_key(self, method: str, params: JsonObject) -> JsonObject:
        """Send a prompt-like request, which has a key, until the daemon answers it. Make a key if `params` has none."""

    @abstractmethod
    def _follower(
        self,
        session_id: str,
        after_seq: int | Mapping[str, int] | None,
        options: Mapping[str, Any],
        *,
        on_lost: _Told = None,
        on_back: _Told = None,
        expected: bool = False,
    ) -> AsyncFollower:
        """Make a follower, which ends with the client."""

    async def blob(self, session_id: str, blob: str) -> bytes:
        """Return the whole of a payload that was too large for its event."""
        from base64 import b64decode

        pages: list[bytes] = []
        offset = 0
        while True:
            page = await self._sure("session/blob", session_id=session_id, blob=blob, offset=offset)
            pages.append(b64decode(page["data_base64"]))
            offset += len(pages[-1])
            if page["eof"] or not pages[-1]:
                return b"".join(pages)

    async def open_approvals(self, session_id: str | None = None) -> list[Approval]:
        """Return the pending approvals of a session, or of all sessions."""
        from clisup.client.answers import Approval, read

        answer = await self._sure("approval/list", session_id=session_id)
        return read(list[Approval], answer["approvals"], "approval/list")

    async def respond(self, approval: Approval | str, decision: Decision, *, session_id: str | None = None) -> None:
        """Answer an approval; the first answer wins. With an id alone, `session_id` names the session; otherwise all are searched.

        Raises `approval_already_resolved` and `approval_not_found`. The decision None sends nothing.
        """
        from clisup.client.answers import answering

        if (params := answering(approval, decision, session_id)) is not None:
            await self.call("approval/respond", **params)

    async def settle(self, approval: Approval, decision: Decision) -> None:
        """Answer an approval, also across a restart. An earlier answer by another client is no error.

        The word `allow` declines an elicitation: give an `Answer` with `updated_input`.
        """
        from clisup.client.answers import answering, by_handler, settled

        if (params := answering(approval, by_handler(approval, decision))) is None:
            return
        try:
            await self._sure("approval/respond", **params)
        except ClisupError as error:
            if not settled(error):
                raise

    async def _sure(self, method: str, /, **params: Any) -> JsonObject:
        """`_call_surely` without the params that are None, for a method whose result is an object."""
        result: JsonObject = await self._call_surely(method, **given(params))
        return result

    async def _read(self, type_: type[_T], method: str, /, **params: Any) -> _T:
        from clisup.client.answers import read

        return read(type_, await self._call_surely(method, **given(params)), method)
