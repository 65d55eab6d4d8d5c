"""`clisup status` without a daemon: from the files, and said so. Loads what reads them, so it is not among the light commands."""

from __future__ import annotations

import os
from typing import Any

from clisup.cli.lookup import pick
from clisup.cli.status import total_lines
from clisup.cli.terminal import Ink, plain, size
from clisup.client.failures import OCCUPIED
from clisup.daemon.at_rest import UNFINISHED, stored_detail, stored_ids, stored_status
from clisup.errors import ClisupError
from clisup.locations import socket_for_client, state_dir_for_client

__all__ = ["absent_lines", "session_from_disk", "status_from_disk"]


def status_from_disk(error: Exception) -> dict[str, Any]:
    """What `daemon/status` would answer, as far as the files tell; `error` says why no daemon did."""
    reason = error.message if isinstance(error, ClisupError) else str(error)
    return stored_status(socket_for_client(os.environ, os.getuid()), _state_dir(), reason)


def session_from_disk(prefix: str) -> dict[str, Any]:
    """What `session/get` would answer. Raises `UsageError(session_not_found)`, and what keeps it from being read."""
    return stored_detail(_state_dir(), pick(prefix, lambda: stored_ids(_state_dir())))


def absent_lines(status: dict[str, Any], ink: Ink) -> list[str]:
    """The head of the page: that no daemon answers, why, and what runs without it."""
    d, sessions = status["daemon"], status["sessions"]
    missing = d["state"] == "not_running"
    word = "not running" if missing else f"not reachable (pid {d['pid']} holds the state directory)"
    unfinished = sum(s["state"] == UNFINISHED for s in sessions)
    hint = "start it: clisup serve" if missing else OCCUPIED
    lines = [
        f"{ink('yellow', '○')} clisup {d['version']} — {ink('yellow', word)}; from disk: {plain(d['state_dir'])}",
        f"   Reason: {d['reason']}; {hint}",
        f"    State: {d['state_dir']} ({_place(d)})",
        f"  Running: {_turns(d['running'])} on without it, {unfinished} unfinished, {d['waiting']} waiting",
        *total_lines(status["totals"]),
    ]
    return [lines[0], *[plain(line) for line in lines[1:]]]


def _place(daemon: dict[str, Any]) -> str:
    return (
        f"{size(daemon['storage']['free_bytes'])} free"
        if os.path.isdir(daemon["state_dir"])
        else "there is no such directory"
    )


def _turns(count: int) -> str:
    return "1 turn goes" if count == 1 else f"{count} turns go"


def _state_dir() -> str:
    return state_dir_for_client(os.environ, os.getuid())
