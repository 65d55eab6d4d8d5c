"""`clisup delete`."""

from __future__ import annotations

import click

from clisup.cli.lookup import all_sessions, find_session
from clisup.client.sync import Client
from clisup.errors import ClisupError

__all__ = ["command"]


@click.command("delete")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@click.option("--all-closed", is_flag=True, help="Every session that is closed.")
def command(sessions: tuple[str, ...], all_closed: bool) -> int:
    """Remove each closed SESSION for good.

    Its events go, its turns' output, and its place in every durable cursor. An open session is refused: close it first. The
    CLI's own transcript is not touched.

    \b
    Example:
      clisup delete 3f2a 77b0
      clisup delete --all-closed
    """
    if bool(sessions) == all_closed:
        reason = "it names sessions and --all-closed" if sessions else "it names no session: give one, or --all-closed"
        raise click.UsageError(reason, click.get_current_context())
    with Client.connect(name="clisup-delete") as client:
        if not all_closed:
            for session_id in dict.fromkeys([find_session(client, session) for session in sessions]):
                client.call("session/delete", session_id=session_id)
                print(f"session {session_id}: deleted", flush=True)
            return 0
        found = [summary["session_id"] for summary in all_sessions(client, state="closed")]
        deleted = sum(_delete(client, session_id) for session_id in found)
    print(f"{deleted} closed sessions deleted" if deleted else "No closed sessions.")
    return 0


def _delete(client: Client, session_id: str) -> bool:
    """False where somebody else, or retention, was faster."""
    try:
        client.call("session/delete", session_id=session_id)
    except ClisupError as error:
        if error.kind != "session_not_found":
            raise
        return False
    return True
