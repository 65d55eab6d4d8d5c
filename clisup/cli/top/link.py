"""Events and calls for the view: the blocking client in threads, beside the event loop that Textual runs on.

Events are handed over in batches, and the thread waits for each: a daemon that is faster than the view has to wait.
The threads are daemon threads, so that leaving the view waits for no answer.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from clisup.cli.views.events import Event
from clisup.client.raw import JsonObject
from clisup.client.reconnect import may_come_back
from clisup.client.sync import Client, Follower
from clisup.errors import ClisupError

__all__ = ["RETRY_S", "EventFeed", "in_thread"]

RETRY_S = 0.25
"""Pause between two attempts to reach the daemon. The view goes on trying until it is left."""

BOX_RETRY_S = 5.0
"""The same for a box: each attempt is an ssh of its own."""

BATCH = 200
"""Events handed over at once, so that keys are handled between two batches."""

_NAME = "clisup-top"
_T = TypeVar("_T")


class EventFeed:
    """Events of one session, or of all (`"*"`), each seq once, across restarts of the daemon; and calls.

    `on_state` is called with True and False when the connection stands and when it breaks.
    """

    def __init__(
        self,
        path: str,
        session_id: str,
        after_seq: int | None,
        *,
        on_event: Callable[[Event], None],
        on_state: Callable[[bool], None],
        deltas: bool = False,
    ) -> None:
        self._path, self._session_id, self._deltas = path, session_id, deltas
        self._cursor: int | dict[str, int] | None = after_seq
        self._on_event, self._on_state = on_event, on_state
        self._over: asyncio.Future[None]
        self._follower: Follower | None = None
        self._client: Client | None = None
        self._calling = asyncio.Lock()
        self._connected = False

    async def run(self) -> None:
        """Hand over events until cancelled. Raises what the daemon refuses for good, as `session_not_found`."""
        self._over = asyncio.get_running_loop().create_future()
        threading.Thread(target=self._read, args=(asyncio.get_running_loop(),), daemon=True).start()
        try:
            await self._over
        finally:
            self._over.cancel()
            if (follower := self._follower) is not None:
                follower.interrupt_reading()
            if (client := self._client) is not None:
                client.interrupt_reading()
                client.close()

    async def call(self, method: str, /, *, patient: bool = False, **params: Any) -> Any:
        """Call the daemon. Raises `ClisupError`: the refusal, or that the daemon is away.

        A `patient` call waits for the end of a turn, on a connection of its own.
        """
        if patient:
            return await in_thread(partial(self._call_alone, method, params))
        async with self._calling:
            return await in_thread(partial(self._call, method, params))

    def _call(self, method: str, params: JsonObject) -> Any:
        if (client := self._client) is None or client.lost:
            if client is not None:
                client.close()
            self._client = client = Client.connect(self._path, name=_NAME)
        return client.call(method, **params)

    def _call_alone(self, method: str, params: JsonObject) -> Any:
        with Client.connect(self._path, name=_NAME) as client:
            return client.call(method, **params)

    # -- the reading thread

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while not self._over.done():
                pause = RETRY_S
                try:
                    self._follow(loop)
                except ClisupError as error:
                    pause = BOX_RETRY_S if error.kind == "box_away" else RETRY_S
                    if error.kind == "invalid_params":  # the daemon has other journals than before
                        self._cursor = None
                    elif not may_come_back(error):
                        self._hand_over(loop, partial(self._over.set_exception, error))
                self._hand_over(loop, partial(self._tell, False))
                time.sleep(pause)
        except _ViewLeft:
            pass

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        def tell(connected: bool) -> None:
            self._hand_over(loop, partial(self._tell, connected))

        options = {"deltas": self._deltas}
        with Follower(self._path, self._session_id, self._cursor, options=options, name=_NAME) as follower:
            follower.on_lost, follower.on_back = partial(tell, False), partial(tell, True)
            self._follower = follower
            tell(True)
            try:
                for event in follower:
                    batch = [event]
                    try:
                        while follower.at_hand and len(batch) < BATCH and (more := next(follower, None)):
                            batch.append(more)
                    finally:
                        self._hand_over(loop, partial(self._take, batch))
            finally:
                self._cursor, self._follower = follower.cursor, None

    def _tell(self, connected: bool) -> None:
        if connected != self._connected:
            self._connected = connected
            self._on_state(connected)

    def _take(self, batch: list[Event]) -> None:
        for event in batch:
            self._on_event(event)

    def _hand_over(self, loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
        """Run the work in the event loop, and wait for its end."""
        done = threading.Event()

        def act() -> None:
            try:
                if not self._over.done():
                    work()
            except Exception as error:
                self._over.set_exception(error)
            finally:
                done.set()

        try:
            loop.call_soon_threadsafe(act)
        except RuntimeError:  # the loop is closed
            raise _ViewLeft from None
        while not done.wait(RETRY_S):
            if self._over.done():
                break
        if self._over.done():
            raise _ViewLeft


class _ViewLeft(Exception):
    """The feed was cancelled, or has failed: its thread ends."""


async def in_thread(work: Callable[[], _T]) -> _T:
    """Run `work` in a daemon thread, which outlives a cancelled wait."""
    result: Future[_T] = Future()
    result.set_running_or_notify_cancel()  # the thread may set the result of a cancelled wait, too

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(result)
