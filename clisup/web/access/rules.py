"""Rules for requests from browsers: hosts, origins, roles, the form token and the headers of every answer. Pure.

A page of another site, a page on another port of this machine, and a name that resolves to this machine (DNS rebinding)
are all kept out here. docs/how-to/web.md says against what each rule protects.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args
from urllib.parse import urlsplit

__all__ = [
    "HEADERS", "ROLES", "Addresses", "Role", "allows", "form_token", "is_loopback", "origin_of", "place_of", "refusal_of",
    "same_token",
]  # fmt: skip

Role = Literal["observe", "approve", "drive"]
ROLES: tuple[Role, ...] = get_args(Role)
"""Roles from the weakest to the strongest. Each may do what the ones before it may do."""

HEADERS: tuple[tuple[str, str], ...] = (
    (
        "content-security-policy",
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    ),
    ("x-frame-options", "DENY"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),  # `no-referrer` would turn the Origin of forms into "null"
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
)
"""Headers of every answer."""

_SAFE = ("GET", "HEAD")
_PORTS = {"http": 80, "https": 443}


class Addresses(NamedTuple):
    """Addresses of the pages. `hosts` are the accepted Host headers, `origins` the accepted Origin headers."""

    hosts: frozenset[str]
    origins: frozenset[str]

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


# -- requests -----------------------------------------------------------------------------------------------------------


def refusal_of(method: str, headers: Mapping[str, str], place: Addresses) -> str | None:
    """Return the reason why a request is refused whoever sends it, or None. The names of `headers` are lower-case."""
    if headers.get("host", "").lower() not in place.hosts:
        return "unknown host"
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if method not in _SAFE:
        if origin is None and site is None:
            return "no origin"
        foreign = (origin is not None and origin not in place.origins) or site not in (None, "same-origin")
        return "foreign origin" if foreign else None
    if origin is not None and origin not in place.origins:
        return "foreign origin"
    # Another site may link to a page. It may neither frame a page nor load anything of it.
    visits = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest", "document") == "document"
    return "foreign site" if site in ("cross-site", "same-site") and not visits else None


def allows(role: Role, needed: Role) -> bool:
    """Tell whether `role` may do what `needed` may do."""
    return ROLES.index(role) >= ROLES.index(needed)


def form_token(token: str) -> str:
    """Return the value that every form of this token's pages carries. Nobody can make it without the cookie."""
    return hmac.new(token.encode(), b"clisup web form", hashlib.sha256).hexdigest()


def same_token(given: str, expected: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(given.encode(), expected.encode())
