"""`clisup close`."""

from __future__ import annotations

import click

from clisup.cli.lookup import find_session
from clisup.client.sync import Client

__all__ = ["command"]


@click.command("close")
@click.argument("session")
def command(session: str) -> int:
    """Close SESSION for good.

    A running turn is interrupted first. The session's events stay readable.

    \b
    Example:
      clisup close 3f2a
    """
    with Client.connect(name="clisup-close") as client:
        session_id = find_session(client, session)
        client.call("session/close", session_id=session_id)
    print(f"session {session_id}: closed")
    return 0
