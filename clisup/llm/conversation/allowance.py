"""What a `SessionBudget` leaves for the next session of a conversation that has had others. Pure.

The daemon counts for each session. A conversation whose context is edited goes on in a new one, so what its turns took is
taken off here. What nobody told is not taken off: a limit can only be held by what is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from clisup.llm.chat import SessionBudget
from clisup.llm.conversation.nodes import Turn
from clisup.llm.failures import BudgetExhausted

__all__ = ["left_of"]


def left_of(budget: SessionBudget, turns: Iterable[Turn]) -> SessionBudget:
    """The budget without what these turns took. Raises `BudgetExhausted` where nothing is left of one of its limits."""
    turns = tuple(turns)
    used: dict[str, float] = {
        "usd": sum(turn.cost.usd for turn in turns if turn.cost is not None),
        "tokens": sum(turn.usage.total_tokens or 0 for turn in turns),
        "turns": len(turns),
        "wall_s": sum(_seconds(turn) for turn in turns),
    }
    left = {which: limit - used[which] for which, limit in budget.to_wire().items()}
    for which, rest in left.items():
        if rest <= 0:
            limit = budget.to_wire()[which]
            raise BudgetExhausted(
                f"cannot send this, because the conversation's budget is used up: {used[which]:.6g} of {limit:g} {which}",
                kind="budget_exhausted",
                hint="give it more",
                which=which,
                limit=limit,
                used=used[which],
            )
    return SessionBudget(
        usd=left.get("usd"),
        tokens=None if "tokens" not in left else int(left["tokens"]),
        turns=None if "turns" not in left else int(left["turns"]),
        wall_s=left.get("wall_s"),
    )


def _seconds(turn: Turn) -> float:
    try:
        return max(0.0, (_time(turn.ended_at or "") - _time(turn.at)).total_seconds())
    except ValueError:
        return 0.0


def _time(at: str) -> datetime:
    return datetime.fromisoformat(at)
