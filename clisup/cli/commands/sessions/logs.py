"""`clisup logs`: the events of a session, or of all of them."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import click

from clisup.cli.lookup import find_session
from clisup.cli.parameters import utf8
from clisup.cli.running.turn import json_line, print_line
from clisup.cli.views.event_lines import event_line
from clisup.cli.views.event_pages import stored, stored_of_all
from clisup.cli.views.terminal import Ink, plain
from clisup.client.sync import Client, Follower
from clisup.errors import EXIT_OK, ClisupError

__all__ = ["ACK_EVERY", "SHORT_ID", "command"]

ACK_EVERY = 500
"""Events printed at most before what was printed is acknowledged."""

SHORT_ID = 8
"""Characters of a session's id before each line of `--all`."""

# One frame of the CLI can give several events, and each frame has an id of its own; these two are never of a frame.
_ONE_A_LINE = ("stderr", "unparsed")
_ALARMING = ("permission_denied", "watchdog", "retry", "unparsed", "gap")
_Event = dict[str, Any]


@click.command("logs")
@click.argument("session", required=False)
@click.option("--all", "everything", is_flag=True, help="All sessions; each line begins with its session's id, cut.")
@click.option(
    "-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C; a restart of the daemon is no end."
)
@click.option("-n", "--lines", type=click.IntRange(min=1), metavar="N", help="Only the last N lines of what is stored.")
@click.option("--new", is_flag=True, help="With -f: only what comes from now on.")
@click.option("--name", metavar="NAME", callback=utf8("use the name"),
              help="With -f: begin after what the last one of this NAME printed, and remember what this one does.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the event envelopes as JSON lines.")
@click.option("--raw", is_flag=True, help="Print the CLI's own lines; with --json, beside each event as `native`.")
@click.option("--no-deltas", is_flag=True, help="Leave out the pieces of text; the whole messages stay.")
def command(
    session: str | None, everything: bool, follow: bool, lines: int | None, new: bool, name: str | None, **look: bool
) -> int:
    """Show the events of SESSION, or of all sessions, one a line.

    A line holds the local time, the type, the turn and what the event says. Events that are missing are told by a line of
    type gap.

    Where no daemon runs, stored events are read from its files, and the exit code is 3; -f needs a daemon.

    With --name the daemon keeps the place: a later run of this command goes on where this one ended. Nothing is left out;
    only where this command is killed, its last lines may come again. docs/clients.md says how to forget a name.

    \b
    Example:
      clisup logs 3f2a --no-deltas -n 20
      clisup logs -f --json 3f2a | jq -c 'select(.type == "tool_use")'
      clisup logs --all -f --new
      clisup logs --all -f --name audit --json >> audit.jsonl
    """
    _check(session, everything, follow, new or name is not None, lines)
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    printer = _Printer(prefix=everything, **look)
    try:
        client = Client.connect(name="clisup-logs")
    except ClisupError as error:
        if error.kind != "daemon_not_running" or follow:
            raise
        from clisup.cli.status.stored import events_from_disk

        printer.print_last(lines, events_from_disk(session, raw=look["raw"]))
        return error.exit_code
    with client:
        wanted = "*" if everything else find_session(client, str(session))
        if follow and lines is None:
            _follow(client, wanted, None if new else 0, name, printer, look)
            return EXIT_OK
        events = stored_of_all(client, look["raw"]) if everything else stored(client, wanted, look["raw"])
        told = printer.print_last(lines, events)
        if follow:
            _follow(client, wanted, (told or 0) if everything else told.get(wanted, 0), name, printer, look)
    return EXIT_OK


def _check(session: str | None, everything: bool, follow: bool, follows_only: bool, lines: int | None) -> None:
    reason = None
    if (session is None) != everything:
        reason = "it names a session and --all" if everything else "it names no session: give one, or --all"
    elif follows_only and not follow:
        reason = "--new and --name go with -f"
    elif follows_only and lines is not None:
        reason = "--new and --name say themselves where to begin, so -n does not go with them"
    if reason is not None:
        raise click.UsageError(reason, click.get_current_context())


