"""Lines of the daemon's own log in words, from the daemon or, without one, from the end of its log file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime

from clisup.cli.views.terminal import Ink, clip
from clisup.client.raw import JsonObject
from clisup.errors import ClisupError, WorldError
from clisup.locations import state_dir_for_client

__all__ = ["file_of_log", "lines_of_file", "log_line"]

TAIL_BYTES = 1024 * 1024
"""Bytes at the end of a log file that are read. `clisup daemon log` shows at most 1,000 lines."""

_LOG_FILE = "daemon.log"  # as `clisup.host.log_file` writes it; that module loads the daemon's errors of storage
_LOG_WIDTH = 400
_COLOURS = {"warning": "yellow", "error": "red", "debug": "dim"}


def file_of_log(refused: ClisupError) -> str:
    """Return the log file of a daemon that does not answer. Raises `refused` with another hint if there is no file."""
    path = os.path.join(state_dir_for_client(os.environ, os.getuid()), _LOG_FILE)
    if os.path.isfile(path):
        return path
    raise WorldError(
        refused.message,
        kind=refused.kind,
        hint=f"start it: clisup start; there is no log at {path} (under systemd: journalctl --user -t clisup)",
    )


def lines_of_file(path: str, limit: int, session: str | None) -> list[JsonObject]:
    """Return the last lines of the log, oldest first. A line that is no JSON, as of a traceback, is only an `event`.

    With `session`, return only lines about sessions whose id begins so. Raises `WorldError(storage_failed)`.
    """
    found = [line for line in _parsed(path) if session is None or str(line.get("session", "")).startswith(session)]
    return found[-limit:]


def _parsed(path: str) -> Iterator[JsonObject]:
    for text in [*_tail(f"{path}.1"), *_tail(path)]:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        yield line if isinstance(line, dict) else {"event": text}


def _tail(path: str) -> list[str]:
    """Return the whole lines in the last bytes of the file; none without a file."""
    try:
        with open(path, "rb") as file:
            skipped = max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES)
            file.seek(skipped)
            lines = file.read(TAIL_BYTES).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise WorldError(f"cannot read {path}, because of: {error.strerror}", kind="storage_failed") from None
    return [line for line in lines[bool(skipped) :] if line.strip()]


def log_line(line: JsonObject, ink: Ink) -> str:
    """Return a line of the log for people."""
    rest = dict(line)
    when, level, event = _time(rest.pop("timestamp", None)), str(rest.pop("level", "")), str(rest.pop("event", ""))
    if not (when or level):  # no line of the log, but of Python itself
        return clip(event, _LOG_WIDTH)
    fields = " ".join(f"{name}={value}" for name, value in rest.items())
    text = f"{when:<19}  {clip(level, 8):<7}  {clip(event, 60):<16}  {clip(fields, _LOG_WIDTH)}".rstrip()
    return ink(_COLOURS[level], text) if level in _COLOURS else text


def _time(value: object) -> str:
    try:
        return f"{datetime.fromisoformat(str(value)).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError):
        return ""
