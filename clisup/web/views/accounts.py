"""Accounts behind the backends: their rate limits, the time until the reset, and the sessions that wait. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from clisup.cli.views.terminal import clip, duration, plain, session_name
from clisup.client.raw import JsonObject
from clisup.policy.rate_limit import epoch, iso

__all__ = ["MOST_ACCOUNTS", "MOST_WAITING", "AccountCard", "WaitingSession", "account_cards"]

MOST_ACCOUNTS = 100
"""Accounts on the page at most."""

MOST_WAITING = 20
"""Waiting sessions of one account at most."""

_STATES = {
    "limited": ("limit reached", "failed"),
    "warned": ("near the limit", "asking"),
    "ok": ("below the limit", "running"),
}
_ORDER = ("failed", "asking", "running", "resting")
_FULL, _MINUTE_S = 100, 60.0


class WaitingSession(NamedTuple):
    """Session that waits for the reset, or that tries first after it."""

    session_id: str
    title: str


class AccountCard(NamedTuple):
    """Account on the page. `used` is in percent, None if unknown. `reset` is the time left in words, `reset_at` the time."""

    name: str
    kind: str
    status: str
    tone: str
    window: str
    used: int | None
    reset: str
    reset_at: str
    said: str
    message: str
    waiting: list[WaitingSession]
    more: int
    probe: WaitingSession | None


def account_cards(
    rows: Iterable[JsonObject], shared: Iterable[JsonObject], sessions: Iterable[JsonObject], now: float
) -> list[AccountCard]:
    """Return the accounts, limited ones first.

    `rows` are those of `daemon/status`, which lists used accounts, and `shared` those of `account/list`, which lists the
    accounts of the configuration. `now` is the time in seconds since the epoch.
    """
    titles = {row["session_id"]: row.get("title") for row in sessions}
    found = {row["account"]: row for row in (*map(_flat, shared), *rows)}
    cards = [_card(row, titles, now) for row in found.values()]
    return sorted(cards, key=lambda card: (_ORDER.index(card.tone), card.name))[:MOST_ACCOUNTS]


def _flat(row: JsonObject) -> JsonObject:
    """Return a row of `account/list` with the names of `daemon/status`."""
    limit = row["limit"]
    return {**row, **limit, "until": iso(limit.get("until")), "said_at": iso(limit.get("said_at"))}


def _card(row: JsonObject, titles: dict[str, object], now: float) -> AccountCard:
    status, tone = _STATES.get(row["state"], ("no limit reported yet", "resting"))
    until, said_at = epoch(row.get("until") or ""), epoch(row.get("said_at") or "")
    used, waiting, probe = row.get("utilization"), row.get("waiting") or (), row.get("probe")
    return AccountCard(
        clip(row["account"], 80),
        clip(row.get("kind") or "", 40),
        status,
        tone,
        clip((row.get("limit_type") or "").replace("_", " "), 80),
        None if used is None else min(_FULL, max(0, round(_FULL * used))),
        _left(until, now),
        iso(until) or "",
        _ago(said_at, now),
        plain(row.get("message") or ""),
        [_session(id_, titles) for id_ in waiting[:MOST_WAITING]],
        max(0, len(waiting) - MOST_WAITING),
        _session(probe, titles) if probe else None,
    )


def _left(until: float | None, now: float) -> str:
    if until is None:
        return ""
    return f"in {duration(until - now)}" if until > now else "now"


def _ago(said_at: float | None, now: float) -> str:
    """Return the age of the report in whole minutes, so that a live page does not change each second."""
    if said_at is None:
        return ""
    return f"{duration(now - said_at)} ago" if now - said_at >= _MINUTE_S else "less than a minute ago"


def _session(session_id: str, titles: dict[str, object]) -> WaitingSession:
    return WaitingSession(session_id, session_name(titles.get(session_id), session_id))
