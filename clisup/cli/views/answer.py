"""Events of a turn for a person: the answer on stdout, and a line on stderr for each notable event beside it.

The CLI can take deltas back (a cut stream, a retry), but never a `message`. So a pipe gets text only from messages. A
terminal gets deltas as they come, and a note where the shown text was withdrawn.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

from clisup.cli.views.events import Event, words
from clisup.cli.views.terminal import Ink, clip, plain
from clisup.client.sync import Client

__all__ = ["UNFINISHED", "WITHDRAWN", "Output", "Screen", "TurnView", "blob_reader"]

WITHDRAWN = "[text withdrawn by the CLI]"
UNFINISHED = "[unfinished: the turn ended before the CLI had sent all of this text]"
_LABELS = {
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


class Output(Protocol):
    """Place for an answer and the notes beside it."""

    tty: bool

    def write(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...


class Screen:
    """Standard streams: stdout for the answer, stderr for the notes."""

    def __init__(self) -> None:
        self.tty = sys.stdout.isatty()
        self._ink = Ink(sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]

    def write(self, text: str) -> None:
        """Write a piece of the answer at once. A pipe gets it unchanged, a terminal without control characters."""
        sys.stdout.write(plain(text) if self.tty else text)
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Print a line beside the answer."""
        print(self._ink("dim", plain(text)), file=sys.stderr, flush=True)


def blob_reader(path: str, session_id: str, name: str) -> Callable[[str], bytes]:
    """Return a function that fetches a payload of the session by its blob, with a client called `name`."""

    def fetch(blob: str) -> bytes:
        with Client.connect(path, name=name) as client:
            return client.blob(session_id, blob)

    return fetch


class TurnView:
    """View of one turn, fed with its events: the answer, and a note for each notable event beside it.

    `fetch` returns the whole of a text that is stored outside its event.
    """

    def __init__(self, output: Output, fetch: Callable[[str], bytes]) -> None:
        self._output, self._fetch = output, fetch
        self._pending: dict[str | None, str] = {}
        self._last = "\n"
        self._empty = True
        self._message: str | None = None
        self._aside = ""

    def take(self, event: Event) -> None:
        """Show the event. Text of subagents is not part of the answer."""
        if event.get("parent_tool_use_id"):
            if event["type"] == "tool_result" and event.get("is_error"):
                self.note(f"tool failed: {words(event)}")
            return
        self._beside(event)
        if event["type"] in ("content_delta", "message"):
            self._note_aside()
        match event["type"]:
            case "content_delta" if event["kind"] == "text" and self._output.tty:
                self._delta(event)
            case "message":
                self._confirm(event)
            case "retracted":
                self._withdraw(event.get("message_id"))
            case "turn_completed":
                self._finish(event)

    def note(self, text: str) -> None:
        """Print a line beside the answer. End the answer's open line first: both may go to the same terminal."""
        self._end_line()
        self._output.note(text)

    def _beside(self, event: Event) -> None:
        kind = event["type"]
        if kind in _LABELS and not (kind == "rate_limit" and str(event["status"]).startswith("allowed")):
            self.note(f"{_LABELS[kind]}: {words(event)}")
        elif kind == "tool_result" and event.get("is_error"):
            self.note(f"tool failed: {words(event)}")
        elif kind == "tool_result" and event.get("content"):
            self.note(f"  -> {clip(event['content'], 100)}")

    def _end_line(self) -> None:
        if self._last != "\n":
            self._put("\n")

    def _delta(self, event: Event) -> None:
        id_, text = event.get("message_id"), self._whole(event)
        self._begin(id_)
        self._pending[id_] = self._pending.get(id_, "") + text
        self._put(text)

    def _confirm(self, event: Event) -> None:
        """Show the part of a message that its deltas did not show, or withdraw wrong deltas."""
        text = "".join(self._whole(block) for block in event.get("blocks") or () if block["kind"] == "text")
        if event.get("synthetic"):
            self._aside = text
            return
        id_ = event.get("message_id")
        shown = self._pending.get(id_, "")
        if shown.startswith(text):
            self._pending[id_] = shown[len(text) :]
            return
        if not text.startswith(shown):
            self._withdraw(id_)
            shown = ""
        self._pending.pop(id_, None)
        self._begin(id_)
        self._put(text[len(shown) :])

    def _withdraw(self, id_: str | None, note: str = WITHDRAWN) -> None:
        if self._pending.pop(id_, ""):
            self.note(note)

    def _finish(self, event: Event) -> None:
        """End the answer, with a note on text that no message confirmed. Show an answer that only the turn's end holds."""
        for id_ in list(self._pending):
            self._withdraw(id_, WITHDRAWN if event["outcome"] == "completed" else UNFINISHED)
        if self._aside.strip() == ((event.get("error") or {}).get("message") or "").strip():
            self._aside = ""  # the error message repeats the text
        self._note_aside()
        if self._empty and event["outcome"] == "completed":
            self._put(self._whole(event))
        self._end_line()

    def _note_aside(self) -> None:
        """Show text of the CLI in place of the model, which is never part of the answer."""
        text, self._aside = self._aside, ""
        if text:
            self.note(text)

    def _begin(self, id_: str | None) -> None:
        """Begin each message on its own line."""
        if id_ != self._message:
            self._end_line()
            self._message = id_

    def _put(self, text: str) -> None:
        if text:
            self._output.write(text)
            self._last = text[-1]
            self._empty = False

    def _whole(self, part: Event) -> str:
        if part.get("blob"):
            return self._fetch(part["blob"]).decode("utf-8", "replace")
        return str(part.get("text") or "")
