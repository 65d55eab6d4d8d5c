"""`clisup status` and `clisup version` as click sees them: for `--help` and for usage errors. The work is elsewhere."""

from __future__ import annotations

from typing import Any

import click

from clisup.cli.commands.other.version import show_version
from clisup.cli.failure import usage
from clisup.cli.status.arguments import WATCH_S, StatusArguments
from clisup.cli.status.columns import COLUMNS
from clisup.cli.status.status import show_status
from clisup.cli.status.watch import SHORTEST_S

__all__ = ["status", "version"]


@click.command("status")
@click.argument("session", required=False)
@click.option("-o", "--output", "columns", metavar="FIELDS", help="Only the table, with these columns: a comma list.")
@click.option("-q", "--quiet", is_flag=True, help="Only the whole ids of the sessions, one a line, for scripts.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; docs/schemas/status.json is its schema.")
@click.option("-w", "--watch", is_flag=False, flag_value=WATCH_S, type=click.FloatRange(SHORTEST_S), metavar="[SECONDS]",
              help="Look again every so many seconds (default 2), until Ctrl-C.")  # fmt: skip
@click.option("--why", is_flag=True, help="Say why SESSION's turn is still alive, and when and how it would be ended.")
def status(**given: Any) -> int:
    """Show the daemon, its backends and its sessions.

    With a SESSION, show that one from near. With --why, show its watchdog: the phase of its turn, each timer and its
    deadline, the last sign of life, what its processes did, and what happens next.

    Where no daemon runs, what its files say is shown, and said so; nothing is changed. The exit code is 3 then.

    FIELDS: {columns}.

    \b
    Example:
      clisup status
      clisup status 3f2a
      clisup status --why 3f2a
      clisup status -o session,state,mem,last
      clisup status --watch 5
      clisup status --json | jq .daemon.running
    """
    wanted = StatusArguments()
    wanted.session, wanted.columns, wanted.watch = given["session"], given["columns"], given["watch"]
    wanted.json, wanted.quiet, wanted.why = given["as_json"], given["quiet"], given["why"]
    if wanted.why and wanted.session is None:
        raise usage("cannot say why without a session", hint="give the beginning of its id: clisup status --why 3f2a")
    if not wanted.possible:
        raise usage(
            "cannot give two forms at once", hint="choose one of -o, -q, --json and --why (--json --why is one)"
        )
    return show_status(wanted)


status.help = str(status.help).replace("{columns}", ", ".join(COLUMNS))


@click.command("version")
def version() -> int:
    """Print the version of this command.

    \b
    Example:
      clisup version
    """
    return show_version()
