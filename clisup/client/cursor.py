"""What a follower was given already: a seq for one session, a map of them for all sessions. Pure.

It is what a client says when it comes back, and what keeps an event that is sent twice from being given twice. Where the
daemon begins may lie behind it (a durable cursor that was not acknowledged up to here), never before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["ALL", "Cursor"]

ALL = "*"
"""The session of a subscription to all of them."""


class Cursor:
    """`session_id` may be `ALL`; `after_seq` is where to begin, as `session/subscribe` takes it."""

    def __init__(self, session_id: str, after_seq: int | Mapping[str, int] | None) -> None:
        self.session_id = session_id
        self._asked = after_seq
        self._given: dict[str, int] = {}
        self._opened = False

    @property
    def value(self) -> int | dict[str, int] | None:
        """The last seq given, of each session for all; None for "from now on" while nothing says when that is."""
        if self._opened:
            return dict(self._given) if self.session_id == ALL else self._given[self.session_id]
        return dict(self._asked) if isinstance(self._asked, Mapping) else self._asked

    def params(self) -> dict[str, Any]:
        """What the next `session/subscribe` is to say. A session that the map leaves out is given from its first event."""
        after = self.value
        return {"session_id": self.session_id} | ({} if after is None else {"after_seq": after})

    def opened(self, answer: Mapping[str, Any]) -> None:
        """The answer to `session/subscribe`: it says where "from now on", or a durable cursor, begins."""
        begins = answer["cursors"] if self.session_id == ALL else {self.session_id: answer["after_seq"]}
        for session_id, seq in begins.items():
            self._given[session_id] = max(int(seq), self._given.get(session_id, 0))
        self._opened = True

    def advance(self, event: Mapping[str, Any]) -> bool:
        """Move on to this event, or over this gap; false for what was given before."""
        seq = int(event["to_seq"] if event["type"] == "gap" else event["seq"])
        session_id = event["session_id"]
        if seq <= self._given.get(session_id, 0):
            return False
        self._given[session_id] = seq
        return True
