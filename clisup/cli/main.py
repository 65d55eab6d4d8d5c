"""Where `clisup` starts: the light commands by hand, all others through click, and one place for exit codes.

`clisup status` is what people and probes run all day. It goes around click, which alone costs four times a bare Python.
"""

from __future__ import annotations

import os
import sys

from clisup.cli.streams import CannotWrite, open_closed, silence, write_whole

__all__ = ["main"]

# 74 and 130 are those of `clisup.errors`, which costs more than all of this; 141 is what a shell makes of SIGPIPE.
_EXIT_UNWRITABLE = 74
_EXIT_INTERRUPTED = 130
_EXIT_BROKEN_PIPE = 141


def main(argv: list[str] | None = None) -> int:
    """Run one command and give its exit code. Without `argv` the process is ours, and so are its standard streams."""
    args = sys.argv[1:] if argv is None else argv
    if argv is None:
        open_closed()
        if args[:1] != ["serve"]:  # which has a way of its own for a log that nobody reads
            write_whole()
    try:
        code = _exit_code(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader has left: `clisup logs X | head`
        silence()
        return _EXIT_BROKEN_PIPE
    except CannotWrite as error:
        silence()
        print(f"clisup: {error}", file=sys.stderr)
        return _EXIT_UNWRITABLE


def _exit_code(args: list[str]) -> int:
    try:
        return _run(args)
    except (BrokenPipeError, CannotWrite):
        raise
    except Exception as error:
        from clisup.cli.failure import exit_code_of

        return exit_code_of(error)


def _run(args: list[str]) -> int:
    if instruction := os.environ.get("_CLISUP_COMPLETE"):
        from clisup.cli.commands.other.completion import complete
        from clisup.cli.root import root

        return complete(instruction, root)
    if args == ["version"] or args == ["--version"]:
        from clisup.cli.commands.other.version import show_version

        return show_version()
    if args[:1] == ["status"]:
        from clisup.cli.status.arguments import parse

        if (wanted := parse(args[1:])) is not None:
            from clisup.cli.status.status import show_status

            return show_status(wanted)
    if args[:1] == ["serve"]:
        from clisup.cli.commands.daemon.serve_arguments import parse as parse_serve

        if (flags := parse_serve(args[1:])) is not None:
            if args == sys.argv[1:]:  # a process of its own, and no call of ours
                from clisup.host.process.carrying import can_carry, carry_environment_over

                if can_carry():
                    carry_environment_over(args)  # first of all: what is imported before it is imported twice
            from clisup.daemon.start import Flags, serve

            return serve(Flags(**flags))  # type: ignore[arg-type]  # they are what `parse` has found
    from clisup.cli.root import run_click

    return run_click(args)
