"""`clisup set`."""

from __future__ import annotations

import click

from clisup.cli.failure import usage
from clisup.cli.lookup import find_session
from clisup.client.sync import Client

__all__ = ["command"]


@click.command("set")
@click.argument("session")
@click.option("--model", metavar="MODEL", help="The model from here on.")
@click.option(
    "--permission-mode",
    metavar="MODE",
    help="What the CLI may do unasked from here on, in its own words: acceptEdits, plan, ...",
)
def command(session: str, **wanted: str | None) -> int:
    """Change the model or the permission mode of SESSION.

    A live process takes it up at once, also in the middle of a turn; else it holds from the next turn on.

    \b
    Example:
      clisup set 3f2a --model opus
      clisup set 3f2a --permission-mode plan
    """
    given = {name: value for name, value in wanted.items() if value is not None}
    if not given:
        raise usage("cannot set nothing", hint="give --model or --permission-mode")
    with Client.connect(name="clisup-set") as client:
        session_id = find_session(client, session)
        for name, value in given.items():
            answer = client.call(f"session/set_{name}", session_id=session_id, **{name: value})
            when = {"now": "from now on", "next_turn": "from the next turn on"}[answer["applied"]]
            print(f"{name.replace('_', ' ')} {value}: {when}")
    return 0
