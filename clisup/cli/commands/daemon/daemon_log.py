"""`clisup daemon log`: the last lines that the daemon logged, as it has them in memory."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import click

from clisup.cli.lookup import find_session
from clisup.cli.views.terminal import Ink, clip
from clisup.client.sync import Client

__all__ = ["log"]

_COLOURS = {"warning": "yellow", "error": "red", "debug": "dim"}
_WIDTH = 400


@click.command("log")
@click.option(
    "-n", "--lines", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many lines at most."
)
@click.option("--session", metavar="SESSION", help="Only those about this session.")
@click.option("--json", "as_json", is_flag=True, help="Print the lines as JSON, one object each.")
def log(lines: int, session: str | None, as_json: bool) -> int:
    """Show the last lines of the daemon's own log.

    It keeps up to 1,000 of them, since its start. Under systemd the journal has all of them: journalctl --user -t clisup.
    What a session does is shown by clisup logs.

    \b
    Example:
      clisup daemon log
      clisup daemon log --session 3f2a --json | jq -r .event
    """
    with Client.connect(name="clisup-daemon-log") as client:
        about = {"session_id": find_session(client, session)} if session else {}
        found = client.call("daemon/log", limit=lines, **about)
    ink = Ink()
    for line in found["lines"]:
        print(json.dumps(line, ensure_ascii=False) if as_json else _shown(line, ink))
    return 0


def _shown(line: dict[str, Any], ink: Ink) -> str:
    when = datetime.fromisoformat(line.pop("timestamp")).astimezone()
    level, event = str(line.pop("level")), str(line.pop("event"))
    fields = " ".join(f"{name}={value}" for name, value in line.items())
    text = clip(f"{when:%Y-%m-%d %H:%M:%S}  {level:<7}  {event:<16}  {fields}", _WIDTH)
    return ink(_COLOURS[level], text) if level in _COLOURS else text
