"""Check of `clisup doctor` on the targets of `[[notify]]`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

__all__ = ["notify_verdict"]

_FIX = "run clisup notify test, which shows the answer; correct the [[notify]] table, then: clisup daemon reload"


def notify_verdict(rows: Sequence[Mapping[str, object]]) -> tuple[Literal["ok", "warn"], str, str] | None:
    """Return the verdict on targets, as `notify/list` describes them. Without targets there is none."""
    failing = [f"{row['name']} since {row['failing_since']}: {row['error']}" for row in rows if row["error"]]
    lost = [f"{row['given_up']} of {row['name']}" for row in rows if row["given_up"]]
    if failing:
        return "warn", f"messages fail: {'; '.join(failing)}", _FIX
    if lost:
        return "warn", f"messages given up since the daemon's start: {', '.join(lost)}", _FIX
    return ("ok", ", ".join(str(row["name"]) for row in rows), "") if rows else None
