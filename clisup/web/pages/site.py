"""Parts that all pages share: templates, the visitor, errors, and what a role may do."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

import trio
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from clisup.cli.views.terminal import plain
from clisup.client.failures import AWAY
from clisup.errors import ClisupError
from clisup.web.access.guard import SentForm, Visitor, read_form
from clisup.web.access.rules import Role, allows
from clisup.web.boxes import BoxLinks
from clisup.web.link import PageLink
from clisup.web.push.delivery import PushSender

if TYPE_CHECKING:
    from clisup.web.access.tokens import TokenBook

__all__ = [
    "Handler",
    "Site",
    "may",
    "page_of",
    "posted",
    "refusal_page",
    "render",
    "root_of",
    "shown",
    "site_of",
    "unknown_browser",
    "visitor_of",
]

Handler = Callable[[Request], Awaitable[Response]]
_templates = Environment(
    loader=PackageLoader("clisup.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_templates.filters["plain"] = plain
_STATUS = {"session_not_found": 404, "approval_not_found": 404, "approval_already_resolved": 409, "session_closed": 409,
           "invalid_params": 400, "overloaded": 503}  # fmt: skip


class Site(NamedTuple):
    """Objects that the handlers use."""

    link: PageLink
    book: TokenBook
    streams: trio.CapacityLimiter
    boxes: BoxLinks
    push: PushSender


def site_of(request: Request) -> Site:
    """Return the site of a request. Below a box, `link` is that of the box. Raises `UsageError(box_unknown)`."""
    site = request.app.state.site
    assert isinstance(site, Site)
    box = request.path_params.get("box")
    return site if box is None else site._replace(link=site.boxes.link(box))


def visitor_of(request: Request) -> Visitor:
    """Return who asks. The guard has refused requests without a visitor."""
    visitor = request.scope["visitor"]
    assert isinstance(visitor, Visitor)
    return visitor


def may(request: Request, needed: Role) -> bool:
    """Tell whether the visitor has the role."""
    return allows(visitor_of(request).token.role, needed)


def root_of(request: Request) -> str:
    """Return what stands before the paths of this daemon's pages: "" for this machine, else that of a box."""
    return str(request.scope.get("root_path") or "")


def render(name: str, *, root: str = "", **values: object) -> str:
    """Return a template filled in. Values are escaped. `root` stands before all paths of pages."""
    return _templates.get_template(name).render(root=root, **values)


def page_of(request: Request, name: str, status: int = 200, **values: object) -> Response:
    """Return a page for the visitor."""
    visitor = visitor_of(request)
    can = {role: allows(visitor.token.role, role) for role in ("observe", "approve", "drive")}
    box = request.path_params.get("box", "")
    html = render(
        name,
        root=root_of(request),
        box=box,
        path=request.url.path,
        can=can,
        form_token=visitor.form_token,
        token=visitor.token,
        **values,
    )
    return HTMLResponse(html, status)


def unknown_browser(scope: object) -> Response:
    """Return the page for a browser that is not signed in.

    A visit from another site comes without the cookie (SameSite=Strict). Then the page loads itself again, from here.
    """
    headers = dict(scope["headers"])  # type: ignore[index]
    again = headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site") and scope["method"] == "GET"  # type: ignore[index]
    return HTMLResponse(render("signed_out.html", again=again, reason=""), 401)


def shown(handler: Handler) -> Handler:
    """Turn a refusal of the daemon into a page."""

    @functools.wraps(handler)
    async def show(request: Request) -> Response:
        try:
            return await handler(request)
        except ClisupError as error:
            return refusal_page(request, error)

    return show


def refusal_page(request: Request, error: ClisupError) -> Response:
    """Return the page for a refusal of the daemon."""
    away = error.kind in AWAY
    status = 503 if away else _STATUS.get(error.kind, 400)
    return page_of(request, "refused.html", status, title="Not possible", error=error, away=away)


def posted(role: Role) -> Callable[[Callable[[Request, SentForm], Awaitable[Response]]], Handler]:
    """Make a handler of a sent form: the role, the size and the form token are checked first."""

    def wrap(handler: Callable[[Request, SentForm], Awaitable[Response]]) -> Handler:
        @functools.wraps(handler)
        async def act(request: Request) -> Response:
            if not may(request, role):
                return PlainTextResponse(f"refused: this needs the role {role}\n", 403)
            form = await read_form(request)
            return form if isinstance(form, Response) else await handler(request, form)

        return shown(act)

    return wrap
