"""A followed session's events as lines: a time, a word and what it says; and the text that is still being written. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from clisup.cli.views.event_lines import words
from clisup.cli.views.terminal import clip

__all__ = ["BACK", "LINE", "Piece", "Tail", "pieces", "start_after"]

BACK = 2000
"""Events before now that a follower begins with, pieces of text included."""

LINE = 600
"""Characters of one event's line."""

_KEPT = 4000
_ALARMS = ("permission_denied", "watchdog", "retry", "unparsed", "gap", "retracted", "stderr")
_TONES = {
    "message": "text",
    "tool_use": "tool",
    "tool_result": "tool",
    "turn_started": "turn",
    "turn_completed": "turn",
    "approval_requested": "asking",
    "approval_resolved": "asking",
} | dict.fromkeys(_ALARMS, "alarm")
_UNSAID = ("message_start", "message_stop", "status", "usage")
Piece = tuple[str, str]
_Event = dict[str, Any]


def start_after(session: _Event) -> int:
    """The seq after which to begin, from the session's summary."""
    return max(int(session["next_seq"]) - 1 - BACK, int(session["first_seq"]) - 1, 0)


def pieces(event: _Event) -> list[Piece]:
    """`12:34:56  tool_use  Bash ls` as pieces with tones; none for events that only frame others (clisup logs has them)."""
    kind = str(event["type"])
    if kind in _UNSAID:
        return []
    bad = event.get("error") or event.get("is_error")
    said = f"pid {event['pid']}" if kind == "process_started" else clip(words(event), LINE)
    return [
        (f"{_time(event.get('ts'))}  ", "dim"),
        (f"{clip(kind, 18):<18}  ", "dim" if kind not in _TONES and not bad else "strong"),
        (said, "bad" if bad else _TONES.get(kind, "note")),
    ]


def _time(ts: str | None) -> str:
    return datetime.fromisoformat(ts).astimezone().strftime("%H:%M:%S") if ts else "--:--:--"


class Tail:
    """The text of the message that is being written, until the whole message comes."""

    def __init__(self) -> None:
        self._text = ""

    def take(self, event: _Event) -> bool:
        """True for a piece of text, which is kept; anything that ends the message forgets it."""
        if event["type"] == "content_delta":
            if event.get("kind") == "text":
                self._text = (self._text + str(event.get("text") or ""))[-_KEPT:]
            return True
        if event["type"] in ("message", "message_start", "retracted", "turn_completed"):
            self._text = ""
        return False

    def shown(self, width: int) -> str:
        """The end of it, on one line of at most `width` characters."""
        line = clip(self._text, _KEPT)
        return line if len(line) <= width else "…" + line[-(width - 1) :]
