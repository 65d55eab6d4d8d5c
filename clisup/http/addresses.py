"""Addresses of an HTTP server, and checks of request headers that every server here shares. Pure.

A name that resolves to this machine (DNS rebinding) has another Host, and a page of another site or port another Origin.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from starlette.types import Scope

__all__ = ["Addresses", "headers_of", "is_loopback", "origin_of", "place_of", "same_token"]

_PORTS = {"http": 80, "https": 443}


class Addresses(NamedTuple):
    """Addresses of the pages. `hosts` are the accepted Host headers, `origins` the accepted Origin headers."""

    hosts: frozenset[str]
    origins: frozenset[str]

    def has_host(self, headers: Mapping[str, str]) -> bool:
        """Tell whether the Host header is one of this server. The names of `headers` are lower-case."""
        return headers.get("host", "").lower() in self.hosts

    def is_secure(self, host: str) -> bool:
        """Tell whether browsers reach this host by HTTPS."""
        return f"https://{host}" in self.origins


def place_of(bind: str, port: int, url: str = "", *, tls: bool = False) -> Addresses:
    """Return the addresses of a server on `bind` and `port`. `url` is its address behind a reverse proxy."""
    scheme = "https" if tls else "http"
    names = {"localhost", "127.0.0.1", "[::1]"} if is_loopback(bind) or _is_any(bind) else set()
    if not _is_any(bind):
        names.add(f"[{bind}]" if ":" in bind else bind)
    hosts = {_with_port(name, port, scheme) for name in names}
    origins = {f"{scheme}://{host}" for host in hosts}
    if url:
        origins.add(origin_of(url))
        hosts.add(origin_of(url).partition("://")[2])
    return Addresses(frozenset(hosts), frozenset(origins))


def origin_of(url: str) -> str:
    """Return the origin of an address as browsers write it. Raises `ValueError` for another text."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
        raise ValueError(f"no address of a page: {url}")
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{_with_port(name, parts.port or _PORTS[parts.scheme], parts.scheme)}"


def is_loopback(bind: str) -> bool:
    """Tell whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return bind == "localhost"


def _is_any(bind: str) -> bool:
    try:
        return ipaddress.ip_address(bind).is_unspecified
    except ValueError:
        return False


def _with_port(name: str, port: int, scheme: str) -> str:
    return name if port == _PORTS[scheme] else f"{name}:{port}"


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers of a request. A header that comes twice has both values, which no rule accepts."""
    found: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name, text = raw.decode("latin-1"), value.decode("latin-1")
        found[name] = f"{found[name]}, {text}" if name in found and name != "cookie" else text
    return found


def same_token(given: str, expected: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(given.encode(), expected.encode())
