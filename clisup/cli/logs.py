"""`clisup logs`: the events of a session."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from clisup.cli.describe import event_line
from clisup.cli.lookup import find_session
from clisup.cli.terminal import Ink, plain
from clisup.cli.turn import print_json
from clisup.client.sync import Client

__all__ = ["command"]

_PAGE = 500
# One frame of the CLI can give several events, and each frame has an id of its own; these two are never of a frame.
_ONE_A_LINE = ("stderr", "unparsed")
_ALARMING = ("permission_denied", "watchdog", "retry", "unparsed", "gap")


@click.command("logs")
@click.argument("session")
@click.option(
    "-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C; a restart of the daemon is no end."
)
@click.option("--json", "as_json", is_flag=True, help="Print the event envelopes as JSON lines.")
@click.option("--raw", is_flag=True, help="Print the CLI's own lines; with --json, beside each event as `native`.")
@click.option("--no-deltas", is_flag=True, help="Leave out the pieces of text; the whole messages stay.")
def command(session: str, follow: bool, as_json: bool, raw: bool, no_deltas: bool) -> int:
    """Show the events of SESSION, one a line.

    A line holds the local time, the type, the turn and what the event says.

    \b
    Example:
      clisup logs 3f2a --no-deltas
      clisup logs -f --json 3f2a | jq -c 'select(.type == "tool_use")'
    """
    with Client.connect(name="clisup-logs") as client:
        session_id = find_session(client, session)
        events = _follow(client, session_id, raw, no_deltas) if follow else _stored(client, session_id, raw)
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
        _print(events, as_json=as_json, raw=raw, no_deltas=no_deltas)
    return 0


def _stored(client: Client, session_id: str, raw: bool) -> Iterator[dict[str, Any]]:
    """History by page, up to its end as it is now."""
    after = 0
    while True:
        page = client.call("session/events", session_id=session_id, after_seq=after, limit=_PAGE, raw=raw)
        yield from page["events"]
        if page["eof"] or page["next_seq"] - 1 <= after:
            return
        after = page["next_seq"] - 1


def _follow(client: Client, session_id: str, raw: bool, no_deltas: bool) -> Iterator[dict[str, Any]]:
    ink = Ink(sys.stderr)
    return client.follow(
        session_id,
        0,
        raw=raw,
        deltas=not no_deltas,
        on_lost=lambda: print(ink("dim", "[connection lost; trying again]"), file=sys.stderr),
        on_back=lambda: print(ink("dim", "[connected again]"), file=sys.stderr),
    )


def _print(events: Iterator[dict[str, Any]], *, as_json: bool, raw: bool, no_deltas: bool) -> None:
    ink = Ink()
    before = None
    for event in events:
        if no_deltas and event["type"] == "content_delta":
            continue
        if as_json:
            print_json(event)
        elif not raw:
            print(_coloured(event, ink), flush=True)
        elif (native := event.get("native")) and (native != before or event["type"] in _ONE_A_LINE):
            print(plain(native) if ink.on else native, flush=True)
            before = native


def _coloured(event: dict[str, Any], ink: Ink) -> str:
    line = event_line(event)
    if event["type"] == "content_delta":
        return ink("dim", line)
    if event["type"] in _ALARMING or event.get("error") or event.get("is_error"):
        return ink("red", line)
    return line
