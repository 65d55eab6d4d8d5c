"""Page of all sessions, and its stream."""

from __future__ import annotations

import time
from functools import partial

import trio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from clisup.client.raw import JsonObject
from clisup.web.link import PageLink
from clisup.web.pages.push import push_values
from clisup.web.pages.site import page_of, render, root_of, shown, site_of, visitor_of
from clisup.web.stream import LiveMessage, LiveStream
from clisup.web.views.now import groups_of

__all__ = ["live_answer", "now", "now_stream"]


@shown
async def now(request: Request) -> Response:
    """Show the cards of all sessions."""
    link = site_of(request).link
    await link.refresh()
    others = [] if root_of(request) else await site_of(request).boxes.views()
    return page_of(request, "now.html", title="Now", boxes=others, **push_values(request), **_values(link))


async def now_stream(request: Request) -> Response:
    """Send the cards again after each change."""
    return live_answer(request, partial(_follow, site_of(request).link, root_of(request)))


def live_answer(request: Request, run: object) -> Response:
    """Return a stream, or a refusal if too many pages are live."""
    site = site_of(request)
    if site.streams.available_tokens < 1:
        return PlainTextResponse("too many live pages\n", 503)

    async def counted(messages: trio.MemorySendChannel[LiveMessage]) -> None:
        async with site.streams:
            await run(messages)  # type: ignore[operator]

    return LiveStream(counted, visitor_of(request))


async def _follow(link: PageLink, root: str, messages: trio.MemorySendChannel[LiveMessage]) -> None:
    seen, sent = -1, ""
    while True:
        if seen >= 0:
            await link.next_version(seen)
        seen = link.version
        html = render("now_cards.html", root=root, **_values(link))
        if html != sent:
            await messages.send(LiveMessage(html))
            sent = html


def _values(link: PageLink) -> JsonObject:
    groups = groups_of(link.board, link.said, time.monotonic())
    waiting = sum(card.approvals for group in groups for card in group.cards)
    return {"groups": groups, "waiting": waiting, "connected": link.board.connected}
