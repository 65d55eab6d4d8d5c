"""From counts to the table, the JSON and the last line."""

from __future__ import annotations

from typing import Any

from tests.chaos.compare import Counts
from tests.chaos.lives import Killer
from tests.chaos.plan import NOT_MET_HERE

__all__ = ["figures", "last_line", "table"]


def table(killer: Killer) -> str:
    """How often each failpoint was struck, and how often a life waited for one in vain."""
    plan = killer.plan
    lines = [f"{'failpoint':22} {'struck':>7} {'in vain':>8}"]
    lines += [f"{name:22} {hits:7} {plan.missed[name]:8}" for name, hits in plan.struck.items()]
    lines.append(f"{'(a random moment)':22} {killer.by_timer:7}")
    lines.append(f"left out by prefix: {', '.join(f'{prefix}* ({why})' for prefix, why in NOT_MET_HERE.items())}")
    return "\n".join(lines)


def last_line(kills: int, counts: Counts) -> str:
    """The verdict."""
    return (
        f"kills {kills} lost {counts.lost} doubled {counts.doubled} reordered {counts.reordered} "
        f"wrong_exits {counts.wrong_exits}"
    )


def figures(killer: Killer, counts: Counts, **more: Any) -> dict[str, Any]:
    """For a machine."""
    found = {name: getattr(counts, name) for name in ("lost", "doubled", "reordered", "wrong_exits", "details")}
    return {
        "kills": killer.kills, "by_timer": killer.by_timer, "cold_lives": killer.cold_lives, "struck": killer.plan.struck,
        "in_vain": killer.plan.missed, **found, **more,
    }  # fmt: skip
