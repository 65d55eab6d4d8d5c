"""`clisup top`: a full-screen live view. What it knows is pure (`model`, `rows`, `head`); Textual is loaded by `app` alone."""

from __future__ import annotations

import os
import sys

import click

from clisup.cli.failure import usage
from clisup.client.sync import Client

__all__ = ["command"]


@click.command("top")
@click.option(
    "--sort",
    default="attention",
    metavar="ORDER",
    help="attention (default), session, idle, age, memory, tokens, cost.",
)
@click.option("--filter", "wanted", default="", metavar="WORDS", help="Only sessions that hold all of these words.")
@click.option("-f", "--follow", metavar="SESSION", help="Follow this session's events from the start.")
def command(sort: str, wanted: str, follow: str | None) -> int:
    """Watch the sessions live, in full screen.

    Shows each session's phase, turn, idle time, age, process, memory, tokens, cost and last event, how many events a second
    there are, the next timer, and the tool calls that wait for a word.

    Keys: up and down (or k and j) choose a session, Enter or f follows its events, i interrupts its turn (asks first), a
    allows and d denies the tool call that is shown, s sorts, / filters, ? helps, q leaves. What runs goes on.

    It survives a restart of the daemon, and honours NO_COLOR. In a pipe use clisup status.

    \b
    Example:
      clisup top
      clisup top --sort tokens --filter claude
      clisup top --follow 3f2a
    """
    from clisup.cli.top.model import SORTS

    if sort not in SORTS:
        raise usage(f"cannot sort by {sort!r}, because it is none of {', '.join(SORTS)}", hint="clisup top --sort idle")
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        raise usage(
            "cannot show a live view, because stdin or stdout is not a terminal that can do that",
            hint="for pipes and programs: clisup status, clisup status --json, clisup logs --all -f",
        )
    with Client.connect(name="clisup-top") as client:
        path, session_id = client.path, None
        if follow is not None:
            from clisup.cli.lookup import find_session

            session_id = find_session(client, follow)
    from clisup.cli.top.app import Top

    top = Top(path, sort=sort, wanted=wanted, follow=session_id)
    top.run()
    return top.return_code or 0
