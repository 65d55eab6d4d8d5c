"""Messages to the service manager: a status line, requests for more time, and watchdog pings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from clisup.host.log import event_logger
from clisup.host.shortage import shortage_of
from clisup.host.systemd.notifier import Notifier

__all__ = ["EXTENSION_S", "ServiceStatus", "VitalTasks", "status_line"]

STATUS_S = 5.0
"""Seconds between two checks of the status line, which is sent when it has changed."""
EXTENSION_S = 30.0
"""Seconds that a running start or stop asks for at each check."""
READY_PAUSE_S = 0.1
SHORTAGE_PAUSE_S = 1.0  # before a vital task begins again
_log = event_logger()


def status_line(*, state: str, sessions: int, running: int, waiting: int = 0, storage: str = "ok") -> str:
    """Return the line of `systemctl status`."""
    turns = "1 turn" if running == 1 else f"{running} turns"
    if state == "starting":
        return "starting: taking up sessions"
    if state == "draining":
        return f"draining: {turns}"
    words = [f"{sessions} session{'' if sessions == 1 else 's'}", f"{turns} running"]
    words += [f"{waiting} waiting"] if waiting else []
    words += [f"storage {storage}"] if storage != "ok" else []
    return ", ".join(words)


class VitalTasks:
    """Tasks that must not end while the daemon runs. The watchdog pings stop when one has ended.

    The pings do not depend on the disk: a daemon that is killed because the disk is full can only fail again. They do not
    come through the socket, which would fail first under a flood of clients.
    """

    def __init__(self) -> None:
        self._ended: list[str] = []

    @property
    def ok(self) -> bool:
        return not self._ended

    async def keep(self, name: str, task: Callable[..., Awaitable[Any]], *args: object) -> None:
        """Run the task, and note its end. Begin the task again after a shortage: it must not end the daemon."""
        try:
            while True:
                try:
                    await task(*args)
                    break
                except Exception as error:
                    if (shortage := shortage_of(error)) is None:
                        raise
                    _log.error("task overloaded", task=name, error=shortage.message)
                await trio.sleep(SHORTAGE_PAUSE_S)
        finally:
            self._ended.append(name)
        _log.error("task ended inside the daemon", task=name)


class ServiceStatus:
    """Status of the daemon for its service manager. `read` returns the state and the status line. `run` is a task."""

    def __init__(self, notifier: Notifier, vitals: VitalTasks, read: Callable[[], tuple[str, str]]) -> None:
        self._notifier = notifier
        self._vitals = vitals
        self._read = read
        self._sent = ""

    async def run(self) -> None:
        """Report until cancelled. Return at once without a service manager."""
        if not self._notifier.listening:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report)
            if self._notifier.watchdog_s is not None:
                nursery.start_soon(self._ping, self._notifier.watchdog_s / 2)

    async def ready(self) -> None:
        """Report that the daemon is ready. Repeat that until the manager accepts it or the daemon stops.

        Run it as a task: the address may be stale, and then nobody ever accepts the message.
        """
        state, text = self._read()
        while self._notifier.listening and state == "ready":
            if self._notifier.ready(text):
                self._sent = text
                return
            await trio.sleep(READY_PAUSE_S)
            state, text = self._read()

    async def _report(self) -> None:
        while True:
            self.report()
            await trio.sleep(STATUS_S)

    def report(self) -> None:
        """Send the present status."""
        state, text = self._read()
        if state != "ready":
            self._notifier.extend(EXTENSION_S)
        if text != self._sent and self._notifier.status(text):
            self._sent = text

    async def _ping(self, pause_s: float) -> None:
        """Ping from the event loop, so a loop that hangs sends nothing. A bad disk must not get the daemon killed."""
        while True:
            if self._vitals.ok:
                self._notifier.watchdog()
            await trio.sleep(pause_s)
