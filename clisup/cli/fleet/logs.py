"""`clisup logs --fleet`: the events of all sessions of all boxes, each with its box."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from clisup.cli.fleet.asking import (
    AT_ONCE,
    MALFORMED,
    BoxAnswer,
    ask_all,
    everywhere,
    exit_code,
    malformed,
    path_of,
    print_failure,
)
from clisup.cli.lookup import by_time, stored_of_all
from clisup.cli.views.events import Event, checked_event
from clisup.cli.views.terminal import Ink, plain
from clisup.client.raw import JsonObject
from clisup.client.sync import Client, Follower
from clisup.errors import EXIT_NOT_RUNNING, ClisupError
from clisup.locations import HERE

__all__ = ["EventPrinter", "FleetLogs"]

WAITING = 256
"""Events that are read ahead of the output, of all boxes together."""

_NAME = "clisup-logs"
_Said = tuple[str, Event | ClisupError | None]


class EventPrinter(Protocol):
    """Printer of events, which have the name of their `box`."""

    def print(self, event: Event) -> None:
        """Print an event."""

    def print_last(self, count: int | None, events: Iterable[Event]) -> Any:
        """Print the last `count` lines, or all."""


class FleetLogs:
    """Events of all boxes. `raw` asks for the CLI's own lines."""

    def __init__(self, printer: EventPrinter, *, raw: bool, deltas: bool) -> None:
        self._printer, self._raw, self._deltas = printer, raw, deltas
        self._opening = threading.BoundedSemaphore(AT_ONCE)
        self._failed: dict[str, ClisupError] = {}
        self._cursors: dict[str, dict[str, int]] = {}

    def show(self, lines: int | None) -> int:
        """Print the stored events by time, or the last lines. Return the exit code."""
        answers = ask_all(everywhere(), lambda path: Client.connect(path, name=_NAME))
        clients = {answer.box: answer.value for answer in answers if answer.value is not None}
        self._failed = {answer.box: answer.error for answer in answers if answer.error is not None}
        self._cursors = {box: {} for box in clients}
        try:
            events = (self._stored(box, client) for box, client in clients.items())
            self._printer.print_last(lines, by_time(events))
        finally:
            for client in clients.values():
                client.close()
        sys.stdout.flush()
        for box, error in self._failed.items():
            print_failure(box, error)
        return exit_code([BoxAnswer(answer.box, None, self._failed.get(answer.box)) for answer in answers])

    def follow(self, lines: int | None, *, new: bool) -> int:
        """Print events until Ctrl-C, or until no box is left. Return the exit code of the first failure."""
        boxes = everywhere()
        if lines is not None:
            self.show(lines)
            boxes = list(self._cursors)
        said: queue.Queue[_Said] = queue.Queue(WAITING)
        for box in boxes:
            after = self._cursors.get(box, 0) if not new else None
            # Daemon threads: the end of the command waits for no box.
            threading.Thread(target=self._read, args=(box, after, said), daemon=True).start()
        left, code = set(boxes), None
        while left:
            box, what = said.get()
            if isinstance(what, ClisupError):
                left.discard(box)
                if box != HERE or what.kind != "daemon_not_running":
                    print_failure(box, what)
                    code = code or what.exit_code
            elif what is None:
                left.discard(box)
            elif box in left and (error := self._shown(box, what)) is not None:
                left.discard(box)
                print_failure(box, error)
        return code or EXIT_NOT_RUNNING

    def _shown(self, box: str, event: Event) -> ClisupError | None:
        """Print the event. Return the error of a box that sends what is no event."""
        try:
            checked_event(event)
        except MALFORMED:
            return malformed(box)
        self._printer.print({"box": box, **event})
        return None

    def _stored(self, box: str, client: Client) -> Iterator[Event]:
        try:
            for event in stored_of_all(client, raw=self._raw):
                checked_event(event)
                self._cursors[box][event["session_id"]] = int(event.get("seq") or event["to_seq"])
                yield {"box": box, **event}
        except ClisupError as error:
            self._failed[box] = error
        except MALFORMED:
            self._failed[box] = malformed(box)

    def _read(self, box: str, after: int | dict[str, int] | None, said: queue.Queue[_Said]) -> None:
        options: JsonObject = {"raw": self._raw, "deltas": self._deltas}
        try:
            with self._opening:
                opened = Follower(path_of(box), "*", after, options=options, name=_NAME)
            with opened as events:
                events.on_lost = lambda: _note(box, "connection lost; trying again")
                events.on_back = lambda: _note(box, "connected again")
                for event in events:
                    said.put((box, event))
            said.put((box, None))
        except ClisupError as error:
            said.put((box, error))
        except MALFORMED:
            said.put((box, malformed(box)))


def _note(box: str, text: str) -> None:
    print(Ink(sys.stderr)("dim", plain(f"[{box}: {text}]")), file=sys.stderr)
