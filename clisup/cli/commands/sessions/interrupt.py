"""`clisup interrupt`."""

from __future__ import annotations

import click

from clisup.cli.lookup import find_session
from clisup.client.sync import Client

__all__ = ["command"]


@click.command("interrupt")
@click.argument("session")
@click.argument("turn", required=False)
@click.option("--kill", is_flag=True, help="Do not ask the CLI: kill its whole process tree.")
def command(session: str, turn: str | None, kill: bool) -> int:
    """End the running turn of SESSION, and wait until it has ended.

    A TURN (as t7) that is still queued is taken out of the queue.

    \b
    Example:
      clisup interrupt 3f2a
      clisup interrupt --kill 3f2a t7
    """
    with Client.connect(name="clisup-interrupt") as client:
        session_id = find_session(client, session)
        params = {"turn_id": turn} if turn else {}
        mode = "kill" if kill else "graceful"
        done = client.call("session/interrupt", session_id=session_id, mode=mode, **params)
    print(f"turn {done['turn_id']}: {done['outcome'].replace('_', ' ')}")
    return 0
