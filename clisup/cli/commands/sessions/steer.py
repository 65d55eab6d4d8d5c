"""`clisup steer`."""

from __future__ import annotations

import sys

import click

from clisup.cli.lookup import find_session
from clisup.cli.parameters import utf8
from clisup.client.sync import Client

__all__ = ["command"]


@click.command("steer")
@click.argument("session")
@click.argument("prompt", callback=utf8("send the prompt", "convert it first: iconv -t UTF-8"))
def command(session: str, prompt: str) -> int:
    """Say PROMPT into the turn that SESSION runs.

    A CLI at a tool takes it up with the tool's result; one whose model only writes takes it in a turn of its own right after.
    Where nothing runs it is an ordinary prompt. Prints the turn that it was said to; `clisup logs` shows what comes of it.
    Only live sessions can be steered (clisup run --live).

    \b
    Example:
      clisup steer 3f2a "Leave the tests alone."
    """
    with Client.connect(name="clisup-steer") as client:
        wanted = find_session(client, session)
        said = client.call("session/prompt", session_id=wanted, prompt=prompt, when_busy="steer")
    print(said["turn_id"])
    if said["delivery"] != "steered":
        print("nothing ran: it is a turn of its own", file=sys.stderr)
    return 0
