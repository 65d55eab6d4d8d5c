"""Sums over sessions, from their ledgers: `totals` of `daemon/status`, with a daemon and without. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import asdict

from clisup.model.sessions.ledger import Ledger
from clisup.model.usage import Usage

_OUTCOMES = ("completed", "failed", "interrupted", "timed_out")


def totals_of(ledgers: Iterable[Ledger]) -> dict[str, Any]:
    """Return `{turns, watchdog_fired, tokens, cost_usd}`; the cost is null if no turn reported one."""
    known = list(ledgers)
    costs = [ledger.cost_usd for ledger in known if ledger.cost_usd is not None]
    return {
        "turns": {name: sum(ledger.outcomes.get(name, 0) for ledger in known) for name in _OUTCOMES},
        "watchdog_fired": sum(ledger.watchdog_fired for ledger in known),
        "tokens": asdict(Usage.total(ledger.usage for ledger in known)),
        "cost_usd": round(sum(costs), 6) if costs else None,
    }
