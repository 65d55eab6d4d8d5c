"""Push addresses that a browser may give, and what a message says. Pure.

A phone shows a message on its locked screen, and the push service belongs to others. So a message has the session's title,
and no text of a prompt, a command or an answer. The link leads to them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from clisup.cli.views.terminal import session_name
from clisup.client.raw import JsonObject

__all__ = ["ENDPOINT_CHARS", "PushAddress", "PushMessage", "push_address", "push_message"]

ENDPOINT_CHARS = 1024
"""Characters of the address of a push service at most."""

_KEY = re.compile(r"[A-Za-z0-9_-]{87}")
_AUTH = re.compile(r"[A-Za-z0-9_-]{22}")
_PRINTABLE = re.compile(r"[!-~]+")
_BAD_ENDS = {"failed": "The turn failed.", "timed_out": "The turn timed out."}


class PushAddress(NamedTuple):
    """Address of one browser at its push service, with the browser's public key and secret in base64url."""

    endpoint: str
    p256dh: str
    auth: str


class PushMessage(NamedTuple):
    """Message to a person. A later message with the same `tag` replaces this one. `path` is the page behind it."""

    title: str
    body: str
    path: str
    tag: str

    def encode(self) -> bytes:
        """Return the bytes that the service worker reads."""
        return json.dumps(self._asdict(), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    @property
    def topic(self) -> str:
        """Return the header `Topic`: the push service keeps the newest message of a topic for a browser that is away."""
        return hashlib.sha256(self.tag.encode("utf-8", "replace")).hexdigest()[:32]


def push_address(get: Callable[[str], str]) -> PushAddress:
    """Return the address in the fields of a form. Raises `ValueError`."""
    address = PushAddress(get("endpoint"), get("p256dh").rstrip("="), get("auth").rstrip("="))
    if len(address.endpoint) > ENDPOINT_CHARS or not _PRINTABLE.fullmatch(address.endpoint):
        raise ValueError("the address of the push service is too long or no address")
    parts = urlsplit(address.endpoint)
    if parts.scheme != "https" or not parts.hostname or "@" in parts.netloc or parts.port == 0:
        raise ValueError("the address of the push service does not begin with https://")
    if not _KEY.fullmatch(address.p256dh) or not _AUTH.fullmatch(address.auth):
        raise ValueError("the keys of the browser have another form")
    return address


def push_message(event: JsonObject, title: str | None) -> PushMessage | None:
    """Return the message about an event of a session with this title, or None if nobody is needed."""
    session_id, kind = str(event["session_id"]), event["type"]
    name = session_name(title, session_id)
    if kind == "approval_requested":
        approval_id = str(event["approval_id"])
        path = f"/approvals/{quote(session_id, safe='')}/{quote(approval_id, safe='')}"
        return PushMessage(name, "Waits for your answer.", path, f"{session_id}/{approval_id}")
    if kind == "turn_completed" and (words := _BAD_ENDS.get(str(event.get("outcome")))):
        return PushMessage(name, words, f"/sessions/{quote(session_id, safe='')}", session_id)
    return None
