"""Head of the status page where no daemon answers. Loads what reads the files: it is not among the light commands."""

from __future__ import annotations

import os
from typing import Any

from clisup.cli.status.totals import total_lines
from clisup.cli.views.terminal import Ink, plain, size
from clisup.client.failures import OCCUPIED
from clisup.daemon.ops.status_offline import UNFINISHED

__all__ = ["absent_lines"]


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
