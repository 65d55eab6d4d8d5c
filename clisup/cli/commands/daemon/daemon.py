"""`clisup daemon`: what one does to a daemon that goes on running."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from clisup.cli.command_group import CommandGroup
from clisup.cli.commands.daemon.daemon_log import log
from clisup.cli.views.terminal import plain, table
from clisup.client.sync import Client
from clisup.config.keys import EFFECTS
from clisup.errors import ClisupError, WorldError

__all__ = ["command"]

RESTART_TIMEOUT_S = 60.0
"""Far above what a restart takes, with 500 running sessions too."""

_PAUSE_S = 0.05


@click.group("daemon", cls=CommandGroup, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Show the daemon's log, have it read its configuration anew, or start anew in place.

    To start and to end it: clisup serve, clisup stop.

    \b
    Example:
      clisup daemon reload
      clisup daemon restart
    """
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


@command.command("reload")
@click.option("-n", "--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's answer as JSON.")
def reload(dry_run: bool, as_json: bool) -> int:
    """Have the daemon read its configuration file anew.

    All of it is taken up or, where something in it is wrong, nothing. Running turns go on as they began. The table says
    when each change takes effect: at once; with the next turn of a session (a live process is replaced before it where it has
    to be); with the next connection; or only when the daemon is stopped and started. SIGHUP does the same.

    Exit codes: 78 for a configuration that cannot be used, 75 where an open session's backend would go.

    \b
    Example:
      clisup config check && clisup daemon reload
      clisup daemon reload --dry-run
    """
    with Client.connect(name="clisup-reload") as client:
        answer = client.call("daemon/reload", dry_run=dry_run)
    print(json.dumps(answer) if as_json else "\n".join(_reloaded(answer, dry_run)))
    return 0


def _reloaded(answer: dict[str, Any], dry_run: bool) -> Iterator[str]:
    changed = answer["changed"]
    if not changed:
        yield f"nothing has changed: {plain(answer['file'])}"
        return
    count = "1 change" if len(changed) == 1 else f"{len(changed)} changes"
    yield f"{count}{' to come' if dry_run else ''}: {plain(answer['file'])}"
    rows = [[plain(c["key"]), c["what"], EFFECTS.get(c["effect"], c["effect"])] for c in changed]
    yield table(["KEY", "WHAT", "TAKES EFFECT"], rows)
    if any(c["effect"] == "start" for c in changed):
        yield "\nThe socket and the state directory stay what they are: to change them, clisup stop, then clisup serve."


command.add_command(log)


@command.command("restart")
@click.option("--json", "as_json", is_flag=True, help="Print who serves now as JSON: version, pid, instance_id.")
def restart(as_json: bool) -> int:
    """Start the daemon anew in place, with the code and configuration that are installed now.

    Running turns go on: the new daemon takes them over in mid-answer. Clients that came with clisup reconnect by
    themselves. Where the new one would not start, nothing happens but a message. The socket and the state directory stay
    what they are: to change those, stop it and start it again.

    \b
    Example:
      pip install --upgrade clisup && clisup daemon restart
    """
    with Client.connect(name="clisup-restart") as client:
        path, before = client.path, client.server["server"]["instance_id"]
        running = client.call("daemon/restart")["running"]
    turns = "1 running turn goes on" if running == 1 else f"{running} running turns go on"
    print(f"restarting the daemon; {turns}", file=sys.stderr)
    server = _successor(path, before)
    print(json.dumps(server) if as_json else f"restarted: clisup {server['version']}, pid {server['pid']}")
    return 0


def _successor(path: str, before: str) -> dict[str, object]:
    """Who serves there now, once it is another one than `before`."""
    until = time.monotonic() + RESTART_TIMEOUT_S
    while time.monotonic() < until:
        try:
            with Client.connect(path, name="clisup-restart") as client:
                server: dict[str, object] = client.server["server"]
                if server["instance_id"] != before:
                    return server
        except ClisupError as error:
            if error.kind not in ("daemon_not_running", "overloaded"):
                raise
        time.sleep(_PAUSE_S)
    raise WorldError(
        f"cannot see the daemon at {path} come back, because {RESTART_TIMEOUT_S:g} s have passed",
        kind="daemon_not_running",
        hint="its log says why; start it: clisup serve",
    )
