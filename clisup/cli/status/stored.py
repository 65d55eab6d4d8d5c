"""What `clisup status`, `sessions` and `logs` show without a daemon: from the files, and said so.

Loads what reads them, so it is not among the light commands. What is shown so has exit code 3.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from clisup.cli.lookup import pick
from clisup.cli.views.event_pages import by_time
from clisup.cli.views.terminal import plain
from clisup.daemon.ops.status_offline import (
    stored_detail,
    stored_events,
    stored_holder,
    stored_ids,
    stored_rows,
    stored_status,
)
from clisup.errors import ClisupError
from clisup.locations import socket_for_client, state_dir_for_client

__all__ = ["events_from_disk", "session_from_disk", "sessions_from_disk", "status_from_disk"]


def status_from_disk(error: Exception) -> dict[str, Any]:
    """What `daemon/status` would answer, as far as the files tell; `error` says why no daemon did."""
    reason = error.message if isinstance(error, ClisupError) else str(error)
    return stored_status(socket_for_client(os.environ, os.getuid()), _state_dir(), reason)


def session_from_disk(prefix: str) -> dict[str, Any]:
    """What `session/get` would answer. Raises `UsageError(session_not_found)`, and what keeps it from being read."""
    return stored_detail(_state_dir(), pick(prefix, lambda: stored_ids(_state_dir())))


def sessions_from_disk(state: str | None) -> list[dict[str, Any]]:
    """What `session/list` would answer, all pages of it. Says on stderr where it is from, and what could not be read."""
    _say_so()
    damaged: dict[str, str] = {}
    rows = stored_rows(_state_dir(), state, damaged)
    for session_id, why in damaged.items():
        print(plain(f"clisup: cannot read session {session_id}, because {why}"), file=sys.stderr)
    return rows


def events_from_disk(prefix: str | None, *, raw: bool) -> Iterator[dict[str, Any]]:
    """The stored events of one session, or of all of them by time. Says on stderr where they are from.

    Raises `ClisupError` for one that is not there; of all of them, one that cannot be read is only told of.
    """
    state_dir = _state_dir()
    _say_so()
    if prefix is not None:
        return stored_events(state_dir, pick(prefix, lambda: stored_ids(state_dir)), raw=raw)
    return by_time(_readable(state_dir, str(row["session_id"]), raw) for row in stored_ids(state_dir))


def _readable(state_dir: str, session_id: str, raw: bool) -> Iterator[dict[str, Any]]:
    try:
        yield from stored_events(state_dir, session_id, raw=raw)
    except ClisupError as error:
        if error.kind != "session_not_found":  # it was never made whole, or is gone
            print(plain(f"clisup: {error.message}"), file=sys.stderr)


def _say_so() -> None:
    word = "not running" if stored_holder(_state_dir()) is None else "unreachable"
    print(plain(f"clisup: the daemon is {word}; from disk: {_state_dir()}"), file=sys.stderr)


def _state_dir() -> str:
    return state_dir_for_client(os.environ, os.getuid())
