"""The answer of a turn on stdout. A terminal gets text as it comes; a pipe gets only what the CLI has confirmed.

Deltas can be taken back by the CLI (a cut stream, a retry); a `message` never is. So a pipe, which cannot forget what it was
given, is fed from messages alone, and a terminal is told where text that it shows does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["WITHDRAWN", "Answer"]

WITHDRAWN = "[text withdrawn by the CLI]"
_Event = dict[str, Any]


class Answer:
    """Fed with the events of one turn. `write` takes text for stdout, `note` a line for stderr, `fetch` gives a blob whole."""

    def __init__(
        self,
        write: Callable[[str], None],
        note: Callable[[str], None],
        fetch: Callable[[str], bytes],
        *,
        stream: bool,
    ) -> None:
        self._write, self._note, self._fetch, self._stream = write, note, fetch, stream
        self._pending: dict[str | None, str] = {}
        self._last = "\n"
        self._empty = True
        self._message: str | None = None
        self._aside = ""

    def take(self, event: _Event) -> None:
        """Show what the event adds to the answer. The text of subagents is not part of it."""
        if event.get("parent_tool_use_id"):
            return
        if event["type"] in ("content_delta", "message"):
            self._tell_aside()
        match event["type"]:
            case "content_delta" if event["kind"] == "text" and self._stream:
                self._delta(event)
            case "message":
                self._confirm(event)
            case "retracted":
                self._withdraw(event.get("message_id"))
            case "turn_completed":
                self._finish(event)

    def end_line(self) -> None:
        """What comes beside the answer begins on a line of its own."""
        if self._last != "\n":
            self._put("\n")

    def _delta(self, event: _Event) -> None:
        id_, text = event.get("message_id"), self._whole(event)
        self._begin(id_)
        self._pending[id_] = self._pending.get(id_, "") + text
        self._put(text)

    def _confirm(self, event: _Event) -> None:
        """The message is right: show what the deltas did not, or say that they were wrong."""
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

    def _withdraw(self, id_: str | None) -> None:
        if self._pending.pop(id_, ""):
            self.end_line()
            self._note(WITHDRAWN)

    def _finish(self, event: _Event) -> None:
        """Text that no message ever confirmed does not count; an answer that no message brought is in the turn's end."""
        for id_ in list(self._pending):
            self._withdraw(id_)
        if self._aside.strip() == ((event.get("error") or {}).get("message") or "").strip():
            self._aside = ""  # who shows the end says it as the error
        self._tell_aside()
        if self._empty and event["outcome"] == "completed":
            self._put(self._whole(event))
        self.end_line()

    def _tell_aside(self) -> None:
        """Show what the CLI itself said in the model's place. It is never part of the answer."""
        text, self._aside = self._aside, ""
        if text:
            self.end_line()
            self._note(text)

    def _begin(self, id_: str | None) -> None:
        """Each message begins on a line of its own."""
        if id_ != self._message:
            self.end_line()
            self._message = id_

    def _put(self, text: str) -> None:
        if text:
            self._write(text)
            self._last = text[-1]
            self._empty = False

    def _whole(self, part: _Event) -> str:
        if part.get("blob"):
            return self._fetch(part["blob"]).decode("utf-8", "replace")
        return str(part.get("text") or "")
