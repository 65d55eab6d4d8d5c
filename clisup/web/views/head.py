"""Head of a session's page: what it is, what it does, and which actions are possible now. Pure."""

from __future__ import annotations

from typing import NamedTuple

from clisup.cli.export.facts import head_facts
from clisup.cli.export.parts import SessionHead
from clisup.cli.status.columns import status_of
from clisup.cli.views.terminal import plain, session_name
from clisup.client.raw import JsonObject

__all__ = ["Head", "head_of"]


class Head(NamedTuple):
    """Session at the top of its page. `queued` are the turns that wait in its queue."""

    session_id: str
    title: str
    status: str
    tone: str
    facts: list[tuple[str, str]]
    running: bool
    closed: bool
    approvals: int
    queued: list[str]


def head_of(row: JsonObject) -> Head:
    """Return the head for a row of `session/get`."""
    status, tone = status_of(row)
    return Head(
        str(row["session_id"]),
        session_name(row.get("title"), row["session_id"], 120),
        plain(status),
        tone,
        [(name, value) for name, value in head_facts(SessionHead(row, ""))],
        bool(row.get("turn_id")),
        row.get("state") == "closed",
        int(row.get("approvals") or 0),
        [str(item["turn_id"]) for item in row.get("queue") or ()],
    )
