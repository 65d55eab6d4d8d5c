"""The ASGI application: paths of all pages, behind the guard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from clisup.errors import ClisupError
from clisup.http.addresses import Addresses
from clisup.web.access.guard import Guard
from clisup.web.access.tokens import TokenBook
from clisup.web.boxes import BoxLinks
from clisup.web.link import PageLink
from clisup.web.pages import (
    accounts,
    actions,
    approvals,
    context,
    cost,
    login,
    now,
    processes,
    push,
    session,
    timeline,
)
from clisup.web.pages.site import Site, refusal_page, unknown_browser
from clisup.web.push.delivery import PushSender
from clisup.web.stream import MOST_STREAMS

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["make_app"]

_SESSION = "/sessions/{session_id}"
_APPROVAL = "/approvals/{session_id}/{approval_id}"


class _Static(StaticFiles):
    """Vendored files have their version in the name. Others are asked for again."""

    def file_response(self, *args: object, **settings: object) -> Response:
        answer = super().file_response(*args, **settings)  # type: ignore[arg-type]
        vendored = "/vendor/" in str(args[0])
        answer.headers["cache-control"] = "max-age=31536000, immutable" if vendored else "no-cache"
        if args[0] and str(args[0]).endswith("/worker.js"):
            answer.headers["service-worker-allowed"] = "/"  # the pages are above its folder
        return answer


def _pages() -> list[BaseRoute]:
    """Return the pages of one daemon."""
    return [
        Route("/", now.now),
        Route("/live", now.now_stream),
        Route("/approvals", approvals.approvals, methods=["GET"]),
        Route("/approvals", approvals.answer_several, methods=["POST"]),
        Route("/approvals/live", approvals.approvals_stream),
        Route(_APPROVAL, approvals.approval, methods=["GET"]),
        Route(_APPROVAL, approvals.answer, methods=["POST"]),
        Route("/timeline", timeline.timeline),
        Route("/cost", cost.cost),
        Route("/cost/live", cost.cost_stream),
        Route("/accounts", accounts.accounts),
        Route("/accounts/live", accounts.accounts_stream),
        Route("/sessions/new", actions.new, methods=["GET"]),
        Route("/sessions/new", actions.create, methods=["POST"]),
        Route(_SESSION, session.session),
        Route(f"{_SESSION}/live", session.session_stream),
        Route(f"{_SESSION}/blobs/{{blob}}", session.blob),
        Route(f"{_SESSION}/processes", processes.processes),
        Route(f"{_SESSION}/context", context.context, methods=["GET"]),
        Route(f"{_SESSION}/context", context.ask, methods=["POST"]),
        Route(f"{_SESSION}/prompt", actions.prompt, methods=["POST"]),
        Route(f"{_SESSION}/interrupt", actions.interrupt, methods=["POST"]),
        Route(f"{_SESSION}/close", actions.close, methods=["POST"]),
    ]


def make_app(link: PageLink, book: TokenBook, place: Addresses, boxes: BoxLinks, sender: PushSender) -> ASGIApp:
    """Return the application. `link` and `boxes` must run beside it."""
    app = Starlette(
        routes=[
            *_pages(),
            Mount("/boxes/{box}", routes=_pages()),
            Route("/login", login.login, methods=["GET"]),
            Route("/login", login.redeem, methods=["POST"]),
            Route("/logout", login.logout, methods=["POST"]),
            Route("/push", push.push, methods=["POST"]),
            Mount("/static", _Static(packages=[("clisup.web", "static")])),
        ],
        exception_handlers={Exception: _failed, ClisupError: _refused},
    )
    app.state.site = Site(link, book, trio.CapacityLimiter(MOST_STREAMS), boxes, sender)
    return Guard(app, book, place, unknown_browser)


async def _refused(request: Request, error: Exception) -> Response:
    """Answer for a live page that cannot begin."""
    assert isinstance(error, ClisupError)
    return refusal_page(request, error)


async def _failed(request: Request, error: Exception) -> Response:
    return Response("the page failed; the log of clisup web says more\n", 500, media_type="text/plain")
