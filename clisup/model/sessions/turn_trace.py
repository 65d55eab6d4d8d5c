"""Traces of turns in a journal, for comparison with a CLI's own transcript. A fork uses the traces to find its cut.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

WATCHED = frozenset({"turn_started", "message", "turn_completed"})
"""Event types that `TurnTraces` reads."""


class RunMark(NamedTuple):
    """Mark of a run from the intent: the turn that needed the run, and the transcript's size before the run."""

    run: int
    turn_id: str
    at: int


class TurnTrace(Struct):
    """Trace of a started turn. `message_ids` are the main conversation's message ids, in the order of the CLI's report.

    `prompt_bytes` and `prompt_preview` (redacted, cut) describe the client's original prompt. The output of the turn's
    run is in the transcript from the byte `at` up to before the byte `until`; None if unknown.
    """

    turn_id: str
    run: int
    prompt_bytes: int | None = None
    prompt_preview: str | None = None
    message_ids: list[str] = field(default_factory=list)
    done: bool = False
    at: int | None = None
    until: int | None = None


class TurnTraces:
    """Fold of a journal's events into traces, in the order of the turns' starts."""

    def __init__(self) -> None:
        self._turns: dict[str, TurnTrace] = {}

    def apply(self, event: Mapping[str, Any]) -> None:
        """Fold one event of `WATCHED`; others change nothing."""
        turn_id = str(event.get("turn_id"))
        if event["type"] == "turn_started":
            size, preview = event.get("prompt_bytes"), event.get("prompt_preview")
            self._turns[turn_id] = TurnTrace(turn_id, int(event["run"]), size, preview)
        elif (turn := self._turns.get(turn_id)) is None:
            return
        elif event["type"] == "turn_completed":
            turn.done = True
        elif event["type"] == "message" and event.get("parent_tool_use_id") is None and event.get("message_id"):
            turn.message_ids.append(str(event["message_id"]))

    def located(self, marks: Sequence[RunMark]) -> list[TurnTrace]:
        """Return the traces with the places in the transcript.

        A turn may have had more runs than the run of `turn_started`.
        """
        turns = list(self._turns.values())
        for turn in turns:
            own = [mark for mark in marks if mark.turn_id == turn.turn_id or mark.run == turn.run]
            last = max((mark.run for mark in own), default=turn.run)
            turn.at = own[0].at if own else None
            turn.until = next((mark.at for mark in marks if mark.run > last), None)
        return turns
