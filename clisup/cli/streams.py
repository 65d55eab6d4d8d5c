"""stdin, stdout and stderr as a command needs them: open, and written to whole.

Part of `clisup status`: nothing here is slow to import.
"""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO

__all__ = ["CannotWrite", "open_closed", "silence", "write_whole"]

_NAMES = ("stdin", "stdout", "stderr")


class CannotWrite(Exception):
    """stdout does not take what is written. No `OSError`: whoever catches those means files of its own."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"cannot write to stdout, because {reason}")


def open_closed() -> None:
    """Open /dev/null in the place of each standard stream that was closed: else what is opened next is taken for it.

    First of all: a descriptor is opened at the lowest free number.
    """
    for fd, name in enumerate(_NAMES):
        if getattr(sys, name) is None and not _is_open(fd):
            os.open(os.devnull, os.O_WRONLY if fd else os.O_RDONLY)
            os.set_inheritable(fd, True)
            setattr(sys, name, open(fd, "w" if fd else "r", closefd=False))  # noqa: SIM115  as long as the process


def write_whole() -> None:
    """Have stdout and stderr write all they are given.

    Python's own lose what a pipe does not take at once where PYTHONUNBUFFERED is set, and fail where somebody has made the
    pipe or the terminal, which is shared, non-blocking.
    """
    for name, kind in (("stdout", _Stdout), ("stderr", _Stderr)):
        stream = getattr(sys, name)
        buffer = getattr(stream, "buffer", None)
        raw = getattr(buffer, "raw", buffer)
        if type(raw) is io.FileIO:
            setattr(sys, name, _over(kind(raw.fileno(), "w", closefd=False), stream, buffered=raw is not buffer))


def silence() -> None:
    """What stdout still holds goes nowhere, nor does what is yet written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _over(raw: io.FileIO, like: TextIO, *, buffered: bool) -> io.TextIOWrapper:
    """A text stream that does as `like` does."""
    buffer: Any = io.BufferedWriter(raw) if buffered else raw
    through = not buffered
    return io.TextIOWrapper(buffer, like.encoding, like.errors, "\n", bool(like.line_buffering), through)


class _Whole(io.FileIO):
    """Writes all of it, however little is taken at a time, and waits where nothing is."""

    def write(self, data: Any, /) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        while left:
            if (taken := super().write(left)) is None:  # non-blocking, and full
                self._wait()
            left = left[taken or 0 :]
        return size

    def _wait(self) -> None:
        import select

        poll = select.poll()
        poll.register(self.fileno(), select.POLLOUT)
        poll.poll()


class _Stdout(_Whole):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CannotWrite(error.strerror or "it failed") from None


class _Stderr(_Whole):
    """Where it cannot be written there is nobody to tell: the work goes on."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError:
            return len(memoryview(data).cast("B"))
