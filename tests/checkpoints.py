"""A checkpoint to be written and read."""

from __future__ import annotations

from msgspec import Struct

from clisup.daemon.runs.checkpoint import Checkpoint
from clisup.model.sessions.ledger import Position
from clisup.policy.watchdog import PhaseTracker
from clisup.store.session_dir import RunDir

__all__ = ["RUN", "checkpoint_with"]

RUN = RunDir("/nowhere/sessions/s/runs/1")


def checkpoint_with(state: Struct | None) -> Checkpoint:
    """Return a checkpoint with this state of a decoder."""
    tracker = PhaseTracker(started=True, tools={"toolu_1": "Bash"}, background=[])
    return Checkpoint("t1", {"out": 7, "err": 0}, Position(3, 7, 1), state, tracker, 2, reset=True)
