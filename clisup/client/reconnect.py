"""Rules for reconnecting after the daemon was killed or restarted: how long, how often, and from which event on.

Both clients follow these rules. Nothing here waits or sends.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from clisup.client.failures import AWAY, ConnectionLost
from clisup.client.raw import JsonObject
from clisup.errors import ClisupError, UsageError, WorldError

__all__ = [
    "ALL",
    "HANG_UPS",
    "RECONNECT_S",
    "RETRY_PAUSE_S",
    "FollowCursor",
    "Repeats",
    "ack_params",
    "gone",
    "may_come_back",
    "new_key",
    "pause_after",
    "stays_away",
]

RECONNECT_S = 30.0
"""Seconds for which clients wait for the daemon. A restart takes less, with 500 running sessions too."""

RETRY_PAUSE_S = 0.1
BOX_PAUSE_S = 1.0
HANG_UPS = 5
"""Number of times that one request is sent to a daemon that ends the connection each time."""

ALL = "*"
"""The session id of a subscription to all sessions."""


def may_come_back(error: ClisupError) -> bool:
    """Tell whether a daemon that is restarting fails like this."""
    return error.kind in (*AWAY, "fleet_away", "shutting_down", "overloaded")


def stays_away(error: ClisupError) -> bool:
    """Tell whether the daemon was never there, or did not come back within `RECONNECT_S`."""
    return error.kind in AWAY and not isinstance(error, ConnectionLost)


def gone(last: ClisupError, first: ClisupError) -> ClisupError:
    """Return the error for a daemon that was lost with `first` and did not come back."""
    message = f"{first.message}, and it did not come back within {RECONNECT_S:g} s"
    kind = last.kind if last.kind in AWAY else "daemon_not_running"
    return WorldError(message, kind=kind, hint=last.hint, **given_box(last))


def given_box(error: ClisupError) -> JsonObject:
    """Return the name of the box in an error, as fields of another error."""
    return {"box": error.data["box"]} if "box" in error.data else {}


def pause_after(error: ClisupError) -> float:
    """Return the seconds before the next attempt. Each attempt at a box is an ssh of its own."""
    return BOX_PAUSE_S if error.kind == "box_away" else RETRY_PAUSE_S


def new_key() -> str:
    """Return a key that no other prompt has."""
    from uuid import uuid4

    return str(uuid4())


class Repeats:
    """Limit on repeating one request.

    A request is not repeated once the same daemon has ended the connection `HANG_UPS` times in a row, each time within
    `RECONNECT_S`, or has refused the request for `RECONNECT_S`. A restarted daemon counts as another one. A connection
    that stood for longer was not ended by this request.
    """

    def __init__(self) -> None:
        self._instance: object = None
        self._began = 0.0
        self._hang_ups = 0
        self._refused_at: float | None = None  # the first refusal in a row

    def begin(self) -> None:
        """Note that the request is sent now."""
        self._began = time.monotonic()

    def spent(self, error: ClisupError, server: JsonObject) -> bool:
        """Tell whether `error` was the last permitted failure. `server` is how the daemon introduced itself."""
        instance = server.get("server", {}).get("instance_id")
        hung_up = isinstance(error, ConnectionLost) and time.monotonic() - self._began <= RECONNECT_S
        self._hang_ups = hung_up + (self._hang_ups if hung_up and instance == self._instance else 0)
        self._refused_at = self._refused_since(error, instance)
        self._instance = instance
        refused = self._refused_at is not None and time.monotonic() - self._refused_at > RECONNECT_S
        return refused or self._hang_ups >= HANG_UPS

    def _refused_since(self, error: ClisupError, instance: object) -> float | None:
        if isinstance(error, ConnectionLost):
            return None
        again = self._refused_at is not None and instance == self._instance
        return self._refused_at if again else time.monotonic()


class FollowCursor:
    """Last event given to the caller: a seq for one session, a map of seqs for `ALL`.

    A reconnecting client sends this cursor, and drops events that come twice. The daemon may begin before the cursor (at a
    durable cursor that was not acknowledged up to here), never after it. `after_seq` is the beginning, as in
    `session/subscribe`.
    """

    def __init__(self, session_id: str, after_seq: int | Mapping[str, int] | None) -> None:
        self.session_id = session_id
        self._asked = after_seq
        self._given: dict[str, int] = {}
        self._opened = False

    @property
    def value(self) -> int | dict[str, int] | None:
        """The last seq given, or a map of them. None means "from now on", as long as the daemon has not said when that is."""
        if self._opened:
            return dict(self._given) if self.session_id == ALL else self._given[self.session_id]
        return dict(self._asked) if isinstance(self._asked, Mapping) else self._asked

    def params(self) -> JsonObject:
        """Return params for the next `session/subscribe`. A session missing in the map begins with its first event."""
        after = self.value
        return {"session_id": self.session_id} | ({} if after is None else {"after_seq": after})

    def opened(self, answer: Mapping[str, Any]) -> None:
        """Take the answer to `session/subscribe`: the seq of "from now on", or of a durable cursor."""
        begins = answer["cursors"] if self.session_id == ALL else {self.session_id: answer["after_seq"]}
        for session_id, seq in begins.items():
            self._given[session_id] = max(int(seq), self._given.get(session_id, 0))
        self._opened = True

    def advance(self, event: Mapping[str, Any]) -> bool:
        """Move to this event or past this gap. Return False for an event that was given before.

        A gap with the reason `rewound` begins the session again: its box lost the end of the journal.
        """
        seq = int(event["to_seq"] if event["type"] == "gap" else event["seq"])
        session_id = event["session_id"]
        if event["type"] == "gap" and event.get("reason") == "rewound":
            self._given[session_id] = 0  # the session begins again, with the same seqs
            return True
        if seq <= self._given.get(session_id, 0):
            return False
        self._given[session_id] = seq
        return True


def ack_params(name: str | None, event: Mapping[str, Any]) -> JsonObject:
    """Return the params of `session/ack` for an event or a gap. Raise `UsageError(invalid_params)` without a name."""
    if name is None:
        raise UsageError(
            "cannot acknowledge an event, because this subscription has no name",
            hint="follow with name=...: that is the durable cursor which an acknowledgement moves",
            param="name",
        )
    seq = event["to_seq"] if event["type"] == "gap" else event["seq"]
    return {"name": name, "session_id": event["session_id"], "seq": seq}
