"""sd_notify(3): what the daemon tells the service manager, and when it has to give a sign of life. Nothing where there is none."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from clisup.host import clock

__all__ = ["Notifier", "notify_message"]

MICROSECONDS = 1_000_000
STATUS_LIMIT = 200  # characters: `systemctl status` shows one line


def notify_message(**fields: str | int) -> bytes:
    """The datagram: a line `NAME=value` for each field, in the order given. No value may bring a line of its own."""
    lines = (f"{name}={' '.join(str(value).split())}" for name, value in fields.items())
    return "\n".join(lines).encode("utf-8", "replace")


class Notifier:
    """Speaks to the manager that started this process. Every method gives False where nothing was sent, and none waits.

    `watchdog_s` is how long the manager waits for a sign of life, None where it waits for none.
    """

    def __init__(self, address: str | None = None, *, watchdog_s: float | None = None) -> None:
        self._address = address
        self.watchdog_s = watchdog_s if address is not None else None

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Notifier:
        """By `$NOTIFY_SOCKET`, `$WATCHDOG_USEC` and `$WATCHDOG_PID` of the environment that the daemon was started with."""
        address = env.get("NOTIFY_SOCKET", "")
        if address[:1] not in ("/", "@"):
            return cls()
        return cls(address, watchdog_s=_watchdog(env))

    @property
    def listening(self) -> bool:
        """Is there a manager that wants to hear?"""
        return self._address is not None

    def ready(self, status: str) -> bool:
        """The start, or a reload, is over: it serves."""
        return self._send(READY=1, STATUS=status[:STATUS_LIMIT])

    def status(self, text: str) -> bool:
        """A line for `systemctl status`."""
        return self._send(STATUS=text[:STATUS_LIMIT])

    def stopping(self) -> bool:
        """The end has begun."""
        return self._send(STOPPING=1)

    def reloading(self) -> bool:
        """A reload has begun, of the configuration or of the whole daemon in place; `ready` ends it."""
        return self._send(RELOADING=1, MONOTONIC_USEC=int(clock.monotonic() * MICROSECONDS))

    def watchdog(self) -> bool:
        """Alive."""
        return self.watchdog_s is not None and self._send(WATCHDOG=1)

    def extend(self, seconds: float) -> bool:
        """A start or a stop goes on; the next such word comes within so many seconds."""
        return self._send(EXTEND_TIMEOUT_USEC=int(seconds * MICROSECONDS))

    def _send(self, **fields: str | int) -> bool:
        if self._address is None:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sock:
                sock.sendto(notify_message(**fields), _address(self._address))
        except OSError:
            return False  # it is busy or gone: what it has to know is said again
        return True


def _address(text: str) -> str:
    """One that begins with @ is abstract (unix(7)): its first byte is NUL."""
    return "\0" + text[1:] if text.startswith("@") else text


def _watchdog(env: Mapping[str, str]) -> float | None:
    """Seconds; None where none is wanted, or of another process than this one (sd_watchdog_enabled(3))."""
    wanted = env.get("WATCHDOG_USEC", "")
    if not wanted.isdecimal() or int(wanted) == 0 or env.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(wanted) / MICROSECONDS
