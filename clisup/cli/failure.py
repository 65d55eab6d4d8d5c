"""The one place where an error becomes a line on stderr and an exit code."""

from __future__ import annotations

import sys

import click

from clisup.cli.terminal import plain
from clisup.errors import EXIT_INTERRUPTED, ClisupError, UsageError, WorldError

__all__ = ["TurnEnded", "exit_code_of", "usage"]


class TurnEnded(WorldError):
    """A turn that did not end well. Its exit code is that of its outcome, not of a kind."""

    def __init__(self, message: str, *, code: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self._code = code

    @property
    def exit_code(self) -> int:
        return self._code


def usage(message: str, hint: str = "") -> UsageError:
    """The command line asks for what cannot be."""
    return UsageError(message, kind="usage", hint=hint)


def exit_code_of(error: Exception) -> int:
    """Print `clisup: cannot ..., because ...` and its hint; give the exit code. A fault of clisup's own is raised again."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.Abort):
        return EXIT_INTERRUPTED
    if isinstance(error, click.ClickException):
        error = _from_click(error)
    if not isinstance(error, ClisupError):
        raise error
    lines = [f"clisup: {error.message}", *([f"  hint: {error.hint}"] if error.hint else [])]
    print(plain("\n".join(lines)), file=sys.stderr)
    return error.exit_code


def _from_click(error: click.ClickException) -> ClisupError:
    reason = error.format_message().strip().rstrip(".")
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "clisup"
    return usage(
        f"cannot read the command line, because {reason[:1].lower()}{reason[1:]}", hint=f"see {command} --help"
    )
