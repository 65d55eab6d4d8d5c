"""Answer of a job: the end of its turn, read from its box, or from the copy while the box is away."""

from __future__ import annotations

import os

from clisup.client.raw import JsonObject, RawClient
from clisup.errors import ClisupError
from clisup.locations import socket_for_client

__all__ = ["end_of"]


def end_of(session: str) -> JsonObject | None:
    """Return the `turn_completed` of a session BOX/ID, or None if neither box nor copy can be read here."""
    box, _, id_ = session.partition("/")
    path = socket_for_client({**os.environ, "CLISUP_ON": box}, os.getuid())
    try:
        with RawClient.connect(path, name="clisup-job") as client:
            page = client.call("session/events", session_id=id_, types=["turn_completed"], limit=1)
    except ClisupError:
        return None
    events: list[JsonObject] = page["events"]
    return events[0] if events else None
