"""Stored events by page: of one session, or of all sessions by time."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any

from clisup.cli.lookup import all_sessions
from clisup.client.sync import Client
from clisup.errors import ClisupError

__all__ = ["by_time", "stored", "stored_of_all"]

PAGE = 500
HELD = 20_000
"""Limit of events of all sessions together in memory, while they are merged."""

_LEAST_PAGE = 10
_Event = dict[str, Any]


def stored(client: Client, session_id: str, raw: bool, page_size: int = PAGE) -> Iterator[_Event]:
    """Yield the stored events of a session. Dicts of type `gap` report missing events."""
    after = 0
    while True:
        page = client.call("session/events", session_id=session_id, after_seq=after, limit=page_size, raw=raw)
        yield from _with_gaps(session_id, page)
        if page["eof"] or page["next_seq"] - 1 <= after:
            return
        after = page["next_seq"] - 1


def stored_of_all(client: Client, raw: bool) -> Iterator[_Event]:
    """Yield the stored events of every session, closed ones too, by time. Events of one session keep their order."""
    ids = [s["session_id"] for s in (*all_sessions(client), *all_sessions(client, state="closed"))]
    page_size = min(PAGE, max(_LEAST_PAGE, HELD // max(1, len(ids))))
    return by_time(stored(client, session_id, raw, page_size) for session_id in ids)


def by_time(histories: Iterable[Iterable[_Event]]) -> Iterator[_Event]:
    """Merge the events of several sessions by time. Events of one session keep their order."""
    return (event for _, event in heapq.merge(*map(_dated, histories), key=lambda dated: dated[0]))


def _with_gaps(session_id: str, page: dict[str, Any]) -> list[_Event]:
    gaps = [{"type": "gap", "session_id": session_id, **gap} for gap in page.get("gaps") or ()]
    return sorted([*gaps, *page["events"]], key=lambda event: int(event.get("seq") or event["from_seq"]))


def _dated(events: Iterable[_Event]) -> Iterator[tuple[str, _Event]]:
    """Yield each event with its time; a gap has the time of the event before it. A session deleted meanwhile ends."""
    ts = ""
    try:
        for event in events:
            ts = event.get("ts") or ts
            yield ts, event
    except ClisupError as error:
        if error.kind != "session_not_found":
            raise
