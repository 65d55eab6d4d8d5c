"""`clisup stop`: end the daemon, and wait until it is gone."""

from __future__ import annotations

import sys
import time

import click

from clisup.client.sync import Client
from clisup.client.transport import Connection
from clisup.errors import ClisupError, WorldError

__all__ = ["command"]

STOP_TIMEOUT_S = 180.0
"""Over the default `daemon.drain_s` and the ladder that follows it."""

_PAUSE_S = 0.05
_MEANING = {
    "drain": "running turns may end first",
    "detach": "running turns go on without it",
    "kill": "running turns are ended",
}


@click.command("stop")
@click.option("--mode", type=click.Choice(list(_MEANING)), default="drain", show_default=True,
              help="What happens to running turns: drain lets them end, detach leaves them running, kill ends them.")  # fmt: skip
def command(mode: str) -> int:
    """Stop the daemon and wait until it is gone.

    With detach, the next daemon takes the running turns over, and nothing of them is lost.

    \b
    Example:
      clisup stop
      clisup stop --mode detach && clisup serve &
    """
    with Client.connect(name="clisup-stop") as client:
        path, server = client.path, client.server.get("server", {})
        client.call("daemon/shutdown", mode=mode)
        print(f"stopping the daemon (pid {server.get('pid')}); {_MEANING[mode]}", file=sys.stderr)
        if server.get("activated"):
            _wait_for_the_end(client, path)
    if server.get("activated"):  # to knock again would start the next daemon
        print("stopped; the next client starts it again. To keep it down, stop its socket unit (docs/systemd.md)")
        return 0
    _wait_until_gone(path)
    print("stopped")
    return 0


def _wait_for_the_end(client: Client, path: str) -> None:
    """Until it hangs up, which is among the last things that a daemon does."""
    until = time.monotonic() + STOP_TIMEOUT_S
    while time.monotonic() < until:
        try:
            client.call("ping")
        except ClisupError as error:
            if error.kind == "daemon_not_running":  # the connection is lost; another call would make a new one
                return
            if error.kind not in ("overloaded", "shutting_down"):
                raise
        time.sleep(_PAUSE_S)
    raise _too_slow(path)


def _wait_until_gone(path: str) -> None:
    until = time.monotonic() + STOP_TIMEOUT_S
    while time.monotonic() < until:
        try:
            Connection(path).close()
        except ClisupError as error:
            if error.kind == "daemon_not_running":
                return
        time.sleep(_PAUSE_S)
    raise _too_slow(path)


def _too_slow(path: str) -> WorldError:
    return WorldError(
        f"cannot see the daemon at {path} end, because turns still run after {STOP_TIMEOUT_S:g} s",
        kind="overloaded",
        hint="see them: clisup status; end them: clisup stop --mode kill",
    )
