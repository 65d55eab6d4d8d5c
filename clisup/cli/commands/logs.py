"""`clisup logs`: the events of a session, or of all sessions."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator

import click

from clisup.cli.failure import usage
from clisup.cli.lookup import find_session, stored, stored_of_all
from clisup.cli.on import SESSION, fleet_option
from clisup.cli.options import complete_session, json_option, utf8
from clisup.cli.turn import json_line, print_line
from clisup.cli.views.events import Event, event_line
from clisup.cli.views.terminal import Ink, plain
from clisup.client.failures import AWAY
from clisup.client.raw import JsonObject
from clisup.client.sync import Client, Follower
from clisup.errors import EXIT_OK, ClisupError

__all__ = ["ACK_EVERY", "SHORT_ID", "logs"]

ACK_EVERY = 500
"""Printed events after which the command acknowledges them."""

SHORT_ID = 8
"""Characters of the session's id at the beginning of each line of `--all`."""

# One frame of the CLI can give several events. Events of these types have a line of their own.
_ONE_A_LINE = ("stderr", "unparsed")
_OUTCOMES = {"completed": "green", "failed": "red", "timed_out": "red"}
_STYLES = {"content_delta": "dim", "prompt_accepted": "bold", "approval_requested": "yellow"}
_ALARMING = ("permission_denied", "watchdog", "retry", "unparsed", "gap")


@click.command("logs")
@click.argument("session", required=False, type=SESSION, shell_complete=complete_session)
@click.option("--all", "everything", is_flag=True, help="All sessions; each line begins with its session's short id.")
@fleet_option("All sessions of all boxes; each line begins with BOX/SESSION.")
@click.option("-f", "--follow", is_flag=True, help="Follow new events until Ctrl-C, across restarts of the daemon.")
@click.option("-n", "--lines", type=click.IntRange(min=1), metavar="N", help="Only the last N stored lines.")
@click.option("--new", is_flag=True, help="With -f: only events from now on.")
@click.option("--name", metavar="NAME", callback=utf8("use the name"),
              help="With -f: resume after the last event that was printed under this NAME, and remember the place.")  # fmt: skip
@json_option("Print the event envelopes as JSON lines.")
@click.option("--raw", is_flag=True, help="Print the CLI's own lines; with --json, beside each event as `native`.")
@click.option("--no-deltas", is_flag=True, help="Leave out the pieces of text; the whole messages stay.")
def logs(
    session: str | None,
    everything: bool,
    everywhere: bool,
    follow: bool,
    lines: int | None,
    new: bool,
    name: str | None,
    **look: bool,
) -> int:
    """Show the events of SESSION, or of all sessions, one a line.

    A line holds the local time, the type, the turn and the content. A line of type gap reports missing events.

    If no daemon is running, stored events come from its files, and the exit code is 3; -f needs a daemon.

    With --name the daemon keeps the place: a later run of this command resumes where this one ended. No event is left out;
    if this command is killed, its last lines may come again. docs/start/clients.md says how to forget a name.

    \b
    Example:
      clisup logs 3f2a --no-deltas -n 20
      clisup logs -f --json 3f2a | jq -c 'select(.type == "tool_use")'
      clisup logs --all -f --new
      clisup logs --all -f --name audit --json >> audit.jsonl
      clisup logs --fleet -f --new
    """
    _check(session, everything or everywhere, follow, new or name is not None, lines)
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    printer = _Printer(prefix=everything or everywhere, **look)
    if everywhere:
        return _of_all_boxes(printer, lines, look, follow=follow, new=new, name=name)
    try:
        client = Client.connect(name="clisup-logs")
    except ClisupError as error:
        if error.kind != "daemon_not_running" or follow:
            raise
        from clisup.cli.offline import events_from_disk

        printer.print_last(lines, events_from_disk(session, raw=look["raw"]))
        return error.exit_code
    with client:
        wanted = "*" if everything else find_session(client, str(session))
        if follow and lines is None:
            return _follow(client, wanted, None if new else 0, name, printer, look)
        events = stored_of_all(client, raw=look["raw"]) if everything else stored(client, wanted, raw=look["raw"])
        seqs = printer.print_last(lines, events)
        if follow:
            return _follow(client, wanted, (seqs or 0) if everything else seqs.get(wanted, 0), name, printer, look)
    return EXIT_OK


