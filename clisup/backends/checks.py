"""Checks of prompts and values that no CLI accepts, before any start, with the same errors for every backend."""

from __future__ import annotations

import re
from collections.abc import Sequence

from clisup.backends.base import LaunchRequest
from clisup.errors import UsageError

__all__ = ["UUID", "argv_path", "argv_text", "check_mode", "check_prompt", "check_uuid"]

_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")
UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def check_prompt(cli: str, prompt: str) -> None:
    """Raise `UsageError` for a prompt that is empty or no text."""
    if not prompt.strip():
        raise UsageError(f"cannot prompt {cli} with an empty text, because it does not ask the model then")
    if (odd := _unsendable(prompt)) is not None:
        raise UsageError(
            f"cannot send the prompt, because its character {odd} is no text (NUL or half of a surrogate pair)"
        )


def _unsendable(text: str) -> int | None:
    """Return the place of the first such character. Two quick tests come first: the expression takes 75 ms for 16 MiB."""
    try:
        if b"\x00" not in text.encode():
            return None
    except UnicodeEncodeError:
        pass
    odd = _UNSENDABLE.search(text)
    return odd.start() if odd else None


def argv_text(name: str, value: str) -> str:
    """Return the value if it fits into argv, else raise `UsageError`."""
    if not value.strip() or _unsendable(value) is not None:
        raise UsageError(f"cannot use {value!r} as {name}, because it is empty or holds what argv cannot")
    return value


def argv_path(name: str, value: str) -> str:
    """Return the absolute path if it fits into argv, else raise `UsageError`."""
    if not value.startswith("/"):
        raise UsageError(f"cannot use {value!r} as {name}, because it is not an absolute path")
    return argv_text(name, value)


def check_mode(cli: str, mode: str, modes: Sequence[str]) -> str:
    """Return the permission mode if the CLI has it, else raise `UsageError`."""
    if mode not in modes:
        raise UsageError(
            f"cannot use permission mode {mode!r}, because {cli} has no such mode",
            hint=f"take one of {', '.join(modes)}",
        )
    return mode


def check_uuid(cli: str, request: LaunchRequest) -> str | None:
    """Return the native session id, or None. Raises `UsageError` for an id that is no UUID, or without an id to resume."""
    session = request.native_session_id
    if session is None and request.resume:
        raise UsageError(f"cannot resume a {cli} session without its id", hint="give its native session id")
    if session is not None and not UUID.fullmatch(session):
        raise UsageError(f"cannot use {session!r} as a {cli} session id, because it is not a UUID")
    return session
