"""What ends the demo CLI from outside, answered as claude answers it."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType

from clisup.demo.wire import Stopped, Wire

__all__ = ["LONGEST_NAP_S", "catch_signals", "hold_signals", "nap", "tolerate"]

_CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LINE_GRACE_S = 0.2
LONGEST_NAP_S = 0.5
"""Python looks for signals before it waits and after: one that comes between the look and the wait is heard after the wait."""


def catch_signals(wire: Wire) -> None:
    """From here on SIGTERM, SIGINT and SIGHUP raise `Stopped` in the main thread, but never in the middle of a line."""

    def on_signal(signum: int, _frame: FrameType | None) -> None:
        if not wire.busy:
            raise Stopped(signum)
        wire.pending = signum
        # A pipe that nobody reads would hold the line, and the process with it, for ever.
        signal.setitimer(signal.ITIMER_REAL, _LINE_GRACE_S)

    def on_late(_signum: int, _frame: FrameType | None) -> None:
        if wire.pending is not None:
            os._exit(128 + wire.pending)

    signal.signal(signal.SIGALRM, on_late)
    for signum in _CAUGHT:
        signal.signal(signum, on_signal)


def hold_signals(hold: bool) -> None:
    """Let the caught signals wait, or let those that have waited come."""
    signal.pthread_sigmask(signal.SIG_BLOCK if hold else signal.SIG_UNBLOCK, _CAUGHT)


def tolerate(*signums: int) -> None:
    """Ignore these from here on. An empty handler and not SIG_IGN, because children would inherit that."""
    for signum in signums:
        signal.signal(signum, lambda *_: None)


def nap(seconds: float) -> None:
    """Let time pass, in sleeps that are short."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, LONGEST_NAP_S))
