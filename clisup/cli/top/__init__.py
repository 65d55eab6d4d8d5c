"""`clisup top`: a full-screen live view. `model` and the texts are pure; only `app` and its parts load Textual."""

from __future__ import annotations

import os
import sys

import click

from clisup.cli.failure import usage
from clisup.cli.on import SESSION, fleet_option
from clisup.cli.options import complete_session
from clisup.client.sync import Client

__all__ = ["top"]


@click.command("top")
@click.option("--sort", default="attention", metavar="ORDER",
              help="attention (default), session, idle, age, memory, tokens, cost.")  # fmt: skip
@click.option("--filter", "wanted", default="", metavar="WORDS", help="Only sessions that match all of these words.")
@fleet_option("Watch the sessions of all boxes.")
@click.option(
    "-f",
    "--follow",
    metavar="SESSION",
    type=SESSION,
    shell_complete=complete_session,
    help="Follow this session's events from the start.",
)
def top(sort: str, wanted: str, everywhere: bool, follow: str | None) -> int:
    """Watch the sessions live, in full screen.

    The view shows what each session does or how its last turn ended, since when, its title and its last event, and as much
    of the rest as fits. A session that waits for a person says `wants you`, and its question is shown below.

    Keys: up and down (or k and j) choose a session, Enter or f follows its events, i interrupts its turn (asks first), a
    allows the shown tool call or answers the shown question, d denies it, s sorts, / filters, ? helps, q leaves. Sessions
    go on.

    The view survives a restart of the daemon and honours NO_COLOR. In a pipe, use clisup status.

    \b
    Example:
      clisup top
      clisup top --sort tokens --filter claude
      clisup top --follow 3f2a
      clisup top --fleet
    """
    from clisup.cli.top.model import SORTS

    if sort not in SORTS:
        raise usage(f"cannot sort by {sort!r}, because it is none of {', '.join(SORTS)}", hint="clisup top --sort idle")
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        raise usage(
            "cannot show a live view, because stdin or stdout is not a terminal with cursor control",
            hint="for pipes and programs: clisup status, clisup status --json, clisup logs --all -f",
        )
    if everywhere:
        return _watch_all(sort, wanted, follow)
    with Client.connect(name="clisup-top") as client:
        path, session_id = client.path, None
        if follow is not None:
            from clisup.cli.lookup import find_session

            session_id = find_session(client, follow)
    from clisup.cli.top.app import Top

    app = Top(path, sort=sort, wanted=wanted, follow=session_id)
    app.run()
    return app.return_code or 0


def _watch_all(sort: str, wanted: str, follow: str | None) -> int:
    from clisup.cli.fleet.asking import everywhere

    if follow is not None:
        raise usage("cannot follow one session and watch all boxes", hint="choose it in the view, or leave out --fleet")
    boxes = everywhere()
    from clisup.cli.top.app import Top

    app = Top("", sort=sort, wanted=wanted, boxes=boxes)
    app.run()
    return app.return_code or 0
