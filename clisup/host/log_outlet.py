"""Outlet of log lines: the journal or stderr. A reader that takes no lines blocks nobody.

Lines that were not taken are counted and reported later.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from clisup.host import clock

__all__ = ["LINE_PAUSE_S", "Outlet", "Sender", "StderrSender"]

LINE_PAUSE_S = 0.1
"""Total seconds that a half-written line may wait for its reader. The rest of the line is then dropped."""
_PIECE = 4096  # PIPE_BUF: bytes that a ready pipe takes without waiting

Record = Mapping[str, Any]


class Sender(Protocol):
    """Receiver of rendered lines. `send` may neither wait nor raise, and returns False if it did not take the line."""

    def send(self, line: bytes) -> bool:
        """Send a line, and return whether it was taken."""
        ...


class StderrSender:
    """Writer of lines on stderr.

    A descriptor shared with others cannot be made non-blocking for us alone, so the writer polls it before each piece.
    """

    def __init__(self, fd: int = 2) -> None:
        self._fd = _of_our_own(fd)
        self._torn = False
        self._ready = select.poll()
        self._ready.register(self._fd, select.POLLOUT)

    def send(self, line: bytes) -> bool:
        """Write a line, and return whether all of it was written.

        After a torn line the next starts on a line of its own.
        """
        view = memoryview((b"\n" if self._torn else b"") + line + b"\n")
        began: float | None = None
        try:
            while view:
                left = 0.0 if began is None else max(0.0, began + LINE_PAUSE_S - clock.monotonic())
                if not any(mask & select.POLLOUT for _, mask in self._ready.poll(left * 1000)):
                    return False
                view = view[os.write(self._fd, view[:_PIECE]) :]
                began, self._torn = clock.monotonic() if began is None else began, True
        except OSError:  # its reader is gone (`clisup serve 2>&1 | head`), or the disk of its file is full
            return False
        self._torn = False
        return True


def _of_our_own(fd: int) -> int:
    """Return the same terminal or pipe, opened again so that only we do not wait for it; else `fd` itself.

    A terminal whose other end does not read counts as ready while it has room for one byte. It then waits with the rest
    of the line: forever, if an ssh connection hangs (Linux 6.x, measured with a pty).
    """
    try:
        if os.isatty(fd) or stat.S_ISFIFO(os.fstat(fd).st_mode):
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        pass
    return fd


class Outlet:
    """Logger for structlog: the method of every level takes the record."""

    def __init__(self, sender: Sender, render: Callable[[Record], bytes]) -> None:
        self._sender = sender
        self._render = render
        self.dropped = 0
        self._untold = 0

    def msg(self, record: Record) -> None:
        """Send the record, preceded by the number of lines lost before it."""
        if self._untold:
            lost = {"event": "log lines dropped", "count": self._untold, "level": "warning"}
            if not self._sender.send(self._render({**lost, "timestamp": record.get("timestamp", "")})):
                self._lost()
                return
            self._untold = 0
        if not self._sender.send(self._render(record)):
            self._lost()

    def _lost(self) -> None:
        self.dropped += 1
        self._untold += 1

    debug = info = warning = error = critical = msg
