"""A way from blocking code to trio: one thread of the program's runs trio, and others call into it and wait."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import trio

__all__ = ["ENDING_S", "Held", "Portal", "the_portal"]

ENDING_S = 15.0
"""How long the end of the program waits for chats that were left open: longer than the end of each is bounded."""

T = TypeVar("T")


class Portal:
    """A thread that runs trio. It ends with the program, and ends what is open in it."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._token: trio.lowlevel.TrioToken
        self._nursery: trio.Nursery
        self._thread = threading.Thread(target=trio.run, args=(self._serve,), name="clisup-llm", daemon=True)
        self._thread.start()
        self._ready.wait()

    def call(self, what: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Await it there. What interrupts the waiting (Ctrl-C, whatever a handler of signals raises) cancels it, and is raised once
        it has ended.
        """
        outcome: list[T] = []
        scope, ended = trio.CancelScope(), threading.Event()

        async def run() -> None:
            try:
                with scope:
                    outcome.append(await what(*args))
            finally:
                ended.set()

        try:
            trio.from_thread.run(run, trio_token=self._token)
        except BaseException as error:
            if not ended.is_set() and not isinstance(error, RuntimeError):  # by which trio says that nothing was begun
                self._token.run_sync_soon(scope.cancel)
                ended.wait(ENDING_S)
            raise
        return outcome[0]

    def hold(self, manager: AbstractAsyncContextManager[T]) -> Held[T]:
        """Enter an asynchronous context manager there, in a task of its own that holds it until `Held.close`."""
        held: Held[T] = self.call(self._nursery.start, _hold, manager, self)
        return held

    def close(self) -> None:
        """End all that is open there; bounded by `ENDING_S`."""
        try:
            self._token.run_sync_soon(self._nursery.cancel_scope.cancel)
        except trio.RunFinishedError:
            return
        self._thread.join(ENDING_S)

    async def _serve(self) -> None:
        async with trio.open_nursery() as nursery:
            self._token, self._nursery = trio.lowlevel.current_trio_token(), nursery
            self._ready.set()
            await trio.sleep_forever()


@dataclass(slots=True)
class Held(Generic[T]):
    """What an asynchronous context manager gave, until `close`."""

    value: T
    _portal: Portal
    _over: trio.Event
    _gone: trio.Event
    _failure: list[BaseException]

    def close(self) -> None:
        """Leave the context manager. Raises what that raises. At the program's end it was left already."""
        try:
            self._portal.call(self._leave)
        except trio.RunFinishedError:
            return
        if self._failure:
            raise self._failure[0]

    async def _leave(self) -> None:
        self._over.set()
        await self._gone.wait()


async def _hold(manager: AbstractAsyncContextManager[T], portal: Portal, task_status: trio.TaskStatus[Held[T]]) -> None:
    held: Held[T] | None = None
    try:
        async with manager as value:
            held = Held(value, portal, trio.Event(), trio.Event(), [])
            task_status.started(held)
            await held._over.wait()
    except Exception as error:
        if held is None:
            raise  # to who enters
        held._failure.append(error)  # to who leaves: here it would end all else
    finally:
        if held is not None:
            held._gone.set()


_portals: dict[int, Portal] = {}
_starting = threading.Lock()


def the_portal() -> Portal:
    """The one of this process; a fork needs its own, as threads do not come along."""
    with _starting:
        if (portal := _portals.get(os.getpid())) is None:
            portal = _portals[os.getpid()] = Portal()
            atexit.register(portal.close)
        return portal
