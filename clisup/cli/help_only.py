"""`clisup status` and `clisup version` as click sees them: for `--help` and for usage errors. The work is elsewhere."""

from __future__ import annotations

import click

from clisup.cli.failure import usage
from clisup.cli.status import show_status
from clisup.cli.version import show_version

__all__ = ["status", "version"]


@click.command("status")
@click.argument("session", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's answer as JSON, with its schema_version.")
@click.option("--why", is_flag=True, help="Say why SESSION's turn is still alive, and when and how it would be ended.")
def status(session: str | None, as_json: bool, why: bool) -> int:
    """Show the daemon, its backends and its sessions.

    With a SESSION, show that one from near. With --why, show its watchdog: the phase of its turn, each timer and its
    deadline, the last sign of life, what its processes did, and what happens next.

    Exit code 3 means that no daemon runs.

    \b
    Example:
      clisup status
      clisup status 3f2a
      clisup status --why 3f2a
      clisup status --json | jq .daemon.running
    """
    if why and session is None:
        raise usage("cannot say why without a session", hint="give the beginning of its id: clisup status --why 3f2a")
    return show_status(session, as_json, why)


@click.command("version")
def version() -> int:
    """Print the version of this command.

    \b
    Example:
      clisup version
    """
    return show_version()
