"""Totals of all stored sessions, in lines. Light: see `clisup.cli.main`."""

from __future__ import annotations

from clisup.cli.views.terminal import cost, count, tokens

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["total_lines"]


def total_lines(totals: dict[str, Any]) -> list[str]:
    """Turns, tokens and cost of all sessions that are stored."""
    usage = totals.get("tokens") or {}
    outcomes = ", ".join(f"{n} {outcome.replace('_', ' ')}" for outcome, n in totals["turns"].items())
    fired = totals["watchdog_fired"]
    return [
        f"    Turns: {outcomes}; watchdog fired {fired} {'time' if fired == 1 else 'times'}",
        f"   Tokens: {tokens(usage)} ({count(usage.get('output_tokens'))} of output), cost {cost(totals.get('cost_usd'))}",
    ]
