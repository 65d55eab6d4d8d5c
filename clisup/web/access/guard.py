"""Check of every request before a page sees it: host, origin, cookie, role and form token; and the headers of every answer."""

from __future__ import annotations

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse, Response

from clisup.http.addresses import Addresses, headers_of, same_token
from clisup.http.bodies import BodyRefused, read_body
from clisup.web.access.rules import HEADERS, form_token, refusal_of
from clisup.web.access.tokens import TokenBook, WebToken

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = [
    "BODY_BYTES",
    "BODY_S",
    "COOKIE",
    "OPEN",
    "Guard",
    "SentForm",
    "Visitor",
    "cookie_header",
    "read_fields",
    "read_form",
    "signed_out_cookie",
]

COOKIE = "clisup_web"
OPEN = ("/login", "/static/")
"""Paths that need no token. They show nothing of the daemon."""

BODY_BYTES = 256 * 1024
"""Bytes of a form at most."""

BODY_S = 30.0
"""Seconds for a browser to send a whole form."""

_FIELDS = 500


class Visitor:
    """Browser that sent a request: its token, and the value for its forms."""

    __slots__ = ("book", "form_token", "secret", "token")

    def __init__(self, book: TokenBook, secret: str, token: WebToken) -> None:
        self.book, self.secret, self.token = book, secret, token
        self.form_token = form_token(secret)

    @property
    def is_valid(self) -> bool:
        """Tell whether the token is still valid. A stream asks before each message."""
        return self.book.check(self.secret) is not None


class Guard:
    """ASGI middleware around the pages. `unknown` makes the answer for a browser without a valid token."""

    def __init__(self, app: ASGIApp, book: TokenBook, place: Addresses, unknown: Callable[[Scope], Response]) -> None:
        self._app, self._book, self._place, self._unknown = app, book, place, unknown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        scope["secure"] = self._place.is_secure(headers.get("host", "").lower())

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = MutableHeaders(scope=message)
                for name, value in HEADERS:
                    own[name] = value
                own.setdefault("cache-control", "no-store")
            await send(message)

        answer = self._answer(scope, headers)
        await (answer or self._app)(scope, receive, send_guarded)

    def _answer(self, scope: Scope, headers: Mapping[str, str]) -> Response | None:
        """Return the refusal, or None after the visitor was found."""
        if reason := refusal_of(scope["method"], headers, self._place):
            return PlainTextResponse(f"refused: {reason}\n", 403)
        secret = _cookie(headers.get("cookie", ""))
        token = self._book.check(secret) if secret else None
        scope["visitor"] = None if token is None else Visitor(self._book, secret, token)
        if token is None and not scope["path"].startswith(OPEN):
            return self._unknown(scope)
        return None


class SentForm:
    """Fields of a sent form. A missing field is empty."""

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        self._fields = fields

    def get(self, name: str) -> str:
        """Return the last value of a field."""
        return (self._fields.get(name) or [""])[-1]

    def all(self, name: str) -> list[str]:
        """Return all values of a field."""
        return self._fields.get(name) or []


async def read_fields(request: Request) -> SentForm | Response:
    """Return the fields of a POST, or the refusal."""
    try:
        body = await read_body(request.receive, BODY_BYTES, BODY_S)
        return SentForm(parse_qs(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS))
    except BodyRefused as refused:
        return PlainTextResponse(f"refused: {refused}\n", refused.status)
    except ValueError:
        return PlainTextResponse("refused: this is no form\n", 400)


async def read_form(request: Request) -> SentForm | Response:
    """Return the fields of a POST whose form token is right, or the refusal."""
    form, visitor = await read_fields(request), request.scope["visitor"]
    if isinstance(form, Response):
        return form
    if visitor is None or not same_token(form.get("form_token"), visitor.form_token):
        return PlainTextResponse("refused: the form token is wrong or missing; load the page again\n", 403)
    return form


def cookie_header(secret: str, seconds: float, *, secure: bool) -> str:
    """Return the Set-Cookie for a token."""
    return f"{COOKIE}={secret}; Path=/; Max-Age={int(seconds)}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"


def signed_out_cookie(*, secure: bool) -> str:
    """Return the Set-Cookie that removes the token."""
    return cookie_header("", 0, secure=secure)


def _cookie(text: str) -> str:
    try:
        morsel = SimpleCookie(text).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""
