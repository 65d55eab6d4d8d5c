"""A session's budget: prompts are refused and queued turns end where it is used up, and the turn that uses it up is ended.

The limits are those of `session/new`, or of the last `session/set_budget`; what was used is folded from the journal, so a
restart changes nothing. A turn's cost is what its CLI reports, else an estimate from the list of prices.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from msgspec.structs import replace

from clisup.daemon.notification import Wake
from clisup.daemon.sessions.recorder import Item
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
from clisup.model.sessions.budget import ENDING, Budget, Limit, Used, breach_of, error_of, limits_of, told, used_of
from clisup.model.sessions.ledger import Turn
from clisup.model.usage import Usage, whole_usd
from clisup.policy.ladder import ladder_for

if TYPE_CHECKING:
    from clisup.daemon.runs.run import Run
    from clisup.daemon.sessions.session import Session

__all__ = ["Budgets"]

_LAST_WORDS = frozenset({"end_turn", "stop_sequence", "refusal"})
"""After a message that stopped for these the model has no more to say: nothing is saved by ending the turn then."""


class Budgets:
    """One session's."""

    __slots__ = ("_answered", "_began", "_limits", "_news", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._limits: tuple[dict[str, Any] | None, Budget | None] = (None, limits_of(session.spec.budget, None))
        self._news = Wake()
        self._answered = False  # the model's last word of the turn has come
        self._began: tuple[str, float] = ("", 0.0)  # the running turn, and when it began by the clock of timers

    @property
    def limits(self) -> Budget | None:
        """The limits that hold; None where there are none."""
        changed = self._session.ledger.budget
        if changed is not self._limits[0]:
            self._limits = (changed, limits_of(self._session.spec.budget, changed))
        return self._limits[1]

    def used(self) -> Used:
        """What was used up to now, in the running turn too."""
        turn = self._session.ledger.current
        if turn is None:
            return used_of(self._session.ledger)
        spending, seconds = turn.spending, self._lap(turn)
        cost = self._session.services.prices().cost(spending.by_model)
        return used_of(self._session.ledger, running=spending.usage, running_usd=cost, running_s=seconds)

    def told(self) -> dict[str, Any] | None:
        """As `session/get` shows it; None where there is no budget."""
        return None if (limits := self.limits) is None else told(limits, self.used())

    def _lap(self, turn: Turn) -> float:
        """Seconds since the turn began. What lies before this daemon, only the wall clock knows."""
        if turn.began is None:
            return 0.0
        if self._began[0] != turn.id:
            before = max(0.0, clock.age_of(turn.began) - turn.paused_s)
            self._began = (turn.id, clock.monotonic() - before)
        return clock.monotonic() - self._began[1]

    # -- before a turn

    def refuse(self, *, among: tuple[Limit, ...] | None = None) -> None:
        """Raises `UsageError(budget_exhausted)` where another prompt would find nothing left; queued ones count as turns."""
        if (limits := self.limits) is None:
            return
        used = self.used()
        used = used._replace(turns=used.turns + len(self._session.ledger.queue))
        breach = breach_of(limits, used, among=among) if among else breach_of(limits, used)
        if breach is not None:
            raise UsageError(
                f"cannot prompt session {self._session.id}, because {breach.words}",
                kind="budget_exhausted",
                hint="raise it with session/set_budget (clisup set), or open a new session",
                **breach._asdict(),
            )

    async def end_queued(self, turn: Turn) -> bool:
        """Where the budget is used up, end a turn of the queue without a start. False where it may begin."""
        session = self._session
        if self.limits is None or (breach := breach_of(self.limits, self.used())) is None:
            return False
        done = TurnCompleted(outcome="failed", error=error_of(breach, started=False))
        await session.gate.end(turn, done)
        return True

    # -- during a turn

    def see(self, event: EventBase) -> None:
        """An event of the run is about to be journaled."""
        match event:
            case MessageStart(parent_tool_use_id=None) | TurnStarted():
                self._answered = False
            case MessageStop(parent_tool_use_id=None, stop_reason=reason):
                self._answered = reason in _LAST_WORDS
        if self.limits is not None and isinstance(event, MessageStop | UsageReport | TurnStarted):
            self._news.set()

    async def attend(self, run: Run) -> None:
        """End the run's turn as soon as it reaches a limit, until cancelled."""
        while True:
            self._news.begin()
            with trio.move_on_after(self._look(run)):
                await self._news.wait()

    def _look(self, run: Run) -> float:
        """Seconds until it has to be looked at again, at the latest."""
        turn, limits = self._session.ledger.current, self.limits
        if limits is None or turn is None or run.turn is not turn or turn.ending is not None:
            return math.inf
        used = self.used()
        among: tuple[Limit, ...] = ("wall_s",) if self._answered else ENDING
        if (breach := breach_of(limits, used, among=among)) is not None:
            error = msgspec.to_builtins(error_of(breach, started=True))
            run.end("budget", ladder_for("graceful", self._session.timeouts), error=error)
            return math.inf
        return math.inf if limits.wall_s is None else max(0.0, limits.wall_s - used.wall_s)

    # -- after a turn

    def settled(
        self, done: TurnCompleted, memo: dict[str, Any], turn: Turn | None
    ) -> tuple[TurnCompleted, dict[str, Any]]:
        """A turn's end with what its CLI has told on the way where it told no usage at the end, and with a cost where it told none.

        `turn` is the one that ends; None for one that has never begun. Where the end tells less than the way did, the memo says
        how much more counts.
        """
        if turn is None:
            return done, memo
        done = self._priced(done, turn.spending.by_model)
        more = (turn.spending.usage.total_tokens or 0) - (done.usage.total_tokens or 0)
        return done, memo | {"more_tokens": more} if more > 0 else memo

    def _priced(self, done: TurnCompleted, spent: dict[str, Usage]) -> TurnCompleted:
        usage, told_on_the_way = done.usage, sum(spent.values(), Usage())
        if usage.total_tokens is None and told_on_the_way.total_tokens is not None:
            usage = replace(told_on_the_way, source="estimated")
        changes: dict[str, Any] = {} if usage is done.usage else {"usage": usage}
        estimated = done.cost_source == "estimated"
        if (done.cost_usd is None or estimated) and usage.total_tokens is not None:
            if told_on_the_way.total_tokens != usage.total_tokens:
                spent = {self._session.ledger.model or self._session.setting("model") or "": usage}
            if (cost := self._session.services.prices().cost(spent, own=estimated)) is not None:
                changes |= {"cost_usd": whole_usd(cost), "cost_source": "estimated"}
        return replace(done, **changes) if changes else done

    # -- what clients ask

    async def set(self, budget: Budget, actor: Actor) -> dict[str, Any] | None:
        """Other limits from now on, in the place of all that were there. Gives what `told` does.

        Raises `UsageError(session_closed)`, `WorldError`: shutting_down, storage_failed.
        """
        session = self._session
        session.shutdown.check_open()
        words = ", ".join(f"{name} {value:.10g}" for name, value in budget.limits.items()) or "without limits"
        notice = Notice(code="budget_set", message=f"the budget is now: {words}", data=budget.limits, actor=actor)
        session.recorder.record([Item(notice, memo={"budget": budget.limits})])
        await session.sync()
        self._news.set()
        session.work_came()
        return self.told()
