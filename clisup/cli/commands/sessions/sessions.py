"""`clisup sessions`."""

from __future__ import annotations

import json
from typing import Any

import click

from clisup.cli.lookup import all_sessions
from clisup.cli.parameters import labels_of, utf8
from clisup.cli.status.columns import outcome, short_ids, tinted
from clisup.cli.views.terminal import Ink, cost, duration, table
from clisup.client.sync import Client
from clisup.errors import EXIT_OK, ClisupError

__all__ = ["command"]

_HEAD = ["SESSION", "BACKEND", "MODEL", "STATE", "OUTCOME", "TURNS", "AGE", "COST", "LABELS", "DIRECTORY"]
_STATES = ["idle", "waiting", "starting", "running", "ending", "failed", "closed"]


@click.command("sessions")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@click.option("--state", type=click.Choice(_STATES), help="Only sessions in this state (default: all but closed).")
@click.option("--label", "labels", multiple=True, metavar="K=V", callback=utf8("look for the label"),
              help="Only sessions with this label; given again, with all of them.")  # fmt: skip
def command(as_json: bool, state: str | None, labels: tuple[str, ...]) -> int:
    """List sessions, newest first.

    Where no daemon runs, they are read from its files, and the exit code is 3.

    \b
    Example:
      clisup sessions
      clisup sessions --state running --json | jq -r .session_id
      clisup sessions --label ticket=4711
    """
    found, code = _found(state, labels_of(labels) or {})
    if as_json:
        for summary in found:
            print(json.dumps(summary, ensure_ascii=False))
        return code
    short = short_ids([s["session_id"] for s in found])
    text = table(_HEAD, [_row(s, short[s["session_id"]]) for s in found])
    print(tinted(text, found, Ink()) if found else "No sessions.")
    return code


def _found(state: str | None, labels: dict[str, str]) -> tuple[list[dict[str, Any]], int]:
    """With the exit code."""
    try:
        with Client.connect(name="clisup-sessions") as client:
            return list(all_sessions(client, state=state, labels=labels)), EXIT_OK
    except ClisupError as error:
        if error.kind != "daemon_not_running":
            raise
        from clisup.cli.status.stored import sessions_from_disk

        rows = [row for row in sessions_from_disk(state) if labels.items() <= row["labels"].items()]
        return rows, error.exit_code


def _row(s: dict[str, Any], short: str) -> list[str]:
    labels = ",".join(f"{key}={value}" for key, value in s["labels"].items())
    numbers = [str(s["turns"]), duration(s.get("age_s")), cost(s.get("cost_usd"))]
    return [short, s["backend"], s.get("model") or "-", s["state"], outcome(s), *numbers, labels or "-", s["cwd"]]
