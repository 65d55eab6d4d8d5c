"""Page of the cost of all sessions or of one, and its stream."""

from __future__ import annotations

from functools import partial

import trio
from starlette.requests import Request
from starlette.responses import Response

from clisup.cli.status.command import budget_words
from clisup.cli.views.terminal import plain, session_name
from clisup.client.raw import JsonObject
from clisup.errors import ClisupError, UsageError
from clisup.web.cost_book import LIVE_S, MOST_SESSIONS, CostBook, today
from clisup.web.pages.now import live_answer
from clisup.web.pages.site import page_of, render, root_of, shown, site_of
from clisup.web.stream import LiveMessage
from clisup.web.views.cost import budgets_of, cost_view, usd_limit

__all__ = ["FIRST_S", "cost", "cost_stream"]

FIRST_S = 2.0
"""Seconds for which a page reads journals. The stream reads the rest."""

REST_S = 60.0
"""Seconds for which a stream reads journals before it sends what there is."""


@shown
async def cost(request: Request) -> Response:
    """Show the cost by day, backend and model: of all sessions, or of `?session=ID`."""
    book, session_id = site_of(request).link.costs, request.query_params.get("session", "")
    await book.refresh(FIRST_S, session_id)
    return page_of(request, "cost.html", title="Cost", **_values(book, session_id))


async def cost_stream(request: Request) -> Response:
    """Send the sums again after each change."""
    book, session_id = site_of(request).link.costs, request.query_params.get("session", "")
    return live_answer(request, partial(_follow, book, root_of(request), session_id))


async def _follow(book: CostBook, root: str, session_id: str, messages: trio.MemorySendChannel[LiveMessage]) -> None:
    """Send the sums after each change. The stream ends if the daemon stays away; the page then connects again."""
    sent = ""
    try:
        while True:
            await book.refresh(REST_S, session_id)
            if (html := render("cost_live.html", root=root, **_values(book, session_id))) != sent:
                await messages.send(LiveMessage(html))
                sent = html
            await trio.sleep(LIVE_S)
    except ClisupError:
        return


def _values(book: CostBook, session_id: str) -> JsonObject:
    common = {"session": session_id, "unread": book.unread, "left_out": MOST_SESSIONS if book.more else 0}
    if not session_id:
        view, budgets = cost_view(book.spending.values(), today()), budgets_of(book.rows.values())
        return {**common, "about": "", "budget": "", "view": view, "budgets": budgets}
    if (row := book.rows.get(session_id)) is None:
        raise UsageError("no such session", kind="session_not_found", hint="see all: /cost")
    own = [book.spending[session_id]] if session_id in book.spending else []
    view = cost_view(own, today(), grows=True, limit=usd_limit(row))
    about = session_name(row.get("title"), session_id)
    return {
        **common,
        "about": about,
        "budget": plain(budget_words(row.get("budget")) or ""),
        "view": view,
        "budgets": [],
    }
