"""Budget of a session: a used-up budget ends queued turns, and a reached limit ends the running turn.

The limits come from `session/new` or the last `session/set_budget`. The ledger folds the used amounts from the journal,
so a restart changes nothing. The cost of a turn is the CLI's report, or else an estimate from the price list.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import trio
from msgspec.structs import replace

from clisup.daemon.journal.recorder import Item
from clisup.daemon.runs.run import Run
from clisup.daemon.sessions.context import Notification, SessionContext
from clisup.errors import UsageError
from clisup.host import clock
from clisup.model.events import (
    Actor,
    EventBase,
    MessageStart,
    MessageStop,
    Notice,
    TurnCompleted,
    TurnStarted,
    UsageReport,
)
from clisup.model.sessions.budget import (
    ENDING,
    Budget,
    Limit,
    Used,
    breach_of,
    describe_budget,
    error_of,
    limits_of,
    used_of,
)
from clisup.model.sessions.ledger import TurnRecord
from clisup.model.sessions.turn_state import TurnState
from clisup.model.usage import Usage, whole_usd
from clisup.policy.watchdog import ladder_for

__all__ = ["Budgets"]

_LAST_WORDS = frozenset({"end_turn", "stop_sequence", "refusal"})
"""Stop reasons of a finished model: an end of the turn then saves nothing."""


class Budgets:
    """Budget of a session."""

    __slots__ = ("_answered", "_began", "_context", "_limits", "_news")

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._limits: tuple[dict[str, Any] | None, Budget | None] = (None, limits_of(context.spec.budget, None))
        self._news = Notification()
        self._answered = False  # the model has finished its answer
        self._began: tuple[str, float] = ("", 0.0)  # the running turn, and its start on the monotonic clock

    @property
    def limits(self) -> Budget | None:
        """Return the limits in force, or None."""
        changed = self._context.ledger.budget
        if changed is not self._limits[0]:
            self._limits = (changed, limits_of(self._context.spec.budget, changed))
        return self._limits[1]

    def used(self) -> Used:
        """Return the used amounts, including the running turn."""
        turn = self._context.ledger.current
        if turn is None:
            return used_of(self._context.ledger)
        usage, seconds = turn.spending.usage, self._elapsed(turn)
        return used_of(self._context.ledger, running=usage, running_usd=self.turn_cost(), running_s=seconds)

    def turn_cost(self) -> float | None:
        """Return the cost of the running turn so far, by the price list; None without a turn, usage or a price."""
        turn = self._context.ledger.current
        return self._context.services.prices().cost(turn.spending.by_model) if turn is not None else None

    def describe(self) -> dict[str, Any] | None:
        """Return the budget for `session/get`, or None."""
        return None if (limits := self.limits) is None else describe_budget(limits, self.used())

    def _elapsed(self, turn: TurnRecord) -> float:
        """Return the seconds since the turn began. Only the wall clock knows the part before this daemon."""
        if turn.began is None:
            return 0.0
        if self._began[0] != turn.id:
            before = max(0.0, clock.age_of(turn.began) - turn.paused_s)
            self._began = (turn.id, clock.monotonic() - before)
        return clock.monotonic() - self._began[1]

    # -- before a turn

    def refuse(self, *, among: tuple[Limit, ...] | None = None) -> None:
        """Raise `UsageError(budget_exhausted)` if nothing is left for another prompt. Queued prompts count as turns."""
        if (limits := self.limits) is None:
            return
        used = self.used()
        used = used._replace(turns=used.turns + len(self._context.ledger.queue))
        breach = breach_of(limits, used, among=among) if among else breach_of(limits, used)
        if breach is not None:
            raise UsageError(
                f"session {self._context.id} accepts no prompt: {breach.words}",
                kind="budget_exhausted",
                hint="raise it with session/set_budget (clisup set), or open a new session",
                **breach._asdict(),
            )

    def exhausted(self) -> TurnCompleted | None:
        """Return the end of a queued turn if the budget is used up, else None."""
        if self.limits is None or (breach := breach_of(self.limits, self.used())) is None:
            return None
        return TurnCompleted(outcome="failed", error=error_of(breach, started=False))

    # -- during a turn

    def observe(self, event: EventBase) -> None:
        """Fold an event of the run, just before the event is journaled."""
        match event:
            case MessageStart(parent_tool_use_id=None) | TurnStarted():
                self._answered = False
            case MessageStop(parent_tool_use_id=None, stop_reason=reason):
                self._answered = reason in _LAST_WORDS
        if self.limits is not None and isinstance(event, MessageStop | UsageReport | TurnStarted):
            self._news.notify()

    async def watch(self, run: Run) -> None:
        """End the run's turn at a reached limit. Run until cancelled."""
        while True:
            self._news.clear()
            with trio.move_on_after(self._check(run)):
                await self._news.wait()

    def _check(self, run: Run) -> float:
        """End the turn at a reached limit. Return the seconds until the next check."""
        turn, limits = self._context.ledger.current, self.limits
        if limits is None or turn is None or run.turn is not turn or turn.ending is not None:
            return math.inf
        used = self.used()
        among: tuple[Limit, ...] = ("wall_s",) if self._answered else ENDING
        if (breach := breach_of(limits, used, among=among)) is not None:
            error = msgspec.to_builtins(error_of(breach, started=True))
            run.end("budget", ladder_for("graceful", self._context.timeouts), error=error)
            return math.inf
        return math.inf if limits.wall_s is None else max(0.0, limits.wall_s - used.wall_s)

    # -- after a turn

    def settled(self, done: TurnCompleted, memo: TurnState, turn: TurnRecord | None) -> tuple[TurnCompleted, TurnState]:
        """Complete a turn's end: add the usage reported during the turn, and an estimate for a missing cost.

        `turn` is the ending turn, or None if the turn never began. If the end reports less usage than the turn did
        before, the memo holds the difference.
        """
        if turn is None:
            return done, memo
        done = self._priced(done, turn.spending.by_model)
        more = (turn.spending.usage.total_tokens or 0) - (done.usage.total_tokens or 0)
        return done, memo | TurnState(more_tokens=more) if more > 0 else memo

    def _priced(self, done: TurnCompleted, spent: dict[str, Usage]) -> TurnCompleted:
        usage, reported = done.usage, sum(spent.values(), Usage())
        if usage.total_tokens is None and reported.total_tokens is not None:
            usage = replace(reported, source="estimated")
        changes: dict[str, Any] = {} if usage is done.usage else {"usage": usage}
        estimated = done.cost_source == "estimated"
        if (done.cost_usd is None or estimated) and usage.total_tokens is not None:
            if reported.total_tokens != usage.total_tokens:
                spent = {self._context.ledger.model or self._context.setting("model") or "": usage}
            if (cost := self._context.services.prices().cost(spent, own=estimated)) is not None:
                changes |= {"cost_usd": whole_usd(cost), "cost_source": "estimated"}
        return replace(done, **changes) if changes else done

    # -- requests of clients

    async def set(self, budget: Budget, actor: Actor) -> dict[str, Any] | None:
        """Replace all limits, and return the result of `describe`.

        Raises `UsageError(session_closed)`, `WorldError`: shutting_down, storage_failed.
        """
        context = self._context
        context.check_open()
        words = ", ".join(f"{name} {value:.10g}" for name, value in budget.limits.items()) or "without limits"
        notice = Notice(code="budget_set", message=f"the budget is now: {words}", data=budget.limits, actor=actor)
        context.recorder.record([Item(notice, memo={"budget": budget.limits})])
        await context.sync()
        self._news.notify()
        context.notify()
        return self.describe()