def _follow(
    client: Client,
    wanted: str,
    after: int | dict[str, int] | None,
    name: str | None,
    printer: _Printer,
    look: dict[str, bool],
) -> None:
    ink = Ink(sys.stderr)
    options: dict[str, Any] = {"raw": look["raw"], "deltas": not look["no_deltas"]} | ({"name": name} if name else {})
    events = client.follow(
        wanted,
        after,
        on_lost=lambda: print(ink("dim", "[connection lost; trying again]"), file=sys.stderr),
        on_back=lambda: print(ink("dim", "[connected again]"), file=sys.stderr),
        **options,
    )
    with events:
        if name is None:
            printer.print_all(events)
        else:
            _print_and_ack(events, printer)


def _print_and_ack(events: Follower, printer: _Printer) -> None:
    """What was printed is acknowledged as soon as nothing more is at hand, or much of it has come together."""
    printed: dict[str, _Event] = {}
    count = 0
    try:
        for event in events:
            printer.print(event)
            printed[event["session_id"]] = event
            count += 1
            if count >= ACK_EVERY or not events.at_hand:
                _ack(events, printed)
                count = 0
    except (KeyboardInterrupt, BrokenPipeError, ClisupError) as error:
        if getattr(error, "kind", "") != "daemon_not_running":  # that one has been waited for long enough
            _ack(events, printed)
        raise


def _ack(events: Follower, printed: dict[str, _Event]) -> None:
    for event in printed.values():
        events.ack(event)
    printed.clear()


class _Printer:
    """Prints events in the form that was asked for. With `prefix`, each line for people says whose it is."""

    def __init__(self, *, prefix: bool, as_json: bool, raw: bool, no_deltas: bool) -> None:
        self._prefix, self._json, self._raw, self._no_deltas = prefix, as_json, raw, no_deltas
        self._ink = Ink()
        self._before: dict[str, str] = {}

    def print_all(self, events: Iterable[_Event]) -> None:
        for event in events:
            self.print(event)

    def print_last(self, count: int | None, events: Iterable[_Event]) -> dict[str, int]:
        """The last `count` lines of them, or all. Gives the last seq of each session, printed or not."""
        told: dict[str, int] = {}
        if count is None:
            self.print_all(events)
            return told
        for line in deque(self._lines(events, told), maxlen=count):
            print_line(line)
        return told

    def _lines(self, events: Iterable[_Event], told: dict[str, int]) -> Iterator[str]:
        for event in events:
            told[event["session_id"]] = int(event.get("seq") or event["to_seq"])
            if (line := self._line(event)) is not None:
                yield line

    def print(self, event: _Event) -> None:
        if (line := self._line(event)) is not None:
            print_line(line)

    def _line(self, event: _Event) -> str | None:
        """None for what is not to be shown."""
        if self._no_deltas and event["type"] == "content_delta":
            return None
        if self._json:
            return json_line(event)
        line = self._native(event) if self._raw and event["type"] != "gap" else self._coloured(event)
        if line is None:
            return None
        return (self._ink("dim", f"{event['session_id'][:SHORT_ID]}  ") if self._prefix else "") + line

    def _native(self, event: _Event) -> str | None:
        """The CLI's own line, once; None for an event of the daemon's own."""
        native, session_id = event.get("native"), event["session_id"]
        if not native or (native == self._before.get(session_id) and event["type"] not in _ONE_A_LINE):
            return None
        self._before[session_id] = native
        return plain(native) if sys.stdout.isatty() else str(native)

    def _coloured(self, event: _Event) -> str:
        line = event_line(event)
        if event["type"] == "content_delta":
            return self._ink("dim", line)
        if event["type"] in _ALARMING or event.get("error") or event.get("is_error"):
            return self._ink("red", line)
        return line
