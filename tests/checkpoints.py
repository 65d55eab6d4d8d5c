"""A checkpoint to be written and read."""

from __future__ import annotations

from typing import Any

from clisup.daemon.runs.checkpoint import Checkpoint
from clisup.model.sessions.ledger import Position
from clisup.policy.watchdog import PhaseTracker

__all__ = ["checkpoint_with"]


def checkpoint_with(state: dict[str, Any]) -> Checkpoint:
    tracker = PhaseTracker(started=True, tools={"toolu_1": "Bash"}, background={"task": None})
    return Checkpoint("t1", {"out": 7, "err": 0}, Position(3, 7, 1), state, tracker, 2, reset=True)
