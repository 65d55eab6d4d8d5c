"""Page of a session's context, and the question to its CLI."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from clisup.client.raw import JsonObject
from clisup.web.access.guard import SentForm
from clisup.web.pages.session import stored_events
from clisup.web.pages.site import page_of, posted, shown, site_of, visitor_of
from clisup.web.views.context import EVENTS, gauge_of, series_of
from clisup.web.views.conversation import WINDOW_SEQS
from clisup.web.views.head import head_of

__all__ = ["ask", "context"]


@shown
async def context(request: Request) -> Response:
    """Show the context by the events of the session."""
    return await _page(request, None)


@posted("drive")
async def ask(request: Request, form: SentForm) -> Response:
    """Ask the live CLI for its own count, and show it. The journal gets a notice, so a look at the page does not ask."""
    async with site_of(request).link.acting(visitor_of(request).token) as client:
        usage = await client.call("session/context_usage", session_id=request.path_params["session_id"])
    return await _page(request, usage)


async def _page(request: Request, usage: JsonObject | None) -> Response:
    link, session_id = site_of(request).link, request.path_params["session_id"]
    row = await link.call("session/get", session_id=session_id)
    last = int(row["next_seq"]) - 1
    events = await stored_events(link, session_id, max(0, last - WINDOW_SEQS), last, EVENTS)
    series = series_of(events)
    return page_of(
        request, "context.html", title="Context", head=head_of(row), gauge=gauge_of(usage, series), series=series,
        can_ask=bool(row.get("live")),
    )  # fmt: skip
