"""Standard output of the demo CLI, and the signals that end the process.

A line is always written whole: a signal that comes meanwhile is raised after the line.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from clisup.stream_json.lines import encode_frame, write_all

__all__ = ["LONGEST_NAP_S", "Interrupted", "Stopped", "Wire", "catch_signals", "hold_signals", "ignore_signals", "nap"]

_CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LINE_GRACE_S = 0.2
LONGEST_NAP_S = 0.5
"""Python checks for signals before and after a wait. A signal between the check and the wait is noticed after the wait."""


class Stopped(BaseException):
    """A signal asks the process to end. `exit_code` is claude's exit code for this signal."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum
        self.exit_code = 128 + signum


class Interrupted(BaseException):
    """An interrupt ends the running turn. The process lives on."""


class Wire:
    """Standard output in one of claude's output formats.

    After the reader has closed the pipe, output is dropped and the script goes on, as in claude: its tools have effects.
    `busy` is true while a line is half written or a tool half started. A signal then waits in `pending`.
    """

    def __init__(self, output_format: str) -> None:
        self._format = output_format
        self._closed = False
        self.busy = False
        self.pending: int | None = None

    def frame(self, frame: dict[str, Any]) -> None:
        """Write a frame. The format `json` has results only, `text` only the text of results."""
        if self._format == "stream-json" or (self._format == "json" and frame.get("type") == "result"):
            self.bytes(encode_frame(frame) + b"\n")
        elif self._format == "text" and frame.get("type") == "result":
            self.bytes(str(frame.get("result", "")).encode("utf-8", "replace") + b"\n")

    def bytes(self, data: bytes) -> None:
        if self._closed:
            return
        with self.whole():
            self._closed = not write_all(1, data)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Delay signals until the block is left."""
        outer, self.busy = self.busy, True
        try:
            yield
        finally:
            self.busy = outer
        if self.pending is not None and not outer:
            signum, self.pending = self.pending, None
            raise Stopped(signum)


def catch_signals(wire: Wire) -> None:
    """Raise `Stopped` in the main thread at SIGTERM, SIGINT and SIGHUP, but never in the middle of a line."""

    def on_signal(signum: int, _frame: FrameType | None) -> None:
        if not wire.busy:
            raise Stopped(signum)
        wire.pending = signum
        # A pipe without a reader would hold the line, and the process with it, for ever.
        signal.setitimer(signal.ITIMER_REAL, _LINE_GRACE_S)

    def on_late(_signum: int, _frame: FrameType | None) -> None:
        if wire.pending is not None:
            os._exit(128 + wire.pending)

    signal.signal(signal.SIGALRM, on_late)
    for signum in _CAUGHT:
        signal.signal(signum, on_signal)


def hold_signals(hold: bool) -> None:
    """Block the caught signals, or deliver those that have waited."""
    signal.pthread_sigmask(signal.SIG_BLOCK if hold else signal.SIG_UNBLOCK, _CAUGHT)


def ignore_signals(*signums: int) -> None:
    """Ignore these signals. The handler is an empty function, because child processes would inherit SIG_IGN."""
    for signum in signums:
        signal.signal(signum, lambda *_: None)


def nap(seconds: float) -> None:
    """Let time pass, in short sleeps."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, LONGEST_NAP_S))
