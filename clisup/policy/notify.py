"""Rules of messages about events: which event is told, its JSON, its form for a service, its signature, its next try. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Collection, Mapping
from typing import Literal

from msgspec import Struct

from clisup.model.structs import JsonObject

__all__ = [
    "MAX_WAIT_S",
    "NOTICED",
    "NotifyMessage",
    "NotifyRequest",
    "Subject",
    "kind_of",
    "message_of",
    "next_wait",
    "request_of",
    "sample",
    "signature",
    "signing_key",
]

NOTICED = frozenset({"approval_requested", "turn_completed", "rate_limit", "notice"})
"""Types of events that a message may come from."""
MAX_WAIT_S = 300.0
"""Longest wait before another try."""
MAX_TEXT = 2000
"""Limit of characters of a text in a message. A service that pushes to phones takes about 4 KB."""
MAX_BODY = 64 * 1024
"""Limit of bytes of a body. The event of a longer one is left out."""
MAX_LINE = 200
"""Limit of characters of the line for a person."""
MAX_TITLE = 60
"""Limit of characters of a session's title in that line."""
_LIMITS = ("rate_limit", "quota_exceeded")
_FAILED = ("failed", "timed_out")
_PREFIX = "whsec_"


class Subject(Struct, frozen=True):
    """Session that a message is about."""

    session_id: str
    backend: str
    model: str | None
    cwd: str
    labels: Mapping[str, str]
    title: str | None = None
    branch: str | None = None


class NotifyMessage(Struct, frozen=True):
    """Message about one event. `id` is the same for each delivery of the event. `line` is for a person."""

    id: str
    type: str
    timestamp: str
    line: str
    data: JsonObject

    def to_json(self) -> bytes:
        """Return the body of `format = "json"`, and the stdin of a command."""
        whole = {"type": self.type, "timestamp": self.timestamp, "id": self.id, "message": self.line, "data": self.data}
        body = _encoded(whole)
        if len(body) > MAX_BODY:
            body = _encoded({**whole, "data": {**self.data, "event": None, "cut": True}})
        return body


class NotifyRequest(Struct, frozen=True):
    """Body of a POST, and its headers."""

    body: bytes
    headers: dict[str, str]


# -- which event -------------------------------------------------------------------------------------------------------


def kind_of(event: JsonObject, on: Collection[str]) -> str | None:
    """Return the name under which an event is told, or None. One event gives one message at most."""
    return next((kind for kind in _kinds(event) if kind in on), None)


def _kinds(event: JsonObject) -> list[str]:
    match event["type"]:
        case "approval_requested":
            return ["approval_requested"]
        case "turn_completed":
            failed = ["turn_failed"] if event["outcome"] in _FAILED else []
            limited = ["limit"] if (event.get("error") or {}).get("kind") in _LIMITS else []
            return [*failed, *limited, "turn_completed"]
        case "rate_limit":
            return [] if str(event.get("status", "")).startswith("allowed") else ["limit"]
        case "notice":
            return ["limit"] if event.get("code") == "held" else []
    return []


# -- the message -------------------------------------------------------------------------------------------------------


def message_of(event: JsonObject, kind: str, about: Subject, pages: str = "") -> NotifyMessage:
    """Return the message. Its texts are cut. `pages` is the address of `clisup web`, to which the message then links."""
    session, seq = about.session_id, int(str(event["seq"]))
    shown = {name: _cut(value) for name, value in event.items() if name not in ("session_id", "seq", "ts", "turn_id")}
    data: JsonObject = {
        "session_id": session,
        "seq": seq,
        "turn_id": event.get("turn_id"),
        "backend": about.backend,
        "model": about.model,
        "cwd": about.cwd,
        "title": about.title,
        "branch": about.branch,
        "labels": dict(about.labels),
        "link": _link(event, session, pages) if pages else None,
        "event": shown,
    }
    where = about.cwd.rstrip("/").rpartition("/")[2] or "/"
    title = f' "{about.title[:MAX_TITLE]}"' if about.title else ""
    line = one_line(f"{about.backend} in {where}{title}: {_words(event, kind)}")
    return NotifyMessage(f"{session}_{seq}", kind, str(event["ts"]), line, data)


