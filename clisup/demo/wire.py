"""stdout and stderr: the one place that writes. A frame goes out as one whole line, whatever the pipe does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from clisup.stream_json.lines import encode_frame, write_all

__all__ = ["Interrupted", "Stopped", "Wire"]


class Stopped(BaseException):
    """A signal asks the process to end. `exit_code` is what claude exits with after it, without a result."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum
        self.exit_code = 128 + signum


class Interrupted(BaseException):
    """The running turn is to end and the process to live on. `preempted`: for a message that is to be heard at once."""

    def __init__(self, *, preempted: bool = False) -> None:
        super().__init__(preempted)
        self.preempted = preempted
        self.in_tool = False


class Wire:
    """The CLI's stdout in one of claude's output formats.

    When the reader has gone the writes are dropped and the script goes on, as claude does: its tools have effects.
    `busy` is true while a line is half out, or a tool half started: a signal that comes then waits in `pending`.
    """

    def __init__(self, output_format: str) -> None:
        self._format = output_format
        self._closed = False
        self.busy = False
        self.pending: int | None = None

    def frame(self, frame: dict[str, Any]) -> None:
        """One frame. `json` lets only results through, `text` only their text."""
        if self._format == "stream-json" or (self._format == "json" and frame.get("type") == "result"):
            self.line(encode_frame(frame))
        elif self._format == "text" and frame.get("type") == "result":
            self.line(str(frame.get("result", "")).encode("utf-8", "replace"))

    def line(self, data: bytes) -> None:
        """One line, verbatim, with its newline."""
        self.bytes(data + b"\n")

    def bytes(self, data: bytes) -> None:
        """Bytes as they are: for output that is no line."""
        if self._closed:
            return
        with self.whole():
            self._closed = not write_all(1, data)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What must not be left half done: a signal that comes meanwhile is raised after it."""
        outer, self.busy = self.busy, True
        try:
            yield
        finally:
            self.busy = outer
        if self.pending is not None and not outer:
            signum, self.pending = self.pending, None
            raise Stopped(signum)
