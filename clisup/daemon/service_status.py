"""What the service manager hears of the daemon while it lives: a status line, more time where it is needed, signs of life."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import structlog
import trio

from clisup.host.systemd.notify import Notifier

__all__ = ["EXTENSION_S", "Announcer", "Vitals", "status_line"]

STATUS_S = 5.0
"""Between two looks at what the status line says; it is sent when it has changed."""
EXTENSION_S = 30.0
"""A start or a stop that goes on asks for so much more time at each look."""
READY_PAUSE_S = 0.1
_log = structlog.get_logger()


def status_line(*, state: str, sessions: int, running: int, waiting: int = 0, storage: str = "ok") -> str:
    """The line of `systemctl status`."""
    turns = "1 turn" if running == 1 else f"{running} turns"
    if state == "starting":
        return "starting: taking up sessions"
    if state == "draining":
        return f"draining: {turns}"
    words = [f"{sessions} session{'' if sessions == 1 else 's'}", f"{turns} running"]
    words += [f"{waiting} waiting"] if waiting else []
    words += [f"storage {storage}"] if storage != "ok" else []
    return ", ".join(words)


class Vitals:
    """The tasks that the daemon is nothing without. One that has ended, whichever way, is what a watchdog must not overlook."""

    def __init__(self) -> None:
        self._ended: list[str] = []

    @property
    def ok(self) -> bool:
        return not self._ended

    async def keep(self, name: str, task: Callable[..., Awaitable[Any]], *args: object) -> None:
        """Run it to its end, and remember that it has one."""
        try:
            await task(*args)
        finally:
            self._ended.append(name)
        _log.error("task ended inside the daemon", task=name)


class Announcer:
    """`look` gives the daemon's state and its status line. `run` is a task for as long as the daemon lives."""

    def __init__(self, notifier: Notifier, vitals: Vitals, look: Callable[[], tuple[str, str]]) -> None:
        self._notifier = notifier
        self._vitals = vitals
        self._look = look
        self._said = ""

    async def run(self) -> None:
        """Until cancelled; at once over where no manager wants to hear anything."""
        if not self._notifier.listening:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell)
            if self._notifier.watchdog_s is not None:
                nursery.start_soon(self._ping, self._notifier.watchdog_s / 2)

    async def ready(self) -> None:
        """Say that it serves. Where the manager is too busy to take it, again until it does, or the daemon stops.

        A task of its own: an address that nobody listens at (of a manager that is gone, or a stale variable) takes no word ever.
        """
        state, text = self._look()
        while self._notifier.listening and state == "ready":
            if self._notifier.ready(text):
                self._said = text
                return
            await trio.sleep(READY_PAUSE_S)
            state, text = self._look()

    async def _tell(self) -> None:
        while True:
            self.tell()
            await trio.sleep(STATUS_S)

    def tell(self) -> None:
        """What there is to say now."""
        state, text = self._look()
        if state != "ready":
            self._notifier.extend(EXTENSION_S)
        if text != self._said and self._notifier.status(text):
            self._said = text

    async def _ping(self, pause_s: float) -> None:
        """From the event loop itself: one that hangs sends nothing. A full or failing disk is no reason to be killed."""
        while True:
            if self._vitals.ok:
                self._notifier.watchdog()
            await trio.sleep(pause_s)
