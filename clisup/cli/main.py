"""Entry point of `clisup`: it runs a command through click, and turns every failure into an exit code.

The standard streams are opened here, and written to whole. `clisup status` loads this module, so the module imports almost
nothing.
"""

from __future__ import annotations

import io
import os
import sys

from clisup.errors import EXIT_BROKEN_PIPE, EXIT_INTERRUPTED, EXIT_UNWRITABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO

__all__ = ["CannotWrite", "main", "open_closed", "silence", "write_whole"]

_STREAMS = ("stdin", "stdout", "stderr")

# People and shell prompts run these all day. click alone starts 3.7 times slower than `python -c pass`; with these forms
# the limit for the whole of `clisup status` is 4 times. So exactly these command lines go around click.
_FAST_STATUS = (["status"], ["status", "-q"], ["status", "--json"])


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code. Without `argv`, take over the standard streams of the process."""
    args = sys.argv[1:] if argv is None else argv
    if argv is None:
        open_closed()
        if args[:1] != ["serve"]:  # the daemon's log has its own way to survive a broken stderr
            write_whole()
    try:
        code = _exit_code(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader has left: `clisup logs X | head`
        silence()
        return EXIT_BROKEN_PIPE
    except CannotWrite as error:
        silence()
        print(f"clisup: {error}", file=sys.stderr)
        return EXIT_UNWRITABLE


def _exit_code(args: list[str]) -> int:
    try:
        return _run(args)
    except (BrokenPipeError, CannotWrite):
        raise
    except Exception as error:
        from clisup.cli.failure import exit_code_of

        return exit_code_of(error)


def _run(args: list[str]) -> int:
    instruction = os.environ.get("_CLISUP_COMPLETE")
    if args in _FAST_STATUS and not instruction:
        from clisup.cli.status.page import StatusOptions, show_status

        return show_status(StatusOptions(quiet="-q" in args, json="--json" in args))
    if args[:1] == ["serve"] and args == sys.argv[1:]:
        # The re-execution loads every module again, so it comes before click.
        from clisup.host.process.carrying import can_carry, carry_environment_over

        if can_carry():
            carry_environment_over(args)
    from clisup.cli.root import root, run_click

    if instruction:
        from clisup.cli.commands.other import complete

        return complete(instruction, root)
    return run_click(args)


# -- standard streams ---------------------------------------------------------------------------------------------------


class CannotWrite(Exception):
    """Failure of a write to stdout. The class is no `OSError`, so that code for other files does not catch it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"cannot write to stdout, because {reason}")


def open_closed() -> None:
    """Open /dev/null for each standard stream that was closed.

    Call this first: the next file to be opened would get the number of the stream.
    """
    for fd, name in enumerate(_STREAMS):
        if getattr(sys, name) is None and not _is_open(fd):
            os.open(os.devnull, os.O_WRONLY if fd else os.O_RDONLY)
            os.set_inheritable(fd, True)
            setattr(sys, name, open(fd, "w" if fd else "r", closefd=False))  # noqa: SIM115  as long as the process


def write_whole() -> None:
    """Replace stdout and stderr by streams that write all of their data.

    With PYTHONUNBUFFERED, Python's own streams lose the part that a pipe does not accept at once. They also fail if
    another process has made the shared pipe or terminal non-blocking.
    """
    for name, kind in (("stdout", _Stdout), ("stderr", _Stderr)):
        stream = getattr(sys, name)
        buffer = getattr(stream, "buffer", None)
        raw = getattr(buffer, "raw", buffer)
        if type(raw) is io.FileIO:
            setattr(sys, name, _over(kind(raw.fileno(), "w", closefd=False), stream, buffered=raw is not buffer))


def silence() -> None:
    """Discard the buffer of stdout and all later output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _over(raw: io.FileIO, like: TextIO, *, buffered: bool) -> io.TextIOWrapper:
    """Return a text stream over `raw` with the settings of `like`."""
    buffer: Any = io.BufferedWriter(raw) if buffered else raw
    through = not buffered
    return io.TextIOWrapper(buffer, like.encoding, like.errors, "\n", bool(like.line_buffering), through)


class _Whole(io.FileIO):
    """File that writes all of its data, in pieces if necessary, and waits while the other end is full."""

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
    """Standard error. Failed writes are ignored: no stream is left to report them."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError:
            return len(memoryview(data).cast("B"))
