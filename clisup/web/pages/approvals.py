"""Pages of pending approvals, their stream, and the answers."""

from __future__ import annotations

import json
from functools import partial

import trio
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from clisup.cli.views.form import FormError
from clisup.client.aio import AsyncClient
from clisup.client.answers import settled
from clisup.client.raw import JsonObject
from clisup.errors import ClisupError, UsageError
from clisup.web.access.guard import SentForm
from clisup.web.link import PageLink
from clisup.web.pages.now import live_answer
from clisup.web.pages.site import may, page_of, posted, render, root_of, shown, site_of, visitor_of
from clisup.web.stream import LiveMessage
from clisup.web.views.asking import AskedApproval, answer_to, ask_key, ask_of

__all__ = ["answer", "answer_several", "approval", "approvals", "approvals_stream"]

MOST_SHOWN = 50
"""Approvals on the page at most, oldest first."""

_PICK = "\n"


@shown
async def approvals(request: Request) -> Response:
    """Show all pending approvals as forms."""
    board = await site_of(request).link.refresh()
    pending = list(board.approvals.values())
    asks = [await _ask(site_of(request).link, one) for one in pending[:MOST_SHOWN]]
    return page_of(
        request, "approvals.html", title="Approvals", asks=asks, more=max(0, len(pending) - MOST_SHOWN), single=False
    )


@shown
async def approval(request: Request) -> Response:
    """Show one approval. This is the address in a notification."""
    link, key = site_of(request).link, _key(request)
    board = await link.refresh()
    asks = [await _ask(link, board.approvals[key])] if key in board.approvals else []
    status = 200 if asks else 404
    return page_of(request, "approvals.html", status, title="Approval", asks=asks, more=0, single=True)


@posted("approve")
async def answer(request: Request, form: SentForm) -> Response:
    """Send the answer of one form. Another client may have been first: that is shown, and is no error of this page."""
    link = site_of(request).link
    session_id, approval_id = _key(request)
    asked = next((one for one in (await link.refresh()).approvals.values()
                  if (one["session_id"], one["approval_id"]) == (session_id, approval_id)), None)  # fmt: skip
    if asked is None:
        raise UsageError("this approval is answered already", kind="approval_already_resolved")
    whole = await _whole(link, asked)
    try:
        params = answer_to(whole, form.get, form.all)
    except FormError as error:
        values = {"asks": [_view(whole)], "more": 0, "single": True, "problem": str(error)}
        return page_of(request, "approvals.html", 400, title="Approval", **values)
    async with link.acting(visitor_of(request).token) as client:
        await client.call("approval/respond", session_id=session_id, approval_id=approval_id, **params)
    return RedirectResponse(f"{root_of(request)}/approvals", 303)


@posted("approve")
async def answer_several(request: Request, form: SentForm) -> Response:
    """Allow or deny all chosen tool calls. Questions have forms of their own, and are left out."""
    link, decision = site_of(request).link, form.get("decision")
    if decision not in ("allow", "deny"):
        raise UsageError("choose allow or deny", kind="invalid_params")
    board = await link.refresh()
    chosen = set(form.all("pick"))
    wanted = [one for one in board.approvals.values() if ask_key(one) in chosen]
    async with link.acting(visitor_of(request).token) as client:
        for one in wanted:
            if decision == "deny" or ask_of(one).kind == "tool":
                await _settle(client, one, decision)
    return RedirectResponse(f"{root_of(request)}/approvals", 303)


async def approvals_stream(request: Request) -> Response:
    """Send new approvals as forms, and remove answered ones. Forms on the page are left alone while a person types."""
    known = [key for key in request.query_params.get("shown", "").split(",") if key]
    values = {
        "can": {"approve": may(request, "approve")},
        "form_token": visitor_of(request).form_token,
        "single": False,
        "root": root_of(request),
    }
    return live_answer(request, partial(_follow, site_of(request).link, set(known), values))


async def _follow(
    link: PageLink, shown_keys: set[str], values: JsonObject, messages: trio.MemorySendChannel[LiveMessage]
) -> None:
    seen = -1
    while True:
        await link.next_version(seen)
        seen = link.version
        if not link.board.connected:
            continue
        pending = {ask_key(one): one for one in list(link.board.approvals.values())[:MOST_SHOWN]}
        gone = shown_keys - pending.keys()
        new = [await _ask(link, one) for key, one in pending.items() if key not in shown_keys]
        if gone or new:
            shown_keys = set(pending)
            html = render("approvals_live.html", gone=sorted(gone), asks=new, empty=not pending, **values)
            await messages.send(LiveMessage(html))


def _key(request: Request) -> tuple[str, str]:
    return request.path_params["session_id"], request.path_params["approval_id"]


async def _settle(client: AsyncClient, asked: JsonObject, decision: str) -> None:
    try:
        await client.call(
            "approval/respond", session_id=asked["session_id"], approval_id=asked["approval_id"], decision=decision
        )
    except ClisupError as error:
        if not settled(error):
            raise


async def _ask(link: PageLink, asked: JsonObject) -> AskedApproval:
    return _view(await _whole(link, asked))


def _view(asked: JsonObject) -> AskedApproval:
    ask = ask_of(asked)
    return ask._replace(body=Markup(ask.body))  # escaped by the renderer of `clisup export`


async def _whole(link: PageLink, asked: JsonObject) -> JsonObject:
    """Return the approval with its whole input, if the stored rest is there."""
    if not asked.get("blob"):
        return asked
    try:
        whole = json.loads(await (await link.client()).blob(asked["session_id"], asked["blob"]))
    except (ClisupError, ValueError, RecursionError):
        return asked
    return {**asked, "input": whole, "blob": None} if isinstance(whole, dict) else asked
