"""`clisup stop`: end the daemon, and wait until it is gone."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import click

from clisup.client.raw import RawClient
from clisup.client.sync import Client
from clisup.errors import ClisupError, WorldError

__all__ = ["command"]

STOP_TIMEOUT_S = 180.0
"""Over the default `daemon.drain_s` and the ladder that follows it."""

LOOK_S = 0.5
"""Between two questions of how many turns still run."""

_PAUSE_S = 0.05
_ACTIVATED = "stopped; the next client starts it again. To keep it down, stop its socket unit (docs/systemd.md)"
_MEANING = {
    "drain": (
        "it may end first, and clisup stop --mode kill ends it now",
        "they may end first, and clisup stop --mode kill ends them now",
    ),
    "detach": ("it goes on without the daemon", "they go on without the daemon"),
    "kill": ("it is ended", "they are ended"),
}
"""What becomes of one turn that runs, and of more."""


@click.command("stop")
@click.option("--mode", type=click.Choice(list(_MEANING)), default="drain", show_default=True,
              help="What happens to running turns: drain lets them end, detach leaves them running, kill ends them.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print what was stopped as JSON: pid, mode, running, seconds.")
def command(mode: str, as_json: bool) -> int:
    """Stop the daemon and wait until it is gone.

    Running turns may end first, for `daemon.drain_s` (60 s); they are ended then.
    Meanwhile stderr says how many still run, whenever that changes. With detach, the next daemon takes the
    running turns over, and nothing of them is lost. Ctrl-C ends the waiting, not the stop.

    \b
    Example:
      clisup stop
      clisup stop --mode detach && clisup serve &
    """
    begun = time.monotonic()
    with Client.connect(name="clisup-stop") as client:
        path, server = client.path, client.server.get("server", {})
        pid, activated = server.get("pid"), bool(server.get("activated"))
        running = _running(client)
        client.call("daemon/shutdown", mode=mode)
        print(f"stopping the daemon (pid {pid}); {_meaning(mode, running)}", file=sys.stderr)
        # Where systemd listens, to knock again would start the next daemon.
        _wait_until((lambda: _hung_up(client)) if activated else (lambda: _nobody_listens(path)), client, running)
    told = {"pid": pid, "mode": mode, "running": running, "seconds": round(time.monotonic() - begun, 3)}
    told["activated"] = activated
    print(json.dumps(told) if as_json else _ACTIVATED if activated else "stopped")
    return 0


def _meaning(mode: str, running: int | None) -> str:
    turns = "running turns" if running is None else "no turn runs" if not running else turns_run(running)
    return turns if running == 0 else f"{turns}: {_MEANING[mode][running != 1]}"


def turns_run(count: int) -> str:
    """`1 turn runs`, `7 turns run`."""
    return "1 turn runs" if count == 1 else f"{count} turns run"


def _wait_until(gone: Callable[[], bool], client: Client, running: int | None) -> None:
    until = time.monotonic() + STOP_TIMEOUT_S
    look_at = time.monotonic() + LOOK_S
    while time.monotonic() < until:
        if gone():
            return
        if running and time.monotonic() >= look_at:
            running, look_at = _told(client, running), time.monotonic() + LOOK_S
        time.sleep(_PAUSE_S)
    raise WorldError(
        f"cannot see the daemon at {client.path} end, because turns still run after {STOP_TIMEOUT_S:g} s",
        kind="overloaded",
        hint="see them: clisup status; end them: clisup stop --mode kill",
    )


def _nobody_listens(path: str) -> bool:
    client = RawClient(path, "clisup-stop")
    try:
        client.dial()
    except ClisupError as error:
        return error.kind == "daemon_not_running"
    client.close()
    return False


def _hung_up(client: Client) -> bool:
    """It hangs up among the last things that a daemon does."""
    if client.lost:  # another call would make a new connection
        return True
    try:
        client.call("ping")
    except ClisupError as error:
        if error.kind not in ("daemon_not_running", "overloaded", "shutting_down"):
            raise
        return error.kind == "daemon_not_running"
    client.close()
    return False


def _told(client: Client, before: int) -> int | None:
    """How many turns run now, said where it is another number; None where the daemon does not say any longer."""
    running = _running(client)
    if running is not None and running != before:
        print(f"{turns_run(running)} still" if running else "no turn runs any more", file=sys.stderr)
    return running


def _running(client: Client) -> int | None:
    """Turns that run; None where the daemon does not answer any longer. It is never waited for a successor."""
    try:
        if client.lost:
            return None
        return int(client.call("daemon/status")["daemon"]["running"])
    except ClisupError:
        return None
