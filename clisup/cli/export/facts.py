"""Facts about a session and about the end of a turn, in words for people."""

from __future__ import annotations

from datetime import datetime

from clisup.cli.export.parts import SessionHead, Text
from clisup.cli.views.events import error_words
from clisup.cli.views.terminal import clip, cost, duration, plain, session_name, size, tokens
from clisup.client.raw import JsonObject

__all__ = ["cut_words", "end_words", "head_facts", "moment", "title_of"]


def title_of(head: SessionHead) -> str:
    """Return the session's title, or a name made of its id."""
    return session_name(head.session.get("title"), head.session["session_id"], 120)


def head_facts(head: SessionHead) -> list[tuple[str, str]]:
    """Return names and values that describe the session. Unknown values are left out."""
    row = head.session
    labels = " ".join(f"{name}={value}" for name, value in (row.get("labels") or {}).items())
    facts = [
        ("Session", row["session_id"]),
        ("Backend", " ".join(str(part) for part in (row["backend"], row.get("model")) if part)),
        ("Directory", row["cwd"]),
        ("Branch", row.get("branch")),
        ("Labels", labels),
        ("Opened", moment(row.get("created_at"))),
        ("Turns", str(row["turns"]) if row.get("turns") else None),
        ("Tokens", tokens(row.get("tokens")).strip("-")),
        ("Cost", cost(row.get("cost_usd")).strip("-")),
        ("Exported", moment(head.at)),
    ]
    return [(name, clip(str(value), 400)) for name, value in facts if value]


def end_words(event: JsonObject) -> str:
    """Return the outcome, the time, the tokens and the cost of a turn."""
    estimated = " (estimated)" if event.get("cost_source") == "estimated" else ""
    parts = [
        str(event["outcome"]).replace("_", " "),
        duration(event["duration_s"]) if event.get("duration_s") is not None else "",
        f"{used} tokens" if (used := tokens(event.get("usage"))) != "-" else "",
        cost(event["cost_usd"]) + estimated if event.get("cost_usd") is not None else "",
        f"denied: {', '.join(sorted(set(event['denied'])))}" if event.get("denied") else "",
        error_words(event.get("error")),
    ]
    return clip(" · ".join(part for part in parts if part), 400)


def cut_words(body: Text) -> str:
    """Return how much of a text was cut, or ""."""
    return f"cut: {size(body.cut)} more" if body.cut else ""


def moment(ts: str | None) -> str:
    """Return a time as `2026-11-22 10:15:02 UTC`."""
    if not ts:
        return ""
    try:
        return datetime.fromisoformat(ts).strftime("%Y-%m-%d %H:%M:%S UTC")
    except ValueError:
        return plain(ts)
