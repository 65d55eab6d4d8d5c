"""Where log lines go: to the journal or to stderr. Whoever does not take them holds nobody up: they are counted, and told of later."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Mapping
from typing import Any, Protocol

__all__ = ["LINE_PAUSE_S", "Outlet", "Sender", "StderrSender"]

LINE_PAUSE_S = 0.1
"""How long a line that is half written may wait for its reader, before its rest is dropped."""
_PIECE = 4096  # PIPE_BUF: what a pipe that is ready for writing takes without waiting

Record = Mapping[str, Any]


class Sender(Protocol):
    """Takes a rendered line. May neither wait nor raise; False where it was not taken."""

    def send(self, line: bytes) -> bool: ...


class StderrSender:
    """Lines on a descriptor that is shared with others, so that it cannot be made non-blocking: it is asked before each piece."""

    def __init__(self, fd: int = 2) -> None:
        self._fd = fd
        self._torn = False
        self._ready = select.poll()
        self._ready.register(fd, select.POLLOUT)

    def send(self, line: bytes) -> bool:
        """Was it written, whole? After a line that broke off the next one begins on a line of its own."""
        view = memoryview((b"\n" if self._torn else b"") + line + b"\n")
        pause = 0.0
        try:
            while view:
                if not any(mask & select.POLLOUT for _, mask in self._ready.poll(pause * 1000)):
                    self._torn = self._torn or pause > 0
                    return False
                view, pause, self._torn = view[os.write(self._fd, view[:_PIECE]) :], LINE_PAUSE_S, True
        except OSError:  # its reader is gone (`clisup serve 2>&1 | head`), or the disk of its file is full
            return False
        self._torn = False
        return True


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
