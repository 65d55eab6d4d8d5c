"""`clisup daemon`: what one does to a daemon that goes on running."""

from __future__ import annotations

import json
import sys
import time

import click

from clisup.cli.daemon_log import log
from clisup.client.sync import Client
from clisup.errors import ClisupError, WorldError

__all__ = ["command"]

RESTART_TIMEOUT_S = 60.0
"""Far above what a restart takes, with 500 running sessions too."""

_PAUSE_S = 0.05


@click.group("daemon", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Restart the daemon in place.

    To start and to end it: clisup serve, clisup stop.

    \b
    Example:
      clisup daemon restart
    """
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


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
