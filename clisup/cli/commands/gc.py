"""`clisup gc`: remove closed sessions and leftovers."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from clisup.cli.options import MAX_SECONDS, json_option
from clisup.cli.views.tables import print_table
from clisup.cli.views.terminal import plain, size
from clisup.client.sync import Client
from clisup.errors import EXIT_OK, EXIT_TURN_FAILED, ClisupError

__all__ = ["gc"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def _age(_ctx: click.Context, _param: click.Parameter, value: str) -> float:
    """Return the seconds of an age such as `7d`."""
    number, unit = value[:-1], value[-1:]
    if value == "0":
        return 0.0
    if unit in _UNITS and number.isascii() and number.replace(".", "", 1).isdecimal():
        seconds = float(number) * _UNITS[unit]
        if seconds <= MAX_SECONDS:
            return seconds
    raise click.BadParameter(f"{value!r} is no age: give a number and one of s, m, h, d, w, such as 7d, or 0")


@click.command("gc")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option("--older-than", callback=_age, default="7d", metavar="AGE", show_default=True,
              help="Remove sessions that were closed at least AGE ago; 0 for all closed ones.")  # fmt: skip
@json_option("Print the answer of daemon/gc as JSON.")
def gc(dry_run: bool, older_than: float, as_json: bool) -> int:
    """Remove closed sessions and leftovers, and report the disk space freed.

    This removes closed sessions, events beyond retention, leftovers of a crash (half-written files, run directories without
    a run, secrets of closed sessions, deleted sessions, dead sockets) and empty cgroups. It never touches a session that
    works, waits or rests, a session that cannot be read, or the CLIs' own transcripts.

    The daemon does the work if it is running; else this command does, under the lock of the state directory.

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
        from clisup.daemon.ops.offline import clean_up_offline

        done = clean_up_offline(dry_run=dry_run, older_than_s=older_than)
    if as_json:
        print(json.dumps(done, ensure_ascii=False))
    else:
        _print(done)
    for failure in done["failed"]:
        print(plain(f"clisup: cannot remove {failure['path']}: {failure['error']}"), file=sys.stderr)
    return EXIT_TURN_FAILED if done["failed"] else EXIT_OK


def _print(done: dict[str, Any]) -> None:
    rows = [[i["kind"], size(i["bytes"]), i["reason"], i["path"]] for i in done["items"]]
    if not rows:
        print("Nothing to remove.")
        return
    print_table(["KIND", "SIZE", "WHY", "PATH"], rows)
    verb = "would remove" if done["dry_run"] else "removed"
    items = "1 item" if len(rows) == 1 else f"{len(rows)} items"
    more = f"; {done['more']} more were found: repeat the command" if done["more"] else ""
    print(f"\n{verb} {items}, {size(done['bytes'])}{more}")
