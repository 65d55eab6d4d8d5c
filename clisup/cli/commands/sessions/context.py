"""`clisup context`."""

from __future__ import annotations

import json

import click

from clisup.cli.lookup import find_session
from clisup.client.sync import Client

__all__ = ["command"]


@click.command("context")
@click.argument("session")
@click.option("--compact", is_flag=True, help="Have the CLI sum up its context, and wait for it.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def command(session: str, compact: bool, as_json: bool) -> int:
    """Show how full the context of a live SESSION is, or have it summed up.

    The CLI itself counts, by asking its API, which takes about a second.

    \b
    Example:
      clisup context 3f2a
      clisup context 3f2a --compact
    """
    with Client.connect(name="clisup-context") as client:
        session_id = find_session(client, session)
        if compact:
            result = client.call("session/compact", session_id=session_id, wait=True)
            print(json.dumps(result) if as_json else f"turn {result['turn_id']}: {result['outcome']}")
            return 0 if result["outcome"] == "completed" else 1
        usage = client.call("session/context_usage", session_id=session_id)
    if as_json:
        print(json.dumps(usage))
        return 0
    share = f" ({usage['percentage']:g} %)" if usage["percentage"] is not None else ""
    print(f"{usage['total_tokens']:,} of {usage['max_tokens']:,} tokens{share}")
    for category in usage["categories"]:
        print(f"  {category['tokens']:>10,}  {category['name']}")
    return 0
