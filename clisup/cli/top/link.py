"""The daemon over asyncio, which Textual runs on: what `clisup.client.transport` is to the blocking client.

A `Feed` is one subscription that comes back by itself, as `clisup.client.following.Follower` does, and takes calls between.
Lines are handed on as they are read and nothing is queued: where the view is slower than the daemon, the daemon waits.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from clisup import __version__
from clisup.client.coming_back import may_come_back
from clisup.client.cursor import Cursor
from clisup.client.failures import cannot_connect, lost, not_json, path_too_long
from clisup.client.transport import CONNECT_TIMEOUT_S, check_server, decode, encode_request
from clisup.errors import ClisupError, error_from_wire
from clisup.locations import SOCKET_PATH_LIMIT

__all__ = ["ANSWER_S", "LINE_LIMIT", "RETRY_S", "Feed"]

ANSWER_S = 60.0
"""An answer is waited for so long; an interrupt's comes at the end of its turn and has no limit of its own."""

RETRY_S = 0.25
"""Seconds between two looks for a daemon that is away. It is looked for until the view is left."""

LINE_LIMIT = 64 * 1024 * 1024
"""Bytes of one line; the view hangs up at more."""

_CHUNK = 64 * 1024
_QUIET_S = 30.0
_Event = dict[str, Any]


class _Link:
    """One connection: calls, and what the daemon sends by itself."""

    def __init__(self, path: str, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        self._path, (self._reader, self._writer) = path, streams
        self._last_id = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._gone: ClisupError | None = None

    @classmethod
    async def open(cls, path: str) -> _Link:
        if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
            raise path_too_long(path)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                streams = await asyncio.open_unix_connection(path, limit=_CHUNK)
        except OSError as error:  # a timeout is one
            raise cannot_connect(path, error) from None
        try:
            check_server(path, streams[1].get_extra_info("socket"))
        except BaseException:
            streams[1].transport.abort()
            raise
        return cls(path, streams)

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        if self._gone is not None:
            raise self._gone
        self._last_id = id_ = self._last_id + 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[id_] = answer
        try:
            self._writer.write(encode_request(id_, method, params))
            await self._writer.drain()
            return await answer
        except OSError:
            raise lost(self._path) from None
        finally:
            self._waiting.pop(id_, None)

    async def read(self, on_event: Callable[[_Event], None]) -> None:
        """Hand on what comes, until the daemon goes: it ends by raising, and what is waited for then fails as well."""
        try:
            await self._read(on_event)
        except BaseException as error:
            self._gone = error if isinstance(error, ClisupError) else lost(self._path)
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(self._gone)
            raise

    async def _read(self, on_event: Callable[[_Event], None]) -> None:
        parts: list[bytes] = []
        held = 0
        while True:
            try:
                data = await self._reader.read(_CHUNK)
            except OSError:
                raise lost(self._path) from None
            if not data:
                raise lost(self._path)
            *lines, rest = data.split(b"\n")
            for line in lines:
                self._take(b"".join([*parts, line]), on_event)
                parts, held = [], 0
            parts.append(rest)
            held += len(rest)
            if held > LINE_LIMIT:
                raise lost(self._path, f"it sent a line of more than {LINE_LIMIT} bytes")
            await asyncio.sleep(0)  # a daemon that has much to say must not keep the keys from being heard

    def _take(self, line: bytes, on_event: Callable[[_Event], None]) -> None:
        try:
            frame = decode(line)
        except ValueError:
            raise not_json(self._path) from None
        if frame.get("method") == "session/event":
            on_event(frame["params"])
        elif frame.get("method") == "session/gap":
            on_event({"type": "gap", **frame["params"]})
        elif "method" not in frame:
            answer = self._waiting.get(frame.get("id") or 0)
            if answer is None and "error" in frame and frame.get("id") is None:
                raise error_from_wire(frame["error"])  # the daemon says why it hangs up
            if answer is not None and not answer.done():
                if "error" in frame:
                    answer.set_exception(error_from_wire(frame["error"]))
                else:
                    answer.set_result(frame.get("result"))

    def close(self) -> None:
        self._writer.transport.abort()


class Feed:
    """The events of one session, or of all (`"*"`), each seq once, across restarts of the daemon; and calls.

    `on_state` is told the truth of "it is heard" whenever that changes, on the first time too.
    """

    def __init__(
        self,
        path: str,
        session_id: str,
        after_seq: int | None,
        *,
        on_event: Callable[[_Event], None],
        on_state: Callable[[bool], None],
        deltas: bool = False,
    ) -> None:
        self._path, self._deltas = path, deltas
        self._on_event, self._on_state = on_event, on_state
        self._cursor = Cursor(session_id, after_seq)
        self._link: _Link | None = None

    async def run(self) -> None:
        """Until it is cancelled. Raises what the daemon refuses for good, as `session_not_found`."""
        while True:
            try:
                await self._once()
            except ClisupError as error:
                if error.kind == "invalid_params":  # its journals are not those of before: from now on, then
                    self._cursor = Cursor(self._cursor.session_id, None)
                elif not may_come_back(error):
                    raise
            await asyncio.sleep(RETRY_S)

    async def call(self, method: str, /, *, patient: bool = False, **params: Any) -> Any:
        """Ask on this connection. Raises `ClisupError`: what it was refused with, or that the daemon is away."""
        if self._link is None:
            raise lost(self._path, "it is away just now")
        try:
            async with asyncio.timeout(None if patient else ANSWER_S):
                return await self._link.call(method, params)
        except TimeoutError:
            raise lost(self._path, f"it did not answer {method} within {ANSWER_S:g} s") from None

    async def _once(self) -> None:
        link = await _Link.open(self._path)
        reading = asyncio.create_task(link.read(self._take))
        try:
            async with asyncio.timeout(ANSWER_S):
                await link.call("initialize", _HELLO)
                asked = {**self._cursor.params(), "deltas": self._deltas}
                self._cursor.opened(await link.call("session/subscribe", asked))
            self._link = link
            self._on_state(True)
            await self._alive(link, reading)
        except TimeoutError:
            raise lost(self._path) from None
        finally:
            was, self._link = self._link, None
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            link.close()
            if was is not None:
                self._on_state(False)

    async def _alive(self, link: _Link, reading: asyncio.Task[None]) -> None:
        """While it is read, the daemon is asked whether it lives, so that one that hangs is noticed."""
        while True:
            done, _ = await asyncio.wait([reading], timeout=_QUIET_S)
            if done:
                reading.result()
            async with asyncio.timeout(ANSWER_S):
                await link.call("ping", {})

    def _take(self, event: _Event) -> None:
        if self._cursor.advance(event):
            self._on_event(event)


_HELLO = {"protocol_version": 1, "client": {"name": "clisup-top", "version": __version__}}
