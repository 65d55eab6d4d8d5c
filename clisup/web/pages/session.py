"""Page of one session, its stream by seq, and stored payloads."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator
from functools import partial

import trio
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from clisup.client.options import given
from clisup.client.raw import JsonObject
from clisup.client.reconnect import new_key
from clisup.errors import ClisupError
from clisup.web.link import PageLink
from clisup.web.pages.now import live_answer
from clisup.web.pages.site import page_of, render, root_of, shown, site_of
from clisup.web.stream import LiveMessage
from clisup.web.views.conversation import EVENTS, WARM_SEQS, WINDOW_SEQS, Piece, PieceReader, last_pieces
from clisup.web.views.head import head_of

__all__ = ["blob", "session", "session_stream", "stored_events"]

MOST_EVENTS = 5000
"""Events that one page reads at most."""

BATCH_BYTES = 64 * 1024
"""Bytes of one message of the stream. More events wait for the next message."""

WRITING_S = 0.25
"""Least seconds between two looks at the unfinished text."""

MOST_BLOB_BYTES = 64 * 1024 * 1024
"""Bytes of a stored payload that a page shows at most."""


@shown
async def session(request: Request) -> Response:
    """Show the end of a conversation, or the part before the event `before`."""
    link, session_id = site_of(request).link, request.path_params["session_id"]
    row = await link.call("session/get", session_id=session_id)
    before = _number(request.query_params.get("before")) or int(row["next_seq"])
    end = min(before, int(row["next_seq"])) - 1
    events = await stored_events(link, session_id, max(0, end - WINDOW_SEQS), end, EVENTS)
    pieces, cut = last_pieces(events)
    first = pieces[0].seq if pieces else 0
    earlier = first if pieces and (cut or end > WINDOW_SEQS) else 0
    return page_of(
        request, "session.html", title=head_of(row).title, head=head_of(row), pieces=_marked(pieces), seq=end,
        earlier=earlier, live=before >= int(row["next_seq"]), key=new_key(),
    )  # fmt: skip


async def session_stream(request: Request) -> Response:
    """Send what comes after the page. `Last-Event-ID` is the seq up to which the page is complete."""
    last = _number(request.headers.get("last-event-id")) or _number(request.query_params.get("after"))
    return live_answer(
        request, partial(_follow, (site_of(request).link, root_of(request)), request.path_params["session_id"], last)
    )


async def _follow(
    of: tuple[PageLink, str], session_id: str, after: int, messages: trio.MemorySendChannel[LiveMessage]
) -> None:
    """Send the pieces of new events, each once. The stream ends if the daemon stays away; the page then connects again."""
    (link, root), conversation = of, PieceReader()
    send = partial(_send, messages, root, session_id)
    try:
        for event in await stored_events(link, session_id, max(0, after - WARM_SEQS), after, None):
            conversation.take(event)
        client = await link.client()
        async with client.subscribe(session_id, after, types=[*EVENTS, "content_delta"], deltas=True) as follower:
            await send([], conversation, await _head(link, session_id), after)
            async for event in follower:
                batch = [event]
                pieces = conversation.take(event)
                while follower.at_hand and sum(len(piece.html) for piece in pieces) < BATCH_BYTES:
                    batch.append(await anext(follower))
                    pieces += conversation.take(batch[-1])
                only_text = all(event["type"] == "content_delta" for event in batch)
                head = None if only_text else await _head(link, session_id)
                await send(pieces, conversation, head, int(batch[-1].get("seq") or batch[-1]["to_seq"]))
                if only_text:
                    await trio.sleep(WRITING_S)
    except (ClisupError, StopAsyncIteration):
        return


async def _head(link: PageLink, session_id: str) -> JsonObject:
    row: JsonObject = await link.call("session/get", session_id=session_id)
    return row


async def _send(
    messages: trio.MemorySendChannel[LiveMessage],
    root: str,
    session_id: str,
    pieces: list[Piece],
    conversation: PieceReader,
    row: JsonObject | None,
    seq: int,
) -> None:
    head = None if row is None else head_of(row)
    values = {"pieces": _marked(pieces), "writing": conversation.writing, "head": head}
    html = render("session_live.html", root=root, session_id=session_id, **values)
    await messages.send(LiveMessage(html, str(seq)))


async def stored_events(
    link: PageLink, session_id: str, after: int, end: int, types: list[str] | None
) -> list[JsonObject]:
    """Return the last stored events after a seq and up to `end`, at most `MOST_EVENTS`, with gaps."""
    found: list[JsonObject] = []
    while after < end:
        page = await link.call("session/events", **given({"session_id": session_id, "after_seq": after, "types": types,
                                                          "limit": 1000}))  # fmt: skip
        gaps = [{"type": "gap", "session_id": session_id, **gap} for gap in page.get("gaps") or ()]
        found += sorted([*gaps, *page["events"]], key=lambda event: int(event.get("seq") or event["from_seq"]))
        if page["eof"] or page["next_seq"] - 1 <= after:
            break
        after = page["next_seq"] - 1
    return [event for event in found if int(event.get("seq") or event["from_seq"]) <= end][-MOST_EVENTS:]


@shown
async def blob(request: Request) -> Response:
    """Send a stored payload as plain text."""
    link, session_id = site_of(request).link, request.path_params["session_id"]
    name = request.path_params["blob"]
    first = await link.call("session/blob", session_id=session_id, blob=name, offset=0)

    async def pieces() -> AsyncIterator[bytes]:
        page, offset = first, 0
        while True:
            data = b64decode(page["data_base64"])
            yield data
            offset += len(data)
            if page["eof"] or not data or offset >= MOST_BLOB_BYTES:
                return
            page = await link.call("session/blob", session_id=session_id, blob=name, offset=offset)

    return StreamingResponse(pieces(), media_type="text/plain; charset=utf-8")


def _marked(pieces: list[Piece]) -> list[Piece]:
    return [piece._replace(html=Markup(piece.html)) for piece in pieces]  # escaped by the renderer of `clisup export`


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 16 else 0
