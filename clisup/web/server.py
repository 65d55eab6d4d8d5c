"""Process of the pages: sockets, the HTTP server on trio, and login links."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import NamedTuple

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config, Sockets
from hypercorn.trio.run import worker_serve

from clisup.errors import ConfigurationError, UsageError
from clisup.locations import state_dir_for_client
from clisup.web.access.rules import Addresses, is_loopback, origin_of, place_of
from clisup.web.access.tokens import TokenBook
from clisup.web.app import make_app
from clisup.web.boxes import BoxLinks
from clisup.web.link import PageLink
from clisup.web.push.delivery import PushSender, contact_of, push_key
from clisup.web.push.watch import PushWatch

__all__ = ["STALLED_S", "WebSettings", "book_of", "check_settings", "is_served", "listen", "login_link", "serve_pages"]

STALLED_S = 60.0
"""Seconds after which the kernel ends the connection of a browser that takes nothing more."""

BACKLOG = 128
GRACE_S = 1.0
_HEADER_BYTES = 32 * 1024


class WebSettings(NamedTuple):
    """Settings of the server. `url` is its address behind a reverse proxy, or ""."""

    bind: str = "127.0.0.1"
    port: int = 7777
    url: str = ""
    tls_cert: str = ""
    tls_key: str = ""

    @property
    def tls(self) -> bool:
        """Tell whether the server speaks HTTPS itself."""
        return bool(self.tls_cert and self.tls_key)

    def place(self, port: int) -> Addresses:
        """Return the accepted addresses, with the port that the socket has."""
        return place_of(self.bind, port, self.url, tls=self.tls)

    def origin(self, port: int) -> str:
        """Return the address for people."""
        if self.url:
            return origin_of(self.url)
        name = "127.0.0.1" if self.bind in ("0.0.0.0", "::") else f"[{self.bind}]" if ":" in self.bind else self.bind
        return origin_of(f"{'https' if self.tls else 'http'}://{name}:{port}")


def check_settings(settings: WebSettings) -> None:
    """Raise `UsageError` for settings that would show the pages to others without TLS."""
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise UsageError("a certificate needs its key", kind="usage", hint="give both --tls-cert and --tls-key")
    if not is_loopback(settings.bind) and not settings.tls:
        raise UsageError(
            f"cannot serve {settings.bind} without TLS, because others could read the tokens",
            kind="usage",
            hint="give --tls-cert and --tls-key, or put a reverse proxy in front (docs/how-to/web.md)",
        )
    try:
        if settings.url:
            origin_of(settings.url)
    except ValueError:
        raise UsageError(
            "the address is none of a page", kind="usage", hint="give --url https://host.example"
        ) from None


def book_of(env: Mapping[str, str]) -> TokenBook:
    """Return the tokens of this user."""
    return TokenBook(os.path.join(state_dir_for_client(env, os.getuid()), "web"))


def login_link(origin: str, code: str) -> str:
    """Return the address that signs a browser in."""
    return f"{origin}/login?code={code}"


def listen(settings: WebSettings) -> socket.socket:
    """Return the listening socket. Raises `ConfigurationError` if the address is taken."""
    family = socket.AF_INET6 if ":" in settings.bind else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit this. It also ends those whose browser does not read: a task would wait for it otherwise.
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(STALLED_S * 1000))
        found.bind((settings.bind, settings.port))
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise ConfigurationError(
            f"cannot listen on {settings.bind} port {settings.port}, because of: {error.strerror}",
            hint="choose another --port; clisup web --print-link makes a link for a server that runs already",
        ) from None
    return found


def is_served(settings: WebSettings) -> bool:
    """Tell whether something listens at the address."""
    host = "127.0.0.1" if settings.bind == "0.0.0.0" else "::1" if settings.bind == "::" else settings.bind
    try:
        with closing(socket.create_connection((host, settings.port), 1.0)):
            return True
    except OSError:
        return False


async def serve_pages(
    settings: WebSettings,
    listener: socket.socket,
    daemon: str | None,
    book: TokenBook,
    *,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT. `daemon` is the path of its socket; `ready` is called in a
    thread once browsers may connect."""
    config = Config()
    config.include_server_header, config.accesslog, config.errorlog = False, None, "-"
    config.loglevel = "WARNING"
    config.graceful_timeout, config.h11_max_incomplete_size = GRACE_S, _HEADER_BYTES
    if settings.tls:
        config.certfile, config.keyfile = settings.tls_cert, settings.tls_key
    sockets = Sockets([listener], [], []) if settings.tls else Sockets([], [listener], [])
    link, boxes = PageLink(daemon), BoxLinks()
    port = listener.getsockname()[1]
    sender = PushSender(push_key(os.path.dirname(book.path)), contact_of(settings.origin(port)))
    app = ASGIWrapper(make_app(link, book, settings.place(port), boxes, sender))  # type: ignore[arg-type]
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:

        async def stopped() -> None:
            await anext(signals)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.run)
            nursery.start_soon(boxes.run)
            nursery.start_soon(PushWatch(link, book, sender).run)
            # The socket listens already. A `$BROWSER` may run until the user closes it.
            nursery.start_soon(partial(trio.to_thread.run_sync, ready, abandon_on_cancel=True))
            await worker_serve(app, config, sockets=sockets, shutdown_trigger=stopped)
            nursery.cancel_scope.cancel()
