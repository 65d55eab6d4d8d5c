"""A session's budget in words, for the pages of `clisup status`. Light: see `clisup.cli.main`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["budget_words", "used_up_words"]

_UNITS = {"usd": "USD", "tokens": "tokens", "turns": "turns", "wall_s": "s in turns"}


def budget_words(budget: dict[str, Any] | None) -> str | None:
    """`1200 of 5000 tokens, 0.31 of 2 USD`, with a word on what is used up or not known; None where there is no budget."""
    if not budget:
        return None
    used = budget["used"]
    parts = [
        f"{_number(used.get(name))} of {_number(limit)} {_UNITS.get(name, name)}"
        for name, limit in budget["limit"].items()
    ]
    words = ", ".join(parts)
    if "usd" in budget["limit"] and (unknown := used.get("unpriced")):
        words += f" (and {unknown} turn{'s' if unknown != 1 else ''} whose cost nobody knows)"
    return f"{words}; used up" if budget.get("exhausted") else words


def used_up_words(budget: dict[str, Any] | None) -> str | None:
    """Why no turn may begin; None where one may."""
    if not budget or not (name := budget.get("exhausted")):
        return None
    limit, used = budget["limit"][name], budget["used"][name]
    unit = _UNITS.get(name, name)
    return (
        f"no turn may begin: the budget of {_number(limit)} {unit} is used up ({_number(used)}); clisup set raises it"
    )


def _number(value: float | None) -> str:
    """Counts as they are, sums of money and time to four digits."""
    if value is None:
        return "?"
    return str(value) if isinstance(value, int) else f"{value:.0f}" if value >= 1000 else f"{value:.4g}"
