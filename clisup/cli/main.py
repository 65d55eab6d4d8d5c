"""Entry point of `clisup`: it runs a command through click and turns every failure into an exit code."""

from __future__ import annotations

import os
import sys

from clisup.cli.streams import CannotWrite, open_closed, silence, write_whole
from clisup.errors import EXIT_BROKEN_PIPE, EXIT_INTERRUPTED, EXIT_UNWRITABLE

__all__ = ["main"]

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
        from clisup.cli.commands.completion import complete

        return complete(instruction, root)
    return run_click(args)
