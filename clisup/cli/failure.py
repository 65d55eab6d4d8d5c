"""Errors of commands: one line on stderr, one line of hint, and the exit code."""

from __future__ import annotations

import os
import sys

import click

from clisup.cli.views.terminal import plain
from clisup.errors import EXIT_INTERRUPTED, KINDS, ClisupError, Explanation, UsageError, WorldError, doctor_hint
from clisup.locations import state_dir_for_client

__all__ = ["TurnEnded", "exit_code_of", "usage"]


class TurnEnded(WorldError):
    """Turn that did not end well. Its outcome gives the exit code; `doctor` is the command that explains it."""

    def __init__(self, message: str, *, code: int, hint: str = "", doctor: str = "") -> None:
        super().__init__(message, hint=hint)
        self._code = code
        self.doctor = doctor

    @property
    def exit_code(self) -> int:
        return self._code


def usage(message: str, hint: str = "") -> UsageError:
    """Return the error for a command line that cannot be carried out."""
    return UsageError(message, kind="usage", hint=hint)


def exit_code_of(error: Exception) -> int:
    """Print the message and one line of hint, and return the exit code. Raise a fault of clisup itself again."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.Abort):
        return EXIT_INTERRUPTED
    if isinstance(error, click.ClickException):
        error = _from_click(error)
    if not isinstance(error, ClisupError):
        raise error
    hint = _hint(error)
    print(plain(f"clisup: {error.message}" + (f"\n  hint: {hint}" if hint else "")), file=sys.stderr)
    return error.exit_code


def _hint(error: ClisupError) -> str:
    """Return one line: the next step, then the command that finds the cause."""
    hint, doctor = _holder_hint(error) or error.hint, _doctor(error)
    return f"{hint}; see {doctor}" if hint and doctor else hint or doctor


def _holder_hint(error: ClisupError) -> str:
    """Return the hint for a daemon that holds the state directory but does not answer: starting another cannot help."""
    if error.kind != "daemon_not_running":
        return ""
    from clisup.client.failures import OCCUPIED, Unreachable

    if not isinstance(error, Unreachable):
        return ""
    from clisup.host.locks import lock_holder

    try:
        holder = lock_holder(os.path.join(state_dir_for_client(os.environ, os.getuid()), "daemon.lock"))
    except (OSError, ClisupError):  # an unreadable lock, or no home directory
        return ""
    if not holder:
        return ""
    return f"pid {holder} holds the state directory: {OCCUPIED}"


def _doctor(error: ClisupError) -> str:
    """Return the `clisup doctor` command that explains the error, unless the hint already names it."""
    if "clisup doctor" in error.hint:
        return ""
    if isinstance(error, TurnEnded):
        return error.doctor
    backend, check = error.data.get("backend"), error.data.get("check")
    explanation = Explanation(check) if isinstance(check, str) else KINDS[error.kind].explanation
    return doctor_hint(explanation, backend if isinstance(backend, str) else None)


def _from_click(error: click.ClickException) -> ClisupError:
    reason = " ".join(error.format_message().split()).rstrip(".,")  # click writes each choice on its own line
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "clisup"
    return usage(
        f"cannot read the command line, because {reason[:1].lower()}{reason[1:]}", hint=f"see {command} --help"
    )
