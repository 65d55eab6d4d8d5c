"""Page of the accounts and their rate limits, and its stream."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response

from clisup.cli.views.terminal import duration
from clisup.client.raw import JsonObject
from clisup.web.link import PageLink
from clisup.web.pages.now import live_cards
from clisup.web.pages.site import page_of, shown, site_of
from clisup.web.views.accounts import account_cards

__all__ = ["accounts", "accounts_stream"]


@shown
async def accounts(request: Request) -> Response:
    """Show the accounts."""
    link = site_of(request).link
    await link.refresh()
    return page_of(request, "accounts.html", title="Accounts", **await _values(link))


async def accounts_stream(request: Request) -> Response:
    """Send the accounts again as the time runs, and after each change."""
    return live_cards(request, "account_cards.html", _values)


async def _values(link: PageLink) -> JsonObject:
    listed = await link.call("account/list")
    cards = account_cards(link.board.status.get("accounts") or (), listed["accounts"], link.board.sessions, time.time())
    return {"cards": cards, "hold": duration(listed["limit_hold_s"]) if listed["limit_hold_s"] else ""}
