"""From outcomes to the table, the JSON and the verdict."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tests.zoo.rounds import ENDINGS, METHODS, Outcome

__all__ = ["cells", "summary", "table"]

PROMISE_MS = {"walk": 2000.0, "cgroup": 100.0}
"""Fault 10: from the kill to the last death."""

Cell = dict[str, Any]


def cells(outcomes: list[Outcome]) -> list[Cell]:
    """One for each kind, ending and method that was played."""
    groups: dict[tuple[str, str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.task.kind, outcome.task.ending, outcome.task.method].append(outcome)
    return [_cell(key, group) for key, group in groups.items()]


def _cell(key: tuple[str, str, str], group: list[Outcome]) -> Cell:
    kind, ending, method = key
    times = [outcome.ms for outcome in group if outcome.ms is not None]
    return {
        "kind": kind, "ending": ending, "method": method, "kills": len(group),
        "survivors": sum(outcome.survivors for outcome in group),
        "missed_rounds": sum(outcome.missed > 0 for outcome in group),
        "unnamed_rounds": sum(bool(outcome.unnamed) for outcome in group),
        "faults": [fault for outcome in group for fault in outcome.faults],
        **quantiles(times),
    }  # fmt: skip


def quantiles(times: list[float]) -> dict[str, float | None]:
    """Median, p99 (the worst of fewer than a hundred) and worst, in ms."""
    if not times:
        return {"median_ms": None, "p99_ms": None, "worst_ms": None}
    ordered = sorted(times)
    picked = {"median_ms": 0.5, "p99_ms": 0.99, "worst_ms": 1.0}
    return {name: round(ordered[min(len(ordered) - 1, int(len(ordered) * at))], 1) for name, at in picked.items()}


def summary(outcomes: list[Outcome]) -> list[Cell]:
    """The same over all kinds, one for each ending and method."""
    rows = []
    for ending in ENDINGS:
        for method in METHODS:
            group = [each for each in outcomes if (each.task.ending, each.task.method) == (ending, method)]
            if group:
                rows.append(_cell(("all", ending, method), group) | _over_promise(group))
    return rows


def _over_promise(group: list[Outcome]) -> Cell:
    """How many kills took longer than fault 10 says. TERM and exit have their own waits before the kill."""
    limit = PROMISE_MS[group[0].task.method]
    return {"over_promise": sum((each.ms or 0) > limit for each in group) if group[0].task.ending == "KILL" else None}


def table(rows: list[Cell]) -> str:
    """For people."""
    names = "kind", "ending", "method", "kills", "survivors", "missed", "unnamed", "median", "p99", "worst ms"
    lines = ["{:20} {:7} {:7} {:>5} {:>9} {:>6} {:>7} {:>8} {:>8} {:>8}".format(*names)]
    for row in rows:
        method = "marker" if (row["ending"], row["method"]) == ("keeper", "walk") else row["method"]
        times = " ".join(
            f"{'-' if row[name] is None else row[name]:>8}" for name in ("median_ms", "p99_ms", "worst_ms")
        )
        lines.append(
            f"{row['kind']:20} {row['ending']:7} {method:7} {row['kills']:5} {row['survivors']:9} "
            f"{row['missed_rounds']:6} {row['unnamed_rounds']:7} {times}"
        )
    return "\n".join(lines)
