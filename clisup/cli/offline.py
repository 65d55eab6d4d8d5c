"""Output of `clisup status`, `sessions`, `logs` and `export` without a daemon: read from files, with a note on stderr, exit code 3."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial

from clisup.cli.lookup import by_time, pick
from clisup.cli.views.terminal import plain
from clisup.client.raw import JsonObject
from clisup.daemon.ops.status_offline import (
    stored_blob,
    stored_detail,
    stored_events,
    stored_holder,
    stored_ids,
    stored_rows,
    stored_status,
)
from clisup.errors import ClisupError, UsageError
from clisup.locations import socket_for_client, state_dir_for_client

__all__ = ["document_from_disk", "events_from_disk", "session_from_disk", "sessions_from_disk", "status_from_disk"]


def status_from_disk(error: ClisupError) -> JsonObject:
    """Return the status as far as the files tell. `error` says why no daemon answered."""
    return stored_status(socket_for_client(os.environ, os.getuid()), _state_dir(), error.message)


def session_from_disk(prefix: str) -> JsonObject:
    """Return the details of a session. Raises `ClisupError` if it does not exist or cannot be read."""
    return stored_detail(_state_dir(), _pick(_state_dir(), prefix))


def sessions_from_disk(state: str | None) -> list[JsonObject]:
    """Return the rows of all sessions in `state`. Report unreadable sessions on stderr."""
    _report_absence()
    damaged: dict[str, str] = {}
    rows = stored_rows(_state_dir(), state, damaged)
    for session_id, why in damaged.items():
        print(plain(f"clisup: cannot read session {session_id}, because {why}"), file=sys.stderr)
    return rows


def events_from_disk(prefix: str | None, *, raw: bool) -> Iterator[JsonObject]:
    """Return the events of one session, or of all sessions by time.

    Raises `ClisupError` for one session that does not exist. With all sessions, report unreadable ones on stderr.
    """
    state_dir = _state_dir()
    _report_absence()
    if prefix is not None:
        return stored_events(state_dir, _pick(state_dir, prefix), raw=raw)
    return by_time(_readable(state_dir, session_id, raw) for session_id in stored_ids(state_dir))


def document_from_disk(prefix: str) -> tuple[JsonObject, Iterator[JsonObject], Callable[[str, int], tuple[bytes, int]]]:
    """Return the details and the events of a session, and a function that reads the beginning of a blob.

    Raises `ClisupError` if the session does not exist or cannot be read.
    """
    state_dir = _state_dir()
    session_id = _pick(state_dir, prefix)
    detail = stored_detail(state_dir, session_id)
    _report_absence()
    return detail, stored_events(state_dir, session_id, raw=False), partial(stored_blob, state_dir, session_id)


def _pick(state_dir: str, prefix: str) -> str:
    """Return the one id that begins with `prefix`. Read the sessions themselves only to name similar ones."""
    try:
        return pick(prefix, lambda: ({"session_id": session_id} for session_id in stored_ids(state_dir)))
    except UsageError as error:
        if error.kind != "session_not_found":
            raise
        return pick(prefix, lambda: [row for state in (None, "closed") for row in stored_rows(state_dir, state, {})])


def _readable(state_dir: str, session_id: str, raw: bool) -> Iterator[JsonObject]:
    try:
        yield from stored_events(state_dir, session_id, raw=raw)
    except ClisupError as error:
        if error.kind != "session_not_found":  # the session was not opened to the end, or is deleted
            print(plain(f"clisup: {error.message}"), file=sys.stderr)


def _report_absence() -> None:
    word = "not running" if stored_holder(_state_dir()) is None else "unreachable"
    print(plain(f"clisup: the daemon is {word}; from disk: {_state_dir()}"), file=sys.stderr)


def _state_dir() -> str:
    return state_dir_for_client(os.environ, os.getuid())
