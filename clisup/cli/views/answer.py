"""Events of a turn for a person: the answer on stdout, and a line on stderr for each notable event beside it.

The CLI can take deltas back (a cut stream, a retry), but never a `message`. So a pipe gets text only from messages. A
terminal gets deltas as they come, and a note where the shown text was withdrawn.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from clisup.cli.views.diffs import diff_lines
from clisup.cli.views.events import Event, steered_words, words
from clisup.cli.views.markdown import AnswerText
from clisup.cli.views.progress import StatusLine
from clisup.cli.views.terminal import Ink, clip, plain
from clisup.client.sync import Client
from clisup.errors import ClisupError

__all__ = ["UNFINISHED", "WITHDRAWN", "Output", "Screen", "TurnView", "blob_reader", "cost_reader", "diff_line"]

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


_AFTER_A_MESSAGE = ("message", "message_stop", "usage", "status", "rate_limit", "process_exited", "turn_completed")
"""Events that may come between the last message and the end of a failed turn."""


class Output(Protocol):
    """Place for an answer and the notes beside it."""

    tty: bool

    def write(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def diff(self, lines: list[str]) -> None: ...

    def end_message(self) -> None: ...

    def withdraw(self) -> bool: ...


class Screen:
    """Standard streams: stdout for the answer, stderr for the notes.

    A terminal gets Markdown, block by block. A pipe gets the text unchanged.
    """

    def __init__(self) -> None:
        self.tty = sys.stdout.isatty()
        self.status: StatusLine | None = None
        self._ink = Ink(sys.stderr)
        self._text = AnswerText(sys.stdout)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]

    def write(self, text: str) -> None:
        """Write a piece of the answer. A pipe gets it at once, a terminal as soon as a block of Markdown is complete."""
        self._put(self._text.feed(text))

    def note(self, text: str) -> None:
        """Print a line beside the answer."""
        self.end_message()
        self._print(self._ink("dim", plain(text)))

    def diff(self, lines: list[str]) -> None:
        """Print the lines of a diff beside the answer."""
        self._print("\n".join(diff_line(self._ink, line) for line in lines))

    def end_message(self) -> None:
        """Draw the rest of a message."""
        self._put(self._text.finish())

    def withdraw(self) -> bool:
        """Drop the text that is not drawn yet. Return whether other text of the message was shown."""
        return self._text.withdraw()

    def _put(self, text: str) -> None:
        if not text:
            return
        with self._aside():
            sys.stdout.write(text)
            sys.stdout.flush()
            if self.status is not None:
                # Another program may print what a pipe holds on this terminal, where the status line would hide it.
                self.status.at_start = text.endswith("\n") and self.tty

    def _print(self, text: str) -> None:
        with self._aside():
            print(text, file=sys.stderr, flush=True)

    def _aside(self) -> AbstractContextManager[None]:
        return self.status.aside() if self.status is not None else nullcontext()


def diff_line(ink: Ink, line: str) -> str:
    """Return a line of a diff in its colour, without control characters."""
    style = {"+": "green", "-": "red"}.get(line[:1], "dim")
    return ink(style, f"  {plain(line)}")


def blob_reader(path: str, session_id: str, name: str) -> Callable[[str], bytes]:
    """Return a function that fetches a payload of the session by its blob, with a client called `name`."""

    def fetch(blob: str) -> bytes:
        with Client.connect(path, name=name) as client:
            return client.blob(session_id, blob)

    return fetch


def cost_reader(path: str, session_id: str, name: str) -> Callable[[str], float | None]:
    """Return a function that fetches the cost of a running turn so far. It returns None if the daemon is away or has no cost."""

    def fetch(turn_id: str) -> float | None:
        try:
            with Client.connect(path, name=name) as client:
                about = client.call("session/get", session_id=session_id)
        except ClisupError:
            return None
        return about.get("turn_cost_usd") if about.get("turn_id") == turn_id else None

    return fetch


class TurnView:
    """View of one turn, fed with its events: the answer, and a note for each notable event beside it.

    `fetch` returns the whole of a text that is stored outside its event. `thinking`: show what the model thinks, too.
    """

    def __init__(self, output: Output, fetch: Callable[[str], bytes], *, thinking: bool = False) -> None:
        self._output, self._fetch, self._thinking = output, fetch, thinking
        self._pending: dict[str | None, str] = {}
        self._last = "\n"
        self._empty = self._was_empty = True  # `_was_empty`: before the message that is shown now
        self._message: str | None = None
        self._aside = ""
        self._unsure: tuple[str | None, str] | None = None  # last message for a pipe: it may be the words of a failure
        self.told_stderr = False

    def take(self, event: Event) -> None:
        """Show the event. Text of subagents is not part of the answer."""
        if event.get("parent_tool_use_id"):
            if event["type"] == "tool_result" and event.get("is_error"):
                self.note(f"tool failed: {words(event)}")
            return
        if event["type"] not in _AFTER_A_MESSAGE:
            self._put_unsure()
        self._beside(event)
        if event["type"] in ("content_delta", "message"):
            self._note_aside()
        match event["type"]:
            case "content_delta" if event["kind"] == "text" and self._output.tty:
                self._delta(event)
            case "message":
                self._put_unsure()
                self._confirm(event)
            case "retracted":
                self._withdraw(event.get("message_id"))
            case "turn_completed":
                self._finish(event)

    def note(self, text: str) -> None:
        """Print a line beside the answer. End the answer's open line first: both may go to the same terminal."""
        self._put_unsure()
        self._end_line()
        self._output.note(text)

    def _beside(self, event: Event) -> None:
        kind = event["type"]
        self.told_stderr = self.told_stderr or kind == "stderr"
        if kind == "prompt_accepted" and (steered := steered_words(event)):
            if (event.get("actor") or {}).get("pid") != os.getpid():  # this terminal shows what was typed here
                self.note(f"steered: {clip(steered, 400)}")
        elif kind in _LABELS and not (kind == "rate_limit" and str(event["status"]).startswith("allowed")):
            self.note(f"{_LABELS[kind]}: {words(event)}")
            if kind == "tool_use" and self._output.tty and (lines := diff_lines(event)):
                self._output.diff(lines)
        elif kind == "message" and self._thinking:
            for block in event.get("blocks") or ():
                if block["kind"] == "thinking" and (text := self._whole(block).strip()):
                    self.note(f"thinking: {text}")
        elif kind == "tool_result" and event.get("is_error"):
            self.note(f"tool failed: {words(event)}")
        elif kind == "tool_result" and event.get("content"):
            self.note(f"  -> {clip(event['content'], 100)}")

    def _end_line(self) -> None:
        if self._last != "\n":
            self._put("\n")
        self._output.end_message()

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
        if self._output.tty:
            self._begin(id_)
            self._put(text[len(shown) :])
        else:
            self._unsure = id_, text

    def _withdraw(self, id_: str | None) -> None:
        if not self._pending.pop(id_, ""):
            return
        if self._output.withdraw():
            self.note(WITHDRAWN)
        else:
            self._last, self._empty = "\n", self._was_empty

    def _finish(self, event: Event) -> None:
        """End the answer, with a note on text that no message confirmed. Show an answer that only the turn's end holds."""
        error = ((event.get("error") or {}).get("message") or "").strip()
        if self._unsure is not None and error and self._unsure[1].strip() == error:
            self._unsure = None  # the CLI gave its failure as a message; the error says the same
        self._put_unsure()
        for id_ in list(self._pending):
            if event["outcome"] == "completed":
                self._withdraw(id_)
            elif self._pending.pop(id_):
                self.note(UNFINISHED)
        if self._aside.strip() == error:
            self._aside = ""  # the error message repeats the text
        self._note_aside()
        if self._empty and event["outcome"] == "completed":
            self._put(self._whole(event))
        self._end_line()

    def flush(self) -> None:
        """Show what is held back: no more events come."""
        self._put_unsure()
        self._end_line()

    def _put_unsure(self) -> None:
        unsure, self._unsure = self._unsure, None
        if unsure is not None:
            self._begin(unsure[0])
            self._put(unsure[1])

    def _note_aside(self) -> None:
        """Show text of the CLI in place of the model, which is never part of the answer."""
        text, self._aside = self._aside, ""
        if text:
            self.note(text)

    def _begin(self, id_: str | None) -> None:
        """Begin each message on its own line."""
        if id_ != self._message:
            self._end_line()
            self._message, self._was_empty = id_, self._empty

    def _put(self, text: str) -> None:
        if text:
            self._output.write(text)
            self._last = text[-1]
            self._empty = False

    def _whole(self, part: Event) -> str:
        if part.get("blob"):
            return self._fetch(part["blob"]).decode("utf-8", "replace")
        return str(part.get("text") or "")
