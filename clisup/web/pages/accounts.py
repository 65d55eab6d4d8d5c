"""Page of the accounts and their rate limits, and its stream."""

from __future__ import annotations

import time
from functools import partial

import trio
from starlette.requests import Request
from starlette.responses import Response

from clisup.cli.views.terminal import duration
from clisup.client.raw import JsonObject
from clisup.errors import ClisupError
from clisup.web.link import PageLink
from clisup.web.pages.now import live_answer
from clisup.web.pages.site import page_of, render, root_of, shown, site_of
from clisup.web.stream import LiveMessage
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
    return live_answer(request, partial(_follow, site_of(request).link, root_of(request)))


async def _follow(link: PageLink, root: str, messages: trio.MemorySendChannel[LiveMessage]) -> None:
    """Send the cards after each change. The stream ends if the daemon stays away; the page then connects again."""
    seen, sent = -1, ""
    try:
        while True:
            if seen >= 0:
                await link.next_version(seen)
            seen = link.version
            if (html := render("account_cards.html", root=root, **await _values(link))) != sent:
                await messages.send(LiveMessage(html))
                sent = html
    except ClisupError:
        return


async def _values(link: PageLink) -> JsonObject:
    listed = await link.call("account/list")
    cards = account_cards(link.board.status.get("accounts") or (), listed["accounts"], link.board.sessions, time.time())
    return {"cards": cards, "hold": duration(listed["limit_hold_s"]) if listed["limit_hold_s"] else ""}
