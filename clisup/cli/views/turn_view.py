"""A turn's events for a person: the answer's text, and a line for each thing beside it that is worth one."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from clisup.cli.views.answer import Answer
from clisup.cli.views.event_lines import words
from clisup.cli.views.terminal import Ink, clip, plain
from clisup.client.sync import Client

__all__ = ["Screen", "Showing", "Shows"]

_Event = dict[str, Any]
_ASIDE = {
    "tool_use": "tool",
    "permission_denied": "denied",
    "approval_resolved": "approval",
    "retry": "retry",
    "watchdog": "watchdog",
    "stderr": "stderr",
    "rate_limit": "rate limit",
    "task": "task",
    "notice": "notice",
    "unparsed": "unparsed",
    "gap": "gap",
}


class Shows(Protocol):
    """Where an answer and what is beside it go."""

    tty: bool

    def write(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...


class Screen:
    """stdout for the answer, stderr for all the rest."""

    def __init__(self) -> None:
        self.tty = sys.stdout.isatty()
        self._ink = Ink(sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]

    def write(self, text: str) -> None:
        """A piece of the answer, at once. A pipe gets it as it is; a terminal gets no control characters."""
        sys.stdout.write(plain(text) if self.tty else text)
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """A line beside the answer."""
        print(self._ink("dim", plain(text)), file=sys.stderr, flush=True)


class Showing:
    """Fed with the events of one turn of a session; texts that are too large for their events are fetched as `name`."""

    def __init__(self, path: str, session_id: str, screen: Shows, *, name: str) -> None:
        self._path, self._session_id, self._screen, self._name = path, session_id, screen, name
        self._answer = Answer(screen.write, screen.note, self._fetch, stream=screen.tty)

    def take(self, event: _Event) -> None:
        """Show what the event adds."""
        self._beside(event)
        self._answer.take(event)

    def note(self, text: str) -> None:
        """A line beside the answer: what is open of that is ended first, for both may go to the same place."""
        self._answer.end_line()
        self._screen.note(text)

    def _beside(self, event: _Event) -> None:
        """What is worth a line on stderr."""
        kind = event["type"]
        quiet = kind == "rate_limit" and str(event["status"]).startswith("allowed")
        if kind in _ASIDE and not quiet and not event.get("parent_tool_use_id"):
            self.note(f"{_ASIDE[kind]}: {words(event)}")
        elif kind == "tool_result" and event.get("is_error"):
            self.note(f"tool failed: {words(event)}")
        elif kind == "tool_result" and event.get("content") and not event.get("parent_tool_use_id"):
            self.note(f"  -> {clip(event['content'], 100)}")

    def _fetch(self, blob: str) -> bytes:
        with Client.connect(self._path, name=self._name) as client:
            return client.blob(self._session_id, blob)
