"""Where `clisup` starts: the light commands by hand, all others through click, and one place for exit codes.

`clisup status` is what people and probes run all day. It goes around click, which alone costs four times a bare Python.
"""

from __future__ import annotations

import os
import sys

__all__ = ["main"]

_EXIT_INTERRUPTED = 130
_EXIT_BROKEN_PIPE = 141


def main(argv: list[str] | None = None) -> int:
    """Run one command and give its exit code."""
    args = sys.argv[1:] if argv is None else argv
    try:
        code = _run(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader has left (`clisup logs X | head`). What the interpreter would still flush goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_BROKEN_PIPE
    except Exception as error:
        from clisup.cli.failure import exit_code_of

        return exit_code_of(error)


def _run(args: list[str]) -> int:
    if instruction := os.environ.get("_CLISUP_COMPLETE"):
        from clisup.cli.completion import complete

        return complete(instruction)
    if args == ["version"] or args == ["--version"]:
        from clisup.cli.version import show_version

        return show_version()
    if args[:1] == ["status"]:
        from clisup.cli.status_arguments import parse

        if (wanted := parse(args[1:])) is not None:
            from clisup.cli.status import show_status

            return show_status(wanted)
    if args[:1] == ["serve"]:
        from clisup.cli.serve_arguments import parse as parse_serve

        if (flags := parse_serve(args[1:])) is not None:
            from clisup.host.carrying import can_carry, carry_environment_over

            if can_carry():
                carry_environment_over(args)  # first of all: what is imported before it is imported twice
            from clisup.daemon.start import Flags, serve

            return serve(Flags(**flags))  # type: ignore[arg-type]  # they are what `parse` has found
    from clisup.cli.root import run_click

    return run_click(args)
