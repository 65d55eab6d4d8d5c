"""Notifications to the service manager, sd_notify(3)."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from clisup.host import clock

MICROSECONDS = 1_000_000
STATUS_LIMIT = 200  # characters: `systemctl status` shows one line


def notify_message(**fields: str | int) -> bytes:
    """Return the datagram: a line `NAME=value` for each field, in the order given. Values lose their line breaks."""
    lines = (f"{name}={' '.join(str(value).split())}" for name, value in fields.items())
    return "\n".join(lines).encode("utf-8", "replace")


class Notifier:
    """Connection to the manager that started this process.

    Every method returns False if nothing was sent, and never waits.

    `watchdog_s` is the time that the manager waits for a sign of life, or None if the manager does not wait.
    """

    def __init__(self, address: str | None = None, *, watchdog_s: float | None = None) -> None:
        self._address = address
        self.watchdog_s = watchdog_s if address is not None else None

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Notifier:
        """Return a notifier for the environment that the daemon was started with.

        The variables are `$NOTIFY_SOCKET`, `$WATCHDOG_USEC` and `$WATCHDOG_PID`.
        """
        address = env.get("NOTIFY_SOCKET", "")
        if address[:1] not in ("/", "@"):
            return cls()
        return cls(address, watchdog_s=_watchdog(env))

    @property
    def listening(self) -> bool:
        """Tell whether a manager wants notifications."""
        return self._address is not None

    def ready(self, status: str) -> bool:
        """Report that the start, or a reload, is over: the daemon serves."""
        return self._send(READY=1, STATUS=status[:STATUS_LIMIT])

    def status(self, text: str) -> bool:
        """Send a line for `systemctl status`."""
        return self._send(STATUS=text[:STATUS_LIMIT])

    def stopping(self) -> bool:
        """Report that the daemon is stopping."""
        return self._send(STOPPING=1)

    def reloading(self) -> bool:
        """Report the start of a reload, of the configuration or of the whole daemon in place.

        `ready` ends the reload.
        """
        return self._send(RELOADING=1, MONOTONIC_USEC=int(clock.monotonic() * MICROSECONDS))

    def watchdog(self) -> bool:
        """Send a sign of life to the watchdog."""
        return self.watchdog_s is not None and self._send(WATCHDOG=1)

    def extend(self, seconds: float) -> bool:
        """Report that a start or a stop goes on. The next such report comes within `seconds`."""
        return self._send(EXTEND_TIMEOUT_USEC=int(seconds * MICROSECONDS))

    def _send(self, **fields: str | int) -> bool:
        if self._address is None:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sock:
                sock.sendto(notify_message(**fields), _address(self._address))
        except OSError:
            return False  # the manager is busy or gone: later notifications repeat the state
        return True


def _address(text: str) -> str:
    """Return the address for the socket. A name that begins with @ is abstract (unix(7)): its first byte is NUL."""
    return "\0" + text[1:] if text.startswith("@") else text


def _watchdog(env: Mapping[str, str]) -> float | None:
    """Return the watchdog's seconds, or None.

    None means that no watchdog is wanted, or that it watches another process (sd_watchdog_enabled(3)).
    """
    wanted = env.get("WATCHDOG_USEC", "")
    if not wanted.isdecimal() or int(wanted) == 0 or env.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(wanted) / MICROSECONDS
