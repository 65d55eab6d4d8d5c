"""Subscriptions of the trio client: what `clisup.client.following` is to the blocking one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self, TypeVar

import trio

from clisup.client.coming_back import RECONNECT_S, RETRY_PAUSE_S, gone, may_come_back
from clisup.client.cursor import Cursor
from clisup.client.following import ack_params
from clisup.client.frame_stream import FrameStream, dial
from clisup.client.transport import encode_request
from clisup.errors import ClisupError, error_from_wire

__all__ = ["Subscription", "again_until"]

_T = TypeVar("_T")
_SUBSCRIBE = 2  # the request's id on its connection; `dial` takes 1


async def again_until(action: Callable[[], Awaitable[_T]], first: ClisupError) -> _T:
    """Repeat `action` until the daemon is back. Raises a refusal after `RECONNECT_S`, anything else at once."""
    last = first
    with trio.move_on_after(RECONNECT_S):
        while True:
            try:
                return await action()
            except ClisupError as error:
                if not may_come_back(error):
                    raise
                last = error
            await trio.sleep(RETRY_PAUSE_S)
    raise gone(last, first)


class Subscription:
    """An asynchronous iterator over the events of one session, or of all (`"*"`). It connects at the first step, or by `open`.

    After a restart of the daemon it goes on where it was, each seq of each session once and in order; a session that was
    opened meanwhile is given whole. History that is missing is told by one dict of type `gap`, without a `seq`.
    """

    def __init__(
        self,
        path: str,
        name: str,
        cursor: Cursor,
        options: dict[str, Any],
        call: Callable[..., Awaitable[Any]],
    ) -> None:
        """`call` asks on another connection, and again after a restart: for what may be asked twice."""
        self._path, self._name, self._cursor, self._options, self._call = path, name, cursor, options, call
        self._lines: FrameStream | None = None
        self._closed = False
        self.expected = False
        """Is it known that there is something to follow? Then the first connection, too, is tried for until `RECONNECT_S` have passed."""
        self.on_lost: Callable[[], None] | None = None
        self.on_back: Callable[[], None] | None = None

    @property
    def cursor(self) -> int | dict[str, int] | None:
        """The last seq given; of all sessions a map of them. What another subscription may be given as `after_seq`."""
        return self._cursor.value

    @property
    def closed(self) -> bool:
        """Was it closed here?"""
        return self._closed

    async def open(self) -> Self:
        """Subscribe now: where no `after_seq` was given, "from now on" is this moment and not that of the first step."""
        if self._lines is None and not self._closed:
            await self._open()
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> dict[str, Any]:
        while not self._closed:
            try:
                frame = await (self._lines or await self._open()).next_frame()
                event = _event_of(frame, self._cursor.session_id)
            except ClisupError as error:
                if self._closed:  # here, by another task
                    break
                if not self.expected or not may_come_back(error):
                    raise
                await self._come_back(error)
                continue
            if event is not None and self._cursor.advance(event):
                return event
        raise StopAsyncIteration

    async def ack(self, event: Mapping[str, Any]) -> None:
        """Be done with everything of the event's session up to it, for good: a subscription of this `name` begins after it.

        It is stored when this returns. Asked on the client's connection, and again after a restart. A session that was deleted
        meanwhile is no error. Raises `invalid_params` without a `name`, `storage_failed`.
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
        """Nobody will take another event, as where the loop over a turn was left: its connection is not kept until the client's end."""
        if self._lines is not None:
            self._lines.drop()

    def _hang_up(self) -> None:
        if self._lines:
            self._lines.close()
            self._lines = None

    async def _open(self) -> FrameStream:
        """Connect and subscribe; the answer comes before the first event."""
        lines, _ = await dial(self._path, self._name)
        try:
            line = encode_request(_SUBSCRIBE, "session/subscribe", self._cursor.params() | self._options)
            self._cursor.opened(await lines.ask(_SUBSCRIBE, line))
        except BaseException:
            lines.close()
            raise
        self._lines, self.expected = lines, True
        if self._closed:  # meanwhile
            self._hang_up()
        return lines

    async def _come_back(self, first: ClisupError) -> None:
        self._hang_up()
        if self.on_lost:
            self.on_lost()
        await again_until(self._open, first)
        if self.on_back:
            self.on_back()


def _event_of(frame: dict[str, Any], session_id: str) -> dict[str, Any] | None:
    """The event or the gap of a frame; None for one of another session. Raises what the daemon hangs up with."""
    if "error" in frame and frame.get("id") is None:
        raise error_from_wire(frame["error"])
    params: dict[str, Any] = frame.get("params", {})
    if "method" not in frame or session_id not in ("*", params.get("session_id")):
        return None
    return {"type": "gap", **params} if frame["method"] == "session/gap" else params
