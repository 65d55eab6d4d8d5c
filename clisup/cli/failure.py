"""The one place where an error becomes a line on stderr and an exit code."""

from __future__ import annotations

import os
import sys

import click

from clisup.cli.views.terminal import plain
from clisup.errors import EXIT_INTERRUPTED, ClisupError, UsageError, WorldError
from clisup.explained import ERRORS, Explained, doctor_hint
from clisup.locations import state_dir_for_client

__all__ = ["TurnEnded", "exit_code_of", "usage"]


class TurnEnded(WorldError):
    """A turn that did not end well. Its exit code is that of its outcome, not of a kind; `doctor` is what explains it."""

    def __init__(self, message: str, *, code: int, hint: str = "", doctor: str = "") -> None:
        super().__init__(message, hint=hint)
        self._code = code
        self.doctor = doctor

    @property
    def exit_code(self) -> int:
        return self._code


def usage(message: str, hint: str = "") -> UsageError:
    """The command line asks for what cannot be."""
    return UsageError(message, kind="usage", hint=hint)


def exit_code_of(error: Exception) -> int:
    """Print `clisup: cannot ..., because ...` and its one line of hint; give the exit code. A fault of clisup's own is raised again."""
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
    """The next step, and behind it what looks at the cause: one line."""
    hint, doctor = _holder_hint(error) or error.hint, _doctor(error)
    return f"{hint}; see {doctor}" if hint and doctor else hint or doctor


def _holder_hint(error: ClisupError) -> str:
    """Nothing answers, and yet a daemon holds the state directory: to start another is no help then."""
    if error.kind != "daemon_not_running":
        return ""
    from clisup.client.failures import OCCUPIED, Unreachable

    if not isinstance(error, Unreachable):
        return ""
    from clisup.host.locks import lock_holder

    try:
        holder = lock_holder(os.path.join(state_dir_for_client(os.environ, os.getuid()), "daemon.lock"))
    except (OSError, ClisupError):  # no lock that can be looked at, or no home to look in
        return ""
    if not holder:
        return ""
    return f"pid {holder} holds the state directory: {OCCUPIED}"


def _doctor(error: ClisupError) -> str:
    """What of `clisup doctor` explains it, where anything does and its own hint does not say so already."""
    if "clisup doctor" in error.hint:
        return ""
    if isinstance(error, TurnEnded):
        return error.doctor
    backend, check = error.data.get("backend"), error.data.get("check")
    explained = Explained((check,)) if isinstance(check, str) else ERRORS.get(error.kind)
    return doctor_hint(explained, backend if isinstance(backend, str) else None)


def _from_click(error: click.ClickException) -> ClisupError:
    reason = " ".join(error.format_message().split()).rstrip(".,")  # click writes choices on lines of their own
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "clisup"
    return usage(
        f"cannot read the command line, because {reason[:1].lower()}{reason[1:]}", hint=f"see {command} --help"
    )