def sample(id_: str, timestamp: str) -> NotifyMessage:
    """Return the message of `clisup notify test`."""
    return NotifyMessage(id_, "test", timestamp, "clisup: this is a test message", {"link": None, "event": None})


def _link(event: JsonObject, session: str, pages: str) -> str:
    """Return the page of the approval, or of the session."""
    if event["type"] != "approval_requested":
        return f"{pages}/sessions/{session}"
    approval = "".join(_quoted_byte(byte) for byte in str(event["approval_id"]).encode("utf-8", "replace"))
    return f"{pages}/approvals/{session}/{approval}"


def _quoted_byte(byte: int) -> str:
    char = chr(byte)
    return char if byte < 128 and (char.isalnum() or char in "-._~:") else f"%{byte:02X}"


def _words(event: JsonObject, kind: str) -> str:
    if kind == "approval_requested":
        return f"asks to use {event['tool_name']}"
    if event["type"] == "turn_completed":
        error = event.get("error") or {}
        why = f" ({error.get('kind')}): {error.get('message')}" if error else ""
        answer = f": {event['text']}" if event.get("text") and not error else ""
        return f"turn {str(event['outcome']).replace('_', ' ')}{why}{answer}"
    if event["type"] == "notice":
        return str(event.get("message"))
    until = f" until {event['resets_at']}" if event.get("resets_at") else ""
    return f"the rate limit of the account is reached{until}"


def one_line(text: str) -> str:
    """Return a text on one line, without control characters and cut."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    line = " ".join(plain.split())
    return line if len(line) <= MAX_LINE else line[: MAX_LINE - 1] + "…"


def _cut(value: object, depth: int = 0) -> object:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else value[: MAX_TEXT - 1] + "…"
    if isinstance(value, dict):
        return (
            {str(name)[:MAX_LINE]: _cut(item, depth + 1) for name, item in list(value.items())[:50]}
            if depth < 5
            else {}
        )
    if isinstance(value, list):
        return [_cut(item, depth + 1) for item in value[:50]] if depth < 5 else []
    return value


def _encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


# -- the request -------------------------------------------------------------------------------------------------------


def request_of(message: NotifyMessage, form: Literal["json", "ntfy", "slack", "gotify"]) -> NotifyRequest:
    """Return the request for a service, unsigned."""
    urgent = message.type in ("approval_requested", "turn_failed", "limit")
    title = f"clisup: {message.type.replace('_', ' ')}"
    as_json = {"Content-Type": "application/json"}
    link = message.data.get("link")
    if form == "ntfy":
        headers = {
            "Content-Type": "text/plain; charset=utf-8",
            "Title": title,
            "Priority": "high" if urgent else "default",
        }
        return NotifyRequest(message.line.encode(), {**headers, "Click": link} if link else headers)
    if form == "slack":
        text = message.line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return NotifyRequest(_encoded({"text": f"{text} <{link}>" if link else text}), as_json)
    if form == "gotify":
        body: JsonObject = {"title": title, "message": message.line, "priority": 8 if urgent else 4}
        if link:
            body["extras"] = {"client::notification": {"click": {"url": link}}}
        return NotifyRequest(_encoded(body), as_json)
    return NotifyRequest(message.to_json(), as_json)


def signing_key(secret: str) -> bytes:
    """Return the key of a secret of Standard Webhooks. Raises `ValueError`, which never holds the secret."""
    try:
        key = base64.b64decode(secret.strip().removeprefix(_PREFIX), validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if not 24 <= len(key) <= 64:
        raise ValueError("Input should be whsec_ and 24 to 64 bytes in base64: echo whsec_$(openssl rand -base64 32)")
    return key


def signature(key: bytes, id_: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers of Standard Webhooks for a body."""
    signed = hmac.new(key, f"{id_}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }


# -- the next try ------------------------------------------------------------------------------------------------------


def next_wait(tried: int, retry_after_s: float | None = None) -> float:
    """Return the seconds before the next try after `tried` failures: 1, 2, 4 ..., or what the server asks for."""
    doubled = float(2 ** min(max(tried, 1) - 1, 20))
    return min(MAX_WAIT_S, max(doubled, retry_after_s or 0.0))
