"""Page of all sessions, and its stream."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import trio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from clisup.client.raw import JsonObject
from clisup.errors import ClisupError
from clisup.web.link import PageLink
from clisup.web.pages.push import push_values
from clisup.web.pages.site import page_of, render, root_of, shown, site_of, visitor_of
from clisup.web.stream import LiveMessage, LiveStream
from clisup.web.views.now import groups_of

__all__ = ["live_answer", "live_cards", "now", "now_stream"]


@shown
async def now(request: Request) -> Response:
    """Show the cards of all sessions."""
    link = site_of(request).link
    await link.refresh()
    others = [] if root_of(request) else await site_of(request).boxes.views()
    return page_of(request, "now.html", title="Now", boxes=others, **push_values(request), **await _values(link))


async def now_stream(request: Request) -> Response:
    """Send the cards again after each change."""
    return live_cards(request, "now_cards.html", _values)


def live_cards(request: Request, template: str, values: Callable[[PageLink], Awaitable[JsonObject]]) -> Response:
    """Return a stream that sends the cards after each change.

    The stream ends if the daemon stays away; the page then connects again.
    """
    link, root = site_of(request).link, root_of(request)

    async def follow(messages: trio.MemorySendChannel[LiveMessage]) -> None:
        seen, sent = -1, ""
        try:
            while True:
                await link.next_version(seen)
                seen = link.version
                if (html := render(template, root=root, **await values(link))) != sent:
                    await messages.send(LiveMessage(html))
                    sent = html
        except ClisupError:
            return

    return live_answer(request, follow)


def live_answer(request: Request, run: object) -> Response:
    """Return a stream, or a refusal if too many pages are live."""
    site = site_of(request)
    if site.streams.available_tokens < 1:
        return PlainTextResponse("too many live pages\n", 503)

    async def counted(messages: trio.MemorySendChannel[LiveMessage]) -> None:
        async with site.streams:
            await run(messages)  # type: ignore[operator]

    return LiveStream(counted, visitor_of(request))


async def _values(link: PageLink) -> JsonObject:
    groups = groups_of(link.board, link.said, time.monotonic())
    waiting = sum(card.approvals for group in groups for card in group.cards)
    return {"groups": groups, "waiting": waiting, "connected": link.board.connected}
