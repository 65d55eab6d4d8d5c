"""Envelope of an event and its notification: their bytes, made once, and their format of times. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from clisup.model.events import EventBase

FRAME_BEGIN = b'{"jsonrpc":"2.0","method":"session/event","params":'
FRAME_END = b"}\n"
"""Bytes around an envelope in its notification."""
_encode = msgspec.json.Encoder().encode
_DEEPEST = 100  # a reader of JSON takes about 1,000 levels


class Envelopes:
    """Encoder of the notifications of one session at one time.

    The bytes are made once, stored once, and sent unchanged to every client. `session_id`, `ts`, `turn_id` and `source`
    are the daemon's own and hold no character that JSON escapes. The common parts of a batch are formatted once.
    """

    __slots__ = ("_begin", "_heads", "_ts")

    def __init__(self, session_id: str, ts: str) -> None:
        self._begin = FRAME_BEGIN + f'{{"session_id":"{session_id}","seq":'.encode()
        self._ts = ts
        self._heads: dict[tuple[str | None, str], bytes] = {}

    def frame(self, event: EventBase, seq: int, turn_id: str | None, source: str) -> bytes:
        """Return the notification of one event, newline included. The event's `type` comes first after the head."""
        body = encoded(event)
        head = self._heads.get((turn_id, source)) or self._head(turn_id, source)
        return b"%b%d%b%b}\n" % (self._begin, seq, head, body[1:])

    def _head(self, turn_id: str | None, source: str) -> bytes:
        turn = f'"{turn_id}"' if turn_id else "null"
        head = f',"ts":"{self._ts}","turn_id":{turn},"source":"{source}",'.encode()
        self._heads[turn_id, source] = head
        return head


def encoded(value: Any) -> bytes:
    """Return JSON. What JSON cannot hold becomes what `writable` makes of it."""
    try:
        return _encode(value)
    except (UnicodeEncodeError, RecursionError):
        return _encode(writable(value))


def writable(value: Any, depth: int = 0) -> Any:
    """Return a value that JSON can hold: half a surrogate pair becomes `?`, values deeper than `_DEEPEST` become a
    short note.

    The CLI's own line still has all of it (`raw: true`).
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Struct):
        fields = {name: writable(getattr(value, name), depth + 1) for name in value.__struct_fields__}
        return type(value)(**fields)
    if isinstance(value, dict | list | tuple) and depth >= _DEEPEST:
        return "[nested too deeply]"
    if isinstance(value, dict):
        return {writable(key): writable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(writable(item, depth + 1) for item in value)
    return value


def rfc3339(seconds: float | None, *, timespec: str = "auto") -> str | None:
    """Return seconds since the epoch as RFC 3339 in UTC. Return None for None, or for a time outside the calendar."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return None
