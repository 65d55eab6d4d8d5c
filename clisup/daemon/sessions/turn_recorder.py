"""Recorder of the events of a run, under the turn of each event."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from clisup.backends.base import Background, Carried, background_of
from clisup.daemon.approvals.queue import ApprovalQueue
from clisup.daemon.journal.recorder import Item
from clisup.daemon.sessions.context import SessionContext
from clisup.daemon.sessions.turn_ends import TurnEnds
from clisup.host import clock
from clisup.model.events import Actor, ApprovalRequested, ContentDelta, TurnError, TurnStarted
from clisup.model.lifecycle import Cause
from clisup.model.sessions.ledger import TurnRecord
from clisup.model.sessions.turn_state import SpoolPlace, TurnEnding, TurnState
from clisup.model.usage import NO_USAGE, Usage
from clisup.model.verdict import ExitRecord, Terminal, conclude

__all__ = ["TurnRecorder", "carried_totals"]


class TurnRecorder:
    """Recorder of a run that serves one turn, and follow-up turns that the CLI begins."""

    def __init__(self, context: SessionContext, approvals: ApprovalQueue, ends: TurnEnds) -> None:
        self._context = context
        self._approvals = approvals
        self._ends = ends
        self._began = clock.monotonic()

    @property
    def turn(self) -> TurnRecord:
        """Return the running turn, or a turn without an id between two turns of a live process."""
        ledger = self._context.recorder.ledger
        turn = ledger.current or ledger.resting
        assert turn is not None, "a run belongs to a turn, or waits for one"
        return turn

    @property
    def carried(self) -> Carried:
        """Return the decoder's input from earlier turns."""
        ledger = self._context.ledger
        nothing_yet = 0.0 if self._context.spec.begins_at_zero else None
        cost = nothing_yet if ledger.cost_total_usd is None else ledger.cost_total_usd
        told = ledger.usage_total or self._context.spec.usage_total
        unused = None if nothing_yet is None else NO_USAGE
        usage = unused if told is None else msgspec.convert(told, Usage)
        return Carried(cost_usd=cost, usage=usage, background=background_of(self.turn.background), agent=ledger.agent)

    def record(self, items: Sequence[Item]) -> int:
        """Journal the items. Raises `WorldError(storage_failed)`."""
        context = self._context
        others = [item.event for item in items if type(item.event) is not ContentDelta]
        if not others:
            return context.recorder.record(items)
        self._ends.observe(others)
        seq = context.recorder.record(items)
        context.services.opened.add(context.id, context.native_id)  # the CLI may have reported its native id
        return seq

    def first_frame(self) -> None:
        """Note the CLI's first output of the turn."""
        self._context.recorder.meter.first_event(clock.monotonic())
        self._context.advance(Cause.FIRST_FRAME)

    def ending(self) -> None:
        """Note that the daemon is ending the run."""
        if self._context.ledger.current is not None:
            self._context.advance(Cause.END)

    def approval_requested(self, event: ApprovalRequested) -> None:
        """Submit a journaled approval request."""
        self._approvals.requested(event)

    def cancel_approvals(self, ending: TurnEnding) -> list[Item]:
        """Cancel the open approvals of an ending turn, and return the items for the journal."""
        actor = ending.get("actor")
        return self._approvals.cancelled("end", msgspec.convert(actor, Actor) if actor else None)

    def lap(self) -> float:
        """Return the seconds since the turn's beginning, and start the next turn's time."""
        now = clock.monotonic()
        lap, self._began = now - self._began, now
        return round(lap, 3)

    def end_turn(self, terminal: Terminal, place: SpoolPlace, background: Background) -> list[Item]:
        """Return the end of a turn by the CLI's terminal frame. The process continues from `place`."""
        done = conclude(
            terminal=terminal,
            record=ExitRecord(reason="exit"),
            ending=self.turn.ending,
            explained=_NO_LAST_WORD,
            duration_s=self.lap(),
        )
        memo = carried_totals(self._context, terminal, answered=True)
        memo |= TurnState(begin=place, background=dict(background))
        return [self._ends.completion(done, memo)]

    def begin_turn(self, place: SpoolPlace, background: Background, prompt_ids: tuple[str, ...]) -> list[Item]:
        """Return the start of a turn that the CLI began: a follow-up, or a steered prompt that the CLI could not merge."""
        steers = self._context.ledger.steers
        steer = next((steers[known] for known in prompt_ids if known in steers), None)
        memo = TurnState(begin=place, background=dict(background))
        event = TurnStarted(
            run=self.turn.run,
            origin="backend" if steer is None else "prompt",
            key=steer.get("key") if steer else None,
            prompt_ids=prompt_ids,
        )
        self.lap()
        return [Item(event, self._context.next_turn_id(), memo=memo)]

    def turn_began(self) -> None:
        """Note the journaled start of a turn begun by the CLI."""

    def idle(self, given_up: frozenset[str]) -> list[Item]:
        """Note that the CLI has nothing left to do. `given_up` are the prompts dropped since the CLI was last idle."""
        return []

    async def somebody_wrote(self) -> bool:
        """Tell whether another program wrote into the transcript since the last turn's end."""
        return False

    def turn_ended(self) -> None:
        """Note the end of a turn. The process waits for the next turn."""


def carried_totals(context: SessionContext, terminal: Terminal | None, *, answered: bool) -> TurnState:
    """Return the CLI's running totals after a turn, as a memo.

    If the model answered and the CLI ended before its report of the total usage, the total is unknown from here on.
    Otherwise the next turn would be charged for this turn.
    """
    carried = TurnState()
    if terminal is not None and terminal.cost_total_usd is not None:
        carried["cost_total_usd"] = terminal.cost_total_usd
    if terminal is not None and terminal.usage_total is not None:
        carried["usage_total"] = msgspec.to_builtins(terminal.usage_total)
    elif answered and context.backend.adapter.capabilities.running_usage:
        carried["usage_total"] = msgspec.to_builtins(Usage())
    return carried


_NO_LAST_WORD = TurnError(kind="crashed", message="the CLI ended without a last word")
