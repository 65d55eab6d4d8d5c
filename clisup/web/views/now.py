"""Cards of all sessions, by what they want of a person. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from clisup.cli.status.columns import directory, since, status_of
from clisup.cli.top.model import Board
from clisup.cli.views.terminal import brief, cost, plain, session_name
from clisup.client.raw import JsonObject

__all__ = ["GROUPS", "MOST_DONE", "Card", "CardGroup", "groups_of"]

GROUPS = {"asking": "Needs you", "running": "Running", "waiting": "Waiting", "failed": "Failed", "resting": "Done"}
"""Groups by the tone of `status_of`, in their order."""

MOST_DONE = 20
"""Cards of the last two groups at most, newest first."""

_FULL = 100


class Card(NamedTuple):
    """Session on the page. `silence` is the part of the watchdog's limit that has passed, in percent; None without a timer."""

    session_id: str
    title: str
    place: str
    backend: str
    status: str
    tone: str
    since: str
    said: str
    cost: str
    silence: int | None
    silence_words: str
    approvals: int


class CardGroup(NamedTuple):
    """Cards under one heading. `more` counts those that are not shown."""

    tone: str
    title: str
    cards: list[Card]
    more: int


def groups_of(board: Board, said: Mapping[str, str], now: float) -> list[CardGroup]:
    """Return the groups that have cards."""
    rows = board.shown("attention", "", now)
    cards = [_card(board.row(row, now), said.get(row["session_id"], "")) for row in rows]
    groups = []
    for tone, title in GROUPS.items():
        own = [card for card in cards if card.tone == tone]
        shown = own[:MOST_DONE] if tone in ("failed", "resting") else own
        if own:
            groups.append(CardGroup(tone, title, shown, len(own) - len(shown)))
    return groups


def _card(row: JsonObject, said: str) -> Card:
    words, tone = status_of(row)
    silence, silence_words = _silence(row)
    return Card(
        row["session_id"],
        session_name(row.get("title") or said, row["session_id"]),
        plain(directory(row.get("cwd"))),
        plain(" ".join(str(part) for part in (row["backend"], row.get("model")) if part)),
        plain(words),
        tone,
        brief(since(row)),
        said,
        cost(row.get("cost_usd")),
        silence,
        silence_words,
        int(row.get("approvals") or 0),
    )


def _silence(row: JsonObject) -> tuple[int | None, str]:
    """Return the silence of the turn against the limit of its phase."""
    timer, idle = row.get("next_timer"), row.get("idle_s")
    if not timer or idle is None or not timer.get("limit_s"):
        return None, ""
    limit = float(timer["limit_s"])
    part = min(_FULL, max(0, round(_FULL * float(idle) / limit)))
    return part, f"silent for {brief(float(idle))} of {brief(limit)}"
