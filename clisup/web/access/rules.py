"""Rules for requests from browsers: hosts, origins, roles, the form token and the headers of every answer. Pure.

A page of another site, a page on another port of this machine, and a name that resolves to this machine (DNS rebinding)
are all kept out here. docs/how-to/web.md says against what each rule protects.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Literal, get_args

from clisup.http.addresses import Addresses

__all__ = ["HEADERS", "ROLES", "Role", "allows", "form_token", "refusal_of"]

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


# -- requests -----------------------------------------------------------------------------------------------------------


def refusal_of(method: str, headers: Mapping[str, str], place: Addresses) -> str | None:
    """Return the reason why a request is refused whoever sends it, or None. The names of `headers` are lower-case."""
    if not place.has_host(headers):
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
