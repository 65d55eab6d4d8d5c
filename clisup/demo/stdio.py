"""Standard streams of the demo CLI, and the signals that end the process.

A line is always written whole: a signal that comes meanwhile is raised after the line. A live process reads its messages by
lines.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

from clisup.stream_json.frames import Frame
from clisup.stream_json.lines import blocks_of, encode_frame, write_all

__all__ = [
    "LONGEST_NAP_S",
    "Inbox",
    "Interrupted",
    "Stopped",
    "UserMessage",
    "Wire",
    "catch_signals",
    "hold_signals",
    "ignore_signals",
    "nap",
    "read_message",
]

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

    def frame(self, frame: Frame) -> None:
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


_CHUNK = 1 << 20


class UserMessage(NamedTuple):
    """User message. `text` has the text of all blocks; `command` is the slash command in the last one, or empty."""

    uuid: str | None
    text: str
    images: int
    command: str


class Inbox:
    """Lines that have come and are not handled yet. `ended` tells that no more will come."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.ended = False
        self._rest: list[bytes] = []
        try:
            os.fstat(0)
        except OSError:
            self.ended = True

    def wait(self, seconds: float) -> None:
        """Wait for input, `seconds` at most."""
        if self.ended:
            nap(seconds)
            return
        while not self.ended and _is_readable(seconds):
            seconds = 0.0
            chunk = os.read(0, _CHUNK)
            self.ended = not chunk
            head, *more = chunk.split(b"\n")
            self._rest.append(head)
            if more:
                self.lines += [b"".join(self._rest), *more[:-1]]
                self._rest = [more[-1]]
        if self.ended and any(self._rest):
            self.lines.append(b"".join(self._rest))
            self._rest = []


def _is_readable(seconds: float) -> bool:
    """Wait for input in short waits, as `nap` does."""
    deadline = time.monotonic() + seconds
    while not select.select([0], [], [], max(0.0, min(deadline - time.monotonic(), LONGEST_NAP_S)))[0]:
        if time.monotonic() >= deadline:
            return False
    return True


def read_message(frame: Frame) -> UserMessage:
    """Parse a user message. Raises `BadInput` for another role than `user`, as claude does."""
    blocks = blocks_of(frame)
    texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
    uuid = frame.get("uuid")
    return UserMessage(
        uuid=uuid if isinstance(uuid, str) else None,
        text="\n".join(texts),
        images=sum(block.get("type") == "image" for block in blocks),
        command="/compact" if texts and texts[-1].startswith("/") and texts[-1].split()[0] == "/compact" else "",
    )
