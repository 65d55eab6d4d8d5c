"""Ladder of signals that ends a run: each signal with its grace time. After the last step the whole tree gets SIGKILL.

SIGINT comes first and goes to the CLI alone. claude 2.1.329 then keeps the partial text and exits with 0 (after 0.1 s
in a stalled stream, 1.3 s with a tool). SIGTERM goes to the whole tree.
"""

from __future__ import annotations

from typing import Literal

from clisup.policy.watchdog import Timeouts

__all__ = ["Ladder", "LadderKind", "is_polite", "ladder_for"]

Ladder = list[tuple[str, float]]
LadderKind = Literal["graceful", "term", "kill"]


def ladder_for(kind: LadderKind, timeouts: Timeouts) -> Ladder:
    """Return the steps: `graceful` is SIGINT, then SIGTERM; `term` only SIGTERM; `kill` goes to SIGKILL at once."""
    steps: dict[LadderKind, Ladder] = {
        "graceful": [("INT", timeouts.int_grace), ("TERM", timeouts.term_grace)],
        "term": [("TERM", timeouts.term_grace)],
        "kill": [],
    }
    return steps[kind]


def is_polite(ladder: Ladder) -> bool:
    """Tell whether the ladder first lets the CLI end its turn in its own way."""
    return bool(ladder) and ladder[0][0] == "INT"
