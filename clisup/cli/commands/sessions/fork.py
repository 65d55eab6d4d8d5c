"""`clisup fork`."""

from __future__ import annotations

import re

import click

from clisup.cli.lookup import find_session
from clisup.client.sync import Client

__all__ = ["command"]

_TURN = re.compile(r"t?([1-9][0-9]{0,15})")


def _turn_id(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    if (match := _TURN.fullmatch(value)) is None:
        raise click.BadParameter("a turn is named t1, t2, ...; `clisup logs` shows them")
    return f"t{match[1]}"


@click.command("fork")
@click.argument("session")
@click.option(
    "--at-turn", metavar="T", callback=_turn_id, help="The last turn that the new session knows of; else all."
)
def command(session: str, at_turn: str | None) -> int:
    """Open a session with the history of SESSION.

    It has the same directory, model and settings, and goes its own way from there; SESSION and its CLI's transcript are not
    touched. While a turn of SESSION runs, the new one has all turns before it. Prints the new session's id.

    \b
    Example:
      clisup fork 3f2a
      clisup run --session "$(clisup fork 3f2a --at-turn t2)" "Try it another way."
    """
    with Client.connect(name="clisup-fork") as client:
        wanted = {} if at_turn is None else {"at_turn": at_turn}
        answer = client.call("session/fork", session_id=find_session(client, session), **wanted)
    print(answer["session_id"])
    return 0
