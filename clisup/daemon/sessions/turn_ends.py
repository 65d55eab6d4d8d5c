"""Ends of turns: each turn has exactly one `turn_completed`, for any kind of end."""

from __future__ import annotations

import trio
from msgspec.structs import replace

from clisup.daemon.approvals.queue import ApprovalQueue
from clisup.daemon.journal.recorder import Item
from clisup.daemon.limits.budgets import Budgets
from clisup.daemon.limits.rate_limit_gate import RateLimitGate
from clisup.daemon.runs.leftovers import end_run
from clisup.daemon.sessions.context import SessionContext
from clisup.errors import WorldError
from clisup.host import clock
from clisup.host.log import event_logger
from clisup.host.shortage import shortage_of
from clisup.model.events import EventBase, TurnCompleted, TurnError
from clisup.model.sessions.ledger import TurnRecord
from clisup.model.sessions.turn_state import TurnState
from clisup.policy.rate_limit import with_wait
from clisup.policy.spill import Blob

__all__ = ["GIVE_UP_PAUSE_S", "TurnEnds"]

GIVE_UP_PAUSE_S = 1.0
"""Pause before the next try to end a turn after a fault inside the daemon."""
HEAD_CHARACTERS = 4096
"""Characters of a long final text in the event."""
_log = event_logger()


class TurnEnds:
    """Makes and journals the ends of a session's turns."""

    def __init__(
        self, context: SessionContext, budgets: Budgets, gate: RateLimitGate, approvals: ApprovalQueue
    ) -> None:
        self._context = context
        self._budgets = budgets
        self._gate = gate
        self._approvals = approvals

    def observe(self, events: list[EventBase]) -> None:
        """Pass events to the account and the budget, just before the events are journaled."""
        self._gate.account.observe(*events)
        for event in events:
            self._budgets.observe(event)

    def completion(self, done: TurnCompleted, memo: TurnState, *, turn_id: str | None = None) -> Item:
        """Return the end of a turn, ready for the journal.

        Raises `WorldError(storage_failed)` if a long text cannot be stored.
        """
        current = self._context.ledger.current
        turn_id = turn_id or (current.id if current else None)
        turn = current if current and current.id == turn_id else None
        if done.error is not None:  # a gateway may quote the key that it refuses, and messages go to phones
            done = replace(done, error=replace(done.error, message=self._context.redact(done.error.message)))
        done, memo = self._budgets.settled(done, memo, turn)
        done = _with_denied(self._spilled(done, current.run if current else 0), turn)
        self._gate.account.observe(done)
        done = with_wait(done, self._gate.account.limit, clock.wall())
        return Item(done, turn_id, memo=memo or None)

    def _spilled(self, done: TurnCompleted, run: int) -> TurnCompleted:
        """Move a final text over the inline limit into a blob."""
        context = self._context
        if len(done.text) <= context.backend.config.limits.inline_bytes:
            return done
        blob = Blob(f"blob-{run}-out-final.{context.ledger.turns}", done.text.encode())
        with context.services.storage.watched():
            context.dir.run(run).save_blob(blob.name, blob.data)
        return replace(done, text=done.text[:HEAD_CHARACTERS], blob=blob.name)

    async def end(self, turn_id: str, done: TurnCompleted) -> None:
        """Journal the end of a turn without a run's report, after the ends of its open approvals."""
        completed = lambda: self._approvals.closed_with(self.completion(done, TurnState(), turn_id=turn_id))  # noqa: E731
        await self._context.recorder.record_with_retry(completed)
        self._approvals.refuse_answers()

    async def end_queued(self, turn: TurnRecord, done: TurnCompleted) -> None:
        """End a queued turn, unless a client cancelled the turn while the disk refused the write."""
        context = self._context

        def items() -> list[Item]:
            return (
                [self.completion(done, TurnState(), turn_id=turn.id)]
                if context.ledger.turn(turn.id) is not None
                else []
            )

        await context.recorder.record_with_retry(items)
        context.dir.drop_prompt(turn.id)

    # -- faults of the daemon ----------------------------------------------------------------------------------------

    async def give_up(self, error: Exception) -> None:
        """End the running or next turn after a fault inside the daemon. Retry until success."""
        while True:
            try:
                return await self._give_up(error)
            except Exception:  # out of memory, for example
                _log.exception("turn not ended inside the daemon", session=self._context.id, again_in_s=GIVE_UP_PAUSE_S)
            await trio.sleep(GIVE_UP_PAUSE_S)

    async def _give_up(self, error: Exception) -> None:
        ledger = self._context.ledger
        turn = ledger.current or (ledger.queue[0] if ledger.queue else None)
        if turn is None:
            return
        if turn.run:  # this run has no watcher, and the next turn needs the native session alone
            await end_run(self._context.dir.run(turn.run))
        await self.end(turn.id, TurnCompleted(outcome="failed", error=_fault(error)))


def _fault(error: Exception) -> TurnError:
    """Return the turn's error for a fault inside the daemon."""
    if (shortage := shortage_of(error)) is not None:
        return TurnError(kind="overloaded", message=f"{shortage.message}; {shortage.hint}", retryable=True)
    if isinstance(error, WorldError):
        return TurnError(kind="storage_failed", message=f"{error.message}; {error.hint}")
    return TurnError(kind="protocol", message="the daemon could not go on with this turn; its log says why")


def _with_denied(done: TurnCompleted, turn: TurnRecord | None) -> TurnCompleted:
    """Add the denied tools of the turn: not every CLI reports denials at the end."""
    if turn is None or not turn.denied:
        return done
    return replace(done, denied=tuple(dict.fromkeys((*done.denied, *turn.denied))))
