"""Sockets and settings of an HTTP server, and its run on trio."""

from __future__ import annotations

import signal
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import trio

from clisup.errors import ConfigurationError, UsageError
from clisup.http.addresses import Addresses, is_loopback, origin_of, place_of
from clisup.http.connections import HttpConnections

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["STALLED_S", "HttpSettings", "check_settings", "is_served", "listen", "serve"]

STALLED_S = 60.0
"""Seconds after which the kernel ends the connection of a reader that takes nothing more."""

BACKLOG = 128


class HttpSettings(NamedTuple):
    """Settings of a server. `url` is its address behind a reverse proxy, or ""."""

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


def check_settings(settings: HttpSettings, page: str) -> None:
    """Raise `UsageError` for settings that would show tokens to others without TLS. `page` is that of the docs."""
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise UsageError("a certificate needs its key", kind="usage", hint="give both --tls-cert and --tls-key")
    if not is_loopback(settings.bind) and not settings.tls:
        raise UsageError(
            f"cannot serve {settings.bind} without TLS, because others could read the tokens",
            kind="usage",
            hint=f"give --tls-cert and --tls-key, or put a reverse proxy in front ({page})",
        )
    try:
        if settings.url:
            origin_of(settings.url)
    except ValueError:
        raise UsageError(
            "the address is none of a page", kind="usage", hint="give --url https://host.example"
        ) from None


def listen(settings: HttpSettings, hint: str) -> socket.socket:
    """Return the listening socket. Raises `ConfigurationError` with the hint if the address is taken."""
    family = socket.AF_INET6 if ":" in settings.bind else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit this. It also ends those whose peer does not read: a task would wait for it otherwise.
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(STALLED_S * 1000))
        found.bind((settings.bind, settings.port))
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise ConfigurationError(
            f"cannot listen on {settings.bind} port {settings.port}, because of: {error.strerror}", hint=hint
        ) from None
    return found


def is_served(settings: HttpSettings) -> bool:
    """Tell whether something listens at the address."""
    host = "127.0.0.1" if settings.bind == "0.0.0.0" else "::1" if settings.bind == "::" else settings.bind
    try:
        with closing(socket.create_connection((host, settings.port), 1.0)):
            return True
    except OSError:
        return False


async def serve(
    app: ASGIApp, settings: HttpSettings, listener: socket.socket, beside: list[Callable[[], Awaitable[object]]],
    note: Callable[[str], None],
) -> None:  # fmt: skip
    """Serve until SIGTERM or SIGINT. The functions of `beside` run as tasks meanwhile, and are cancelled at the end.

    `note` gets a line for each fault of a connection or a request, and while connections are refused.
    """
    connections = HttpConnections(app, listener, tls_of(settings), note)
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            for task in beside:
                nursery.start_soon(task)
            nursery.start_soon(connections.run)
            await anext(signals)
            await connections.stop()
            nursery.cancel_scope.cancel()


def tls_of(settings: HttpSettings) -> ssl.SSLContext | None:
    if not settings.tls:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(settings.tls_cert, settings.tls_key)
    return context
