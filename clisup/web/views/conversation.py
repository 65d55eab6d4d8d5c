"""Conversation of a session: its events as pieces of HTML, each with the seq of its event. Pure.

The page and its stream use the same class. The stream begins some events earlier and drops what the page has, so that a
reader sees each piece once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from clisup.cli.export.page import part_html
from clisup.cli.export.session_parts import SessionParts
from clisup.cli.views.terminal import plain
from clisup.client.raw import JsonObject

__all__ = ["EVENTS", "MOST_PIECES", "OUTPUT_BYTES", "WARM_SEQS", "WINDOW_SEQS", "Piece", "PieceReader", "last_pieces"]

EVENTS = [
    "prompt_accepted", "turn_started", "retracted", "message", "tool_use", "tool_result", "turn_completed", "rate_limit",
    "permission_denied", "approval_resolved", "retry", "watchdog", "notice", "task", "session_forked", "session_seeded",
]  # fmt: skip
"""Types of events that a page shows. A stream also takes `content_delta`."""

MOST_PIECES = 400
"""Pieces on a page at most. Older ones are behind a link."""

OUTPUT_BYTES = 16 * 1024
"""Bytes of one tool call or result at most. A link leads to the stored rest."""

WINDOW_SEQS = 20_000
"""Events that a page looks at, at most."""

WARM_SEQS = 2000
"""Events before its cursor that a stream reads again, for the names of open tool calls and an unfinished message."""

_WRITING_CHARS = 4000


class Piece(NamedTuple):
    """HTML of an event, `key` unique in the session. `blobs` name stored payloads that the HTML shows only in part."""

    seq: int
    key: str
    html: str
    blobs: tuple[str, ...]


class PieceReader:
    """Reader of the events of one session in order. `writing` is the unfinished text of the model."""

    def __init__(self) -> None:
        self._parts = SessionParts(lambda _blob, _limit: (b"", 0), OUTPUT_BYTES)
        self._message: str | None = None
        self.writing = ""

    def take(self, event: JsonObject) -> list[Piece]:
        """Return the pieces of an event."""
        self._write(event)
        seq = int(event.get("seq") or event.get("to_seq") or 0)
        blobs = _blobs(event)
        parts = self._parts.parts([event])
        return [
            Piece(seq, f"e{seq}-{number}", part_html(part), blobs if number == 0 else ())
            for number, part in enumerate(parts)
        ]

    def _write(self, event: JsonObject) -> None:
        """Collect the text of a message that is not whole yet."""
        kind = event["type"]
        if kind == "content_delta" and event.get("kind") == "text" and not event.get("parent_tool_use_id"):
            if event.get("message_id") != self._message:
                self._message, self.writing = event.get("message_id"), ""
            self.writing = (self.writing + plain(str(event.get("text") or "")))[-_WRITING_CHARS:]
        elif kind in ("turn_completed", "retracted") or (kind == "message" and not event.get("parent_tool_use_id")):
            self._message, self.writing = None, ""


def last_pieces(events: Iterable[JsonObject]) -> tuple[list[Piece], bool]:
    """Return the last `MOST_PIECES` pieces, and whether there are earlier ones."""
    conversation = PieceReader()
    kept: deque[Piece] = deque(maxlen=MOST_PIECES)
    count = 0
    for event in events:
        pieces = conversation.take(event)
        kept.extend(pieces)
        count += len(pieces)
    return list(kept), count > len(kept)


def _blobs(event: JsonObject) -> tuple[str, ...]:
    blocks = [block for block in event.get("blocks") or () if isinstance(block, dict)]
    return tuple(str(blob) for blob in (event.get("blob"), *(block.get("blob") for block in blocks)) if blob)
