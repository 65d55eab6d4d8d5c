"""`clisup status` and `clisup version` as click sees them: for `--help` and for usage errors. The work is elsewhere."""

from __future__ import annotations

import click

from clisup.cli.status import show_status
from clisup.cli.version import show_version

__all__ = ["status", "version"]


@click.command("status")
@click.argument("session", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's answer as JSON, with its schema_version.")
def status(session: str | None, as_json: bool) -> int:
    """Show the daemon, its backends and its sessions.

    With a SESSION, show that one from near.

    Exit code 3 means that no daemon runs.

    \b
    Example:
      clisup status
      clisup status 3f2a
      clisup status --json | jq .daemon.running
    """
    return show_status(session, as_json)


@click.command("version")
def version() -> int:
    """Print the version of this command.

    \b
    Example:
      clisup version
    """
    return show_version()
