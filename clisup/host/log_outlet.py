"""Where log lines go: to the journal or to stderr. Whoever does not take them holds nobody up: they are counted, and told of later."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from clisup.host import clock

__all__ = ["LINE_PAUSE_S", "Outlet", "Sender", "StderrSender"]

LINE_PAUSE_S = 0.1
"""How long a line that is half written may wait for its reader, in all, before its rest is dropped."""
_PIECE = 4096  # PIPE_BUF: what a pipe that is ready for writing takes without waiting

Record = Mapping[str, Any]


class Sender(Protocol):
    """Takes a rendered line. May neither wait nor raise; False where it was not taken."""

    def send(self, line: bytes) -> bool: ...


class StderrSender:
    """Lines on stderr. What is shared with others cannot be made non-blocking for us alone, so it is asked before each piece."""

    def __init__(self, fd: int = 2) -> None:
        self._fd = _of_our_own(fd)
        self._torn = False
        self._ready = select.poll()
        self._ready.register(self._fd, select.POLLOUT)

    def send(self, line: bytes) -> bool:
        """Was it written, whole? After a line that broke off the next one begins on a line of its own."""
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
    """The same terminal or pipe, opened once more so that only we do not wait for it; else `fd` itself.

    A terminal whose other end does not read says that it is ready for writing as long as it has room for one byte, and then
    waits with the rest of the line: for ever, where an ssh connection hangs (Linux 6.x, measured with a pty).
    """
    try:
        if os.isatty(fd) or stat.S_ISFIFO(os.fstat(fd).st_mode):
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        pass
    return fd


class Outlet:
    """What structlog calls its logger: every level's method takes the record."""

    def __init__(self, sender: Sender, render: Callable[[Record], bytes]) -> None:
        self._sender = sender
        self._render = render
        self.dropped = 0
        self._untold = 0

    def msg(self, record: Record) -> None:
        """Send it, and before it how many were lost before it."""
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
