"""Facts about a turn from a session's journal, for a recording of the turn. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from clisup.model.journal import Record
from clisup.model.sessions.ledger import Ledger
from clisup.model.sessions.turn_state import SpoolPlace, TurnEnding
from clisup.model.structs import JsonObject


@dataclass(slots=True)
class TurnFacts:
    """Facts about a turn on its last run.

    `begin` and `end` bound the turn's part of the spools. Without `end` the part goes up to the ends of the spools.
    `marks` are the places in stdout of the turn's events, with the times in the journal. `cost_total_usd` and
    `usage_total` are the CLI's running totals before the turn.
    """

    id: str
    run: int
    began: str
    begin: SpoolPlace
    prompt_preview: str | None = None
    prompt_bytes: int | None = None
    background: dict[str, str | None] | list[str] = field(default_factory=dict)
    cost_total_usd: float | None = None
    usage_total: JsonObject | None = None
    version: str | None = None
    argv: list[str] = field(default_factory=list)
    env_names: list[str] = field(default_factory=list)
    ending: TurnEnding | None = None
    exited: JsonObject | None = None
    completed: JsonObject | None = None
    marks: list[tuple[int, str]] = field(default_factory=list)
    end: SpoolPlace | None = None

    @property
    def timing(self) -> list[tuple[int, float]]:
        """Return pairs (offset in the turn's stdout, seconds since the beginning): the last offset of each moment."""
        pairs: list[tuple[int, float]] = []
        for end, ts in self.marks:
            at = (end - self.begin["out"], seconds_between(self.began, ts))
            if pairs and pairs[-1][1] == at[1]:
                pairs.pop()
            pairs.append(at)
        return pairs


def seconds_between(earlier: str, later: str) -> float:
    """Return the seconds between two times of the journal, or 0 if the wall clock was set back."""
    gone = datetime.fromisoformat(later) - datetime.fromisoformat(earlier)
    return max(0.0, round(gone.total_seconds(), 6))


class TurnBook:
    """Fold of a journal to the facts of a single turn: the `wanted` turn, else the last ended turn with a run."""

    def __init__(self, wanted: str | None = None) -> None:
        self._wanted = wanted
        self._ledger = Ledger()
        self._now: TurnFacts | None = None
        self._last: TurnFacts | None = None
        self._version: str | None = None
        self.found: TurnFacts | None = None
        self.seen: set[str] = set()

    def apply(self, record: Record) -> None:
        """Fold one record."""
        event, memo = record.event, record.memo or {}
        if event is not None and event["type"] == "turn_started":
            self._begin(event, memo)
        self._ledger.apply(record)
        if event is None:
            return
        if event.get("turn_id"):
            self.seen.add(str(event["turn_id"]))
        if self._now is not None:
            self._note(self._now, event, record)

    def _begin(self, event: JsonObject, memo: Mapping[str, Any]) -> None:
        begin = memo.get("begin") or SpoolPlace(out=0, err=0)
        before, ledger = self._last, self._ledger
        if before is not None and before.run == event["run"]:
            before.end = begin
        now = TurnFacts(str(event["turn_id"]), int(event["run"]), event["ts"], begin)
        now.prompt_preview, now.prompt_bytes = event.get("prompt_preview"), event.get("prompt_bytes")
        now.background = memo.get("background") or {}
        now.cost_total_usd, now.usage_total = ledger.cost_total_usd, ledger.usage_total
        if before is not None and before.run == now.run:  # the same process
            now.argv, now.env_names = before.argv, before.env_names
        now.version = self._version
        self._now = now

    def _note(self, turn: TurnFacts, event: JsonObject, record: Record) -> None:
        memo, src = record.memo or {}, record.src
        if "run" in memo:  # another run replaced a run that did nothing
            turn.run, turn.began, turn.begin = memo["run"], event["ts"], memo["begin"]
            turn.marks.clear()
        if "ending" in memo:
            turn.ending = memo["ending"]
        if src is not None and src.run == turn.run and src.spool == "out":
            turn.marks.append((src.end, event["ts"]))
        match event["type"]:
            case "process_started":
                turn.argv, turn.env_names = list(event.get("argv") or ()), list(event.get("env_names") or ())
            case "session_init":
                turn.version = self._version = event.get("backend_version") or self._version
            case "process_exited":
                turn.exited = event
            case "turn_completed" if event.get("turn_id") == turn.id:
                turn.completed, self._now, self._last = event, None, turn
                if self._wanted in (None, turn.id):
                    self.found = turn
