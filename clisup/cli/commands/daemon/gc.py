"""`clisup gc`: what is of no use any more, and how much room it takes."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from clisup.cli.views.terminal import plain, size, table
from clisup.client.sync import Client
from clisup.errors import EXIT_OK, EXIT_TURN_FAILED, ClisupError

__all__ = ["command"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LONGEST_S = 3.2e9


def _age(_ctx: click.Context, _param: click.Parameter, value: str) -> float:
    """Seconds, of `7d` and the like."""
    number, unit = value[:-1], value[-1:]
    if value == "0":
        return 0.0
    if unit in _UNITS and number.isascii() and number.replace(".", "", 1).isdecimal():
        seconds = float(number) * _UNITS[unit]
        if seconds <= _LONGEST_S:
            return seconds
    raise click.BadParameter(f"{value!r} is no age: give a number and one of s, m, h, d, w, such as 7d, or 0")


@click.command("gc")
@click.option("-n", "--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@click.option("--older-than", callback=_age, default="7d", metavar="AGE", show_default=True,
              help="Of closed sessions, those that were closed so long ago; 0 for all of them.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the answer of daemon/gc as JSON.")
def command(dry_run: bool, older_than: float, as_json: bool) -> int:
    """Remove what is of no use any more, and say how much room it took.

    That is: closed sessions, events that are older or more than retention keeps, what a crash left behind (half written
    files, run directories without a run, secrets of closed sessions, deleted sessions, sockets of its own that nobody listens at) and
    empty cgroups. A session that works, waits or rests is never touched, nor are the CLIs' own transcripts, nor a session
    that cannot be read.

    The daemon does it where one runs; else this command, under the lock of the state directory.

    \b
    Example:
      clisup gc --dry-run
      clisup gc --older-than 30d
      clisup gc --older-than 0 --json | jq .bytes
    """
    try:
        with Client.connect(name="clisup-gc") as client:
            done = client.call("daemon/gc", dry_run=dry_run, older_than_s=older_than)
    except ClisupError as error:
        if error.kind != "daemon_not_running":
            raise
        from clisup.daemon.ops.cleanup_offline import clear_alone

        done = clear_alone(dry_run=dry_run, older_than_s=older_than)
    print(json.dumps(done, ensure_ascii=False) if as_json else _page(done))
    for failure in done["failed"]:
        print(plain(f"clisup: cannot remove {failure['path']}, because of: {failure['error']}"), file=sys.stderr)
    return EXIT_TURN_FAILED if done["failed"] else EXIT_OK


def _page(done: dict[str, Any]) -> str:
    rows = [[i["kind"], size(i["bytes"]), i["reason"], i["path"]] for i in done["items"]]
    count = len(rows)
    things = "1 thing" if count == 1 else f"{count} things"
    more = f"; {done['more']} more were found: call it again" if done["more"] else ""
    if not rows:
        return "Nothing to remove."
    verb = "would remove" if done["dry_run"] else "removed"
    return f"{table(['KIND', 'SIZE', 'WHY', 'PATH'], rows)}\n\n{verb} {things}, {size(done['bytes'])}{more}"
