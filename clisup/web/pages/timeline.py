"""Page of the timeline: one lane for each recent session."""

from __future__ import annotations

import time
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response

from clisup.client.raw import JsonObject
from clisup.web.link import PageLink
from clisup.web.pages.session import MOST_EVENTS, stored_events
from clisup.web.pages.site import page_of, shown, site_of
from clisup.web.views.conversation import WINDOW_SEQS
from clisup.web.views.timeline import EVENTS, KINDS, MARKS, SPANS, LaneReader, lane_of, ticks_of, window_of

__all__ = ["MOST_LANES", "timeline"]

MOST_LANES = 20
"""Sessions on the page at most, the ones with the newest events."""

LANE_SEQS = 4000
"""Events that one lane looks at, at most. The lane of a single session looks at `WINDOW_SEQS`."""


@shown
async def timeline(request: Request) -> Response:
    """Show the lanes of a span of time, of all sessions or of one."""
    link, asked = site_of(request).link, request.query_params
    name = asked.get("span", "")
    name = name if name in SPANS else next(iter(SPANS))
    only = asked.get("session", "")[:64]
    if only:
        rows, seqs = [await link.call("session/get", session_id=only)], WINDOW_SEQS
    else:
        rows, seqs = (await link.call("daemon/status"))["sessions"], LANE_SEQS
    now = time.time()
    recent = sorted(
        (row for row in rows if only or _last(row, now) > now - SPANS[name]),
        key=lambda row: _last(row, now),
        reverse=True,
    )
    read = [(row, *await _read(link, row, seqs)) for row in recent[:MOST_LANES]]
    begins = [reader.first for _, reader, _ in read if reader.first is not None]
    window = window_of(name, now, min(begins, default=None))
    lanes = [lane_of(row, reader, window, whole=whole) for row, reader, whole in read]
    return page_of(
        request, "timeline.html", title="Timeline", lanes=lanes, more=max(0, len(recent) - MOST_LANES), ticks=ticks_of(window),
        now_x=window.part(window.now), span=name, spans=list(SPANS), only=only, kinds=KINDS, marks=MARKS,
    )  # fmt: skip


async def _read(link: PageLink, row: JsonObject, seqs: int) -> tuple[LaneReader, bool]:
    """Read the last events of a session. Return the reader, and whether these are all."""
    last = int(row["next_seq"]) - 1
    after = max(int(row["first_seq"]) - 1, last - seqs, 0)
    events = await stored_events(link, row["session_id"], after, last, EVENTS)
    return LaneReader(events), after == 0 and len(events) < MOST_EVENTS


def _last(row: JsonObject, now: float) -> float:
    """Return the time of the newest event of a session; for a running turn, now."""
    if row.get("turn_id"):
        return now
    return datetime.fromisoformat(row["last_event"]["ts"]).timestamp() if row.get("last_event") else 0.0
