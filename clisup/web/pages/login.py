"""Signing in by a link that works once, and signing out."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from clisup.errors import ClisupError
from clisup.web.access.guard import SentForm, cookie_header, signed_out_cookie
from clisup.web.access.tokens import TOKEN_S
from clisup.web.pages.site import posted, render, site_of, visitor_of

__all__ = ["login", "logout"]


async def login(request: Request) -> Response:
    """Use up the link. The answer is a page and no redirect: the browser sends the cookie with a visit from a page of ours."""
    try:
        found = site_of(request).book.redeem(request.query_params.get("code", ""))
    except ClisupError as error:
        return HTMLResponse(render("signed_out.html", again=False, reason=error.message), 503)
    if found is None:
        reason = "This link is unknown, old or used."
        return HTMLResponse(render("signed_out.html", again=False, reason=reason), 401)
    secret, token = found
    answer = HTMLResponse(render("signed_in.html", token=token))
    answer.headers["set-cookie"] = cookie_header(secret, TOKEN_S, secure=bool(request.scope["secure"]))
    return answer


@posted("observe")
async def logout(request: Request, form: SentForm) -> Response:
    """Revoke the token of this browser."""
    site_of(request).book.revoke(visitor_of(request).token.id)
    answer = RedirectResponse("/", 303)
    answer.headers["set-cookie"] = signed_out_cookie(secure=bool(request.scope["secure"]))
    return answer