def _of_all_boxes(
    printer: _Printer, lines: int | None, look: dict[str, bool], *, follow: bool, new: bool, name: str | None
) -> int:
    from clisup.cli.fleet.logs import FleetLogs

    if name is not None:
        raise usage("cannot keep one place in all boxes", hint="give --on BOX with --name")
    fleet = FleetLogs(printer, raw=look["raw"], deltas=not look["no_deltas"])
    return fleet.follow(lines, new=new) if follow else fleet.show(lines)


def _check(session: str | None, everything: bool, follow: bool, follows_only: bool, lines: int | None) -> None:
    reason = None
    if (session is None) != everything:
        reason = "it names a session and all" if everything else "it names no session: give one, or --all, or --fleet"
    elif follows_only and not follow:
        reason = "--new and --name go with -f"
    elif follows_only and lines is not None:
        reason = "--new and --name set the start, so -n does not go with them"
    if reason is not None:
        raise click.UsageError(reason, click.get_current_context())


def _follow(
    client: Client,
    wanted: str,
    after: int | dict[str, int] | None,
    name: str | None,
    printer: _Printer,
    look: dict[str, bool],
) -> int:
    ink = Ink(sys.stderr)
    options: JsonObject = {"raw": look["raw"], "deltas": not look["no_deltas"]} | ({"name": name} if name else {})
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
    return EXIT_OK


def _print_and_ack(events: Follower, printer: _Printer) -> None:
    """Print events, and acknowledge them after `ACK_EVERY` or as soon as no more are buffered."""
    printed: dict[str, Event] = {}
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
        if getattr(error, "kind", "") not in AWAY:  # the follower has given up after its own retries
            _ack(events, printed)
        raise


def _ack(events: Follower, printed: dict[str, Event]) -> None:
    for event in printed.values():
        events.ack(event)
    printed.clear()


class _Printer:
    """Printer of events as JSON, native lines or text. With `prefix`, each text line begins with the session's id."""

    def __init__(self, *, prefix: bool, as_json: bool, raw: bool, no_deltas: bool) -> None:
        self._prefix, self._json, self._raw, self._no_deltas = prefix, as_json, raw, no_deltas
        self._ink = Ink()
        self._before: dict[str, str] = {}

    def print_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.print(event)

    def print_last(self, count: int | None, events: Iterable[Event]) -> dict[str, int]:
        """Print the last `count` lines, or all. Return the last seq of each session, printed or not."""
        seqs: dict[str, int] = {}
        if count is None:
            self.print_all(events)
            return seqs
        for line in deque(self._lines(events, seqs), maxlen=count):
            print_line(line)
        return seqs

    def _lines(self, events: Iterable[Event], seqs: dict[str, int]) -> Iterator[str]:
        for event in events:
            seqs[event["session_id"]] = int(event.get("seq") or event["to_seq"])
            if (line := self._line(event)) is not None:
                yield line

    def print(self, event: Event) -> None:
        if (line := self._line(event)) is not None:
            print_line(line)

    def _line(self, event: Event) -> str | None:
        if self._no_deltas and event["type"] == "content_delta":
            return None
        if self._json:
            return json_line(event)
        line = self._native(event) if self._raw and event["type"] != "gap" else self._coloured(event)
        if line is None:
            return None
        box = f"{event['box']}/" if "box" in event else ""
        return (self._ink("dim", f"{box}{plain(event['session_id'])[:SHORT_ID]}  ") if self._prefix else "") + line

    def _native(self, event: Event) -> str | None:
        """Return the CLI's line once, or None for an event of the daemon."""
        native, session_id = event.get("native"), event["session_id"]
        if not native or (native == self._before.get(session_id) and event["type"] not in _ONE_A_LINE):
            return None
        self._before[session_id] = native
        return plain(native) if sys.stdout.isatty() else str(native)

    def _coloured(self, event: Event) -> str:
        line, style = event_line(event), _style(event)
        return self._ink(style, line) if style else line


def _style(event: Event) -> str | None:
    """Return the colour of the line: red for failures, yellow if a person is wanted."""
    kind = event["type"]
    if kind == "turn_completed":
        return _OUTCOMES.get(event.get("outcome", ""))
    if kind in _ALARMING or event.get("error") or event.get("is_error"):
        return "red"
    return _STYLES.get(kind)
