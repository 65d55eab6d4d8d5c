"""Signing in by a link that works once, and signing out.

Previews and scanners of a chat or a mail load links. So the link shows a button alone, and the POST of the button uses it up.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from clisup.errors import ClisupError
from clisup.web.access.guard import SentForm, cookie_header, read_fields, signed_out_cookie
from clisup.web.access.tokens import TOKEN_S
from clisup.web.pages.site import posted, render, site_of, visitor_of

__all__ = ["login", "logout", "redeem"]


async def login(request: Request) -> Response:
    """Show the button of a link, and change nothing."""
    code = request.query_params.get("code", "")
    link = site_of(request).book.link(code)
    return _unknown() if link is None else HTMLResponse(render("sign_in.html", code=code, link=link))


async def redeem(request: Request) -> Response:
    """Use up the link. The guard has checked that the form is one of ours."""
    form = await read_fields(request)
    if isinstance(form, Response):
        return form
    try:
        found = site_of(request).book.redeem(form.get("code"))
    except ClisupError as error:
        return HTMLResponse(render("signed_out.html", again=False, reason=error.message), 503)
    if found is None:
        return _unknown()
    secret, token = found
    answer = HTMLResponse(render("signed_in.html", token=token))
    answer.headers["set-cookie"] = cookie_header(secret, TOKEN_S, secure=bool(request.scope["secure"]))
    return answer


def _unknown() -> Response:
    return HTMLResponse(render("signed_out.html", again=False, reason="This link is unknown, old or used."), 401)


@posted("observe")
async def logout(request: Request, form: SentForm) -> Response:
    """Revoke the token of this browser."""
    site_of(request).book.revoke(visitor_of(request).token.id)
    answer = RedirectResponse("/", 303)
    answer.headers["set-cookie"] = signed_out_cookie(secure=bool(request.scope["secure"]))
    return answer
