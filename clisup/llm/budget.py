"""Budgets of a program for all its calls of models. `reserve` refuses before a call, `settle` counts the call afterwards.

    budget = Budget(usd=2.0, iterations=50)
    with budget.reserve() as call:          # raises BudgetExhausted
        completion = await chat_to_the_end()
        call.settle(completion)

A budget knows nothing of models and never waits: one lock serves threads and tasks. The daemon has limits of its own for a
session (`SessionBudget`). `Reservation.session_budget` passes the rest of this budget to the daemon.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, NamedTuple, Self

import trio

from clisup.llm.answers import Completion, Cost, FinishReason, sum_of_known
from clisup.llm.chat import Chat, SessionBudget
from clisup.llm.failures import BackendUnavailable, BudgetExhausted, DaemonUnavailable, Failed, Unsupported, usage_error
from clisup.llm.messages import Prompt
from clisup.llm.streams import stream_of
from clisup.model.usage import UNKNOWN_USAGE, Usage, whole_usd


@dataclass(frozen=True, slots=True)
class Spent:
    """Use of models. `tokens` and `usd` are the known parts: lower bounds if `unknown_tokens` or `unknown_usd` answers lack them.

    `wall_s` runs from the first reservation on.
    """

    iterations: int = 0
    answers: int = 0
    usage: Usage = UNKNOWN_USAGE
    cost: Cost | None = None
    unknown_tokens: int = 0
    unknown_usd: int = 0
    wall_s: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens of input, cached or not, and output."""
        return self.usage.total_tokens or 0

    @property
    def usd(self) -> float:
        """Dollars, reported or estimated."""
        return 0.0 if self.cost is None else self.cost.usd

    @classmethod
    def of(cls, completion: Completion | None) -> Spent:
        """Return the use of one answer. None means a failed answer of unknown use.

        An answer that stops at the caller's tools counts nothing: the answer that ends the turn has the whole use.
        """
        if completion is None:
            return cls(answers=1, unknown_tokens=1, unknown_usd=1)
        usage, cost = completion.usage, completion.cost
        if completion.finish_reason is FinishReason.TOOL_CALLS and usage == UNKNOWN_USAGE and cost is None:
            return cls(answers=1)
        told = usage.total_input_tokens is not None and usage.output_tokens is not None
        return cls(0, 1, usage, cost, unknown_tokens=int(not told), unknown_usd=int(cost is None))

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.iterations + other.iterations,
            self.answers + other.answers,
            self.usage + other.usage,
            sum_of_known((self.cost, other.cost)),
            self.unknown_tokens + other.unknown_tokens,
            self.unknown_usd + other.unknown_usd,
            self.wall_s + other.wall_s,
        )

    def __str__(self) -> str:
        usd = "an unknown cost" if self.cost is None else f"{'~' * (self.cost.source == 'estimated')}${self.usd:.4f}"
        told = self.usage.total_tokens is not None or self.answers == 0
        tokens = f"{self.tokens} tokens" if told else "an unknown number of tokens"
        iterations = f"{self.iterations} iteration{'s' * (self.iterations != 1)}"
        unknown = max(self.unknown_tokens, self.unknown_usd)
        more = f", {unknown} of {self.answers} answers not wholly known" if unknown else ""
        return f"{usd}, {tokens}, {iterations}, {self.wall_s:.1f} s{more}"


class Left(NamedTuple):
    """Rest of a budget, never below zero. None means no limit."""

    usd: float | None = None
    tokens: int | None = None
    iterations: int | None = None
    wall_s: float | None = None


_LEAST_USD, _LEAST_S = 1e-6, 0.001
"""Limits of a session when nothing is left: a limit of 0 would mean no limit."""
_logger = logging.getLogger("clisup.llm.budget")  # the program's own log, unlike docs/reference/observe.md


class Budget:
    """Limits of US dollars, tokens, iterations and seconds. None means no limit; every limit is above 0.

    `sub` makes a budget within this one. The use of a sub-budget counts in all budgets above it.

    Unknown cost or tokens count as unknown, never as zero. With `unknown="tell"`, the first unknown answer under such a limit logs
    a warning. With `unknown="refuse"`, it ends the budget. `clock` returns monotonic seconds.
    """

    def __init__(
        self,
        *,
        usd: float | None = None,
        tokens: int | None = None,
        iterations: int | None = None,
        wall_s: float | None = None,
        name: str = "the budget",
        unknown: Literal["tell", "refuse"] = "tell",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        limits = {"usd": usd, "tokens": tokens, "iterations": iterations, "wall_s": wall_s}
        for which, limit in limits.items():
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, Real) or not limit > 0):
                raise usage_error(
                    f"the limit {which}={limit!r:.50} is not an int or a float above 0", "leave it out for no limit"
                )
        self.name, self.unknown = name, unknown
        self.limits = Left(usd, tokens, iterations, wall_s)
        self._clock, self._lock = clock, threading.Lock()
        self._parent: Budget | None = None
        self._passes_iterations = True
        self._spent, self._held_usd, self._held_tokens = Spent(), 0.0, 0
        self._began: float | None = None
        self._told: set[str] = set()
        self._witnessed: set[str] = set()

    def sub(
        self,
        *,
        usd: float | None = None,
        tokens: int | None = None,
        iterations: int | None = None,
        wall_s: float | None = None,
        name: str = "a part of the budget",
        own_iterations: bool = False,
    ) -> Budget:
        """Return a budget within this one. Siblings share the rest of this budget.

        With `own_iterations`, its iterations do not count here: a workflow counts rounds, not the calls within a round.
        """
        child = Budget(
            usd=usd,
            tokens=tokens,
            iterations=iterations,
            wall_s=wall_s,
            name=name,
            unknown=self.unknown,
            clock=self._clock,
        )
        child._parent, child._lock, child._passes_iterations = self, self._lock, not own_iterations
        return child

    @property
    def spent(self) -> Spent:
        """Use so far, here and in budgets below, without running calls."""
        with self._lock:
            return replace(self._spent, wall_s=self._elapsed())

    @property
    def left(self) -> Left:
        """Rest by the limits here and above, without reserved amounts."""
        with self._lock:
            return self._left(0.0, 0)

    def reserve(self, *, iterations: int = 1, usd: float = 0.0, tokens: int = 0) -> Reservation:
        """Reserve a call. Raises `BudgetExhausted` at a limit here or above, and then counts nothing.

        `usd` and `tokens` are held back until the call is settled, so that parallel calls stay within the limit together. Without
        them, each call may begin while anything is left.
        """
        if iterations < 0 or usd < 0 or tokens < 0:
            raise usage_error("a reservation has a negative amount", "give amounts of 0 and more")
        with self._lock:
            now = self._clock()
            self._refuse(now, iterations, usd, tokens)
            self._begin(now)
            for budget, count in self._chain(iterations):
                budget._spent = replace(budget._spent, iterations=budget._spent.iterations + count)
                budget._held_usd += usd
                budget._held_tokens += tokens
        return Reservation(self, iterations, usd, tokens)

    def above(self) -> tuple[Budget, ...]:
        """Return the budgets above this one, the nearest first."""
        return tuple(budget for budget, _ in self._chain(0))[1:]

    def settle(self, completion: Completion | None) -> None:
        """Count an answer without reservation. None means an answer of unknown use."""
        self.charge(Spent.of(completion))

    def check(self, *, iterations: int = 1) -> None:
        """Raise `BudgetExhausted` if `reserve` would raise it now. Count and hold nothing."""
        with self._lock:
            self._refuse(self._clock(), iterations, 0.0, 0)

    def session_budget(self) -> SessionBudget:
        """Return the rest as a session's budget: `ChatOptions(budget=...)`. A reservation adds its own held amounts."""
        return _for_session(self.left)

    def begin(self) -> None:
        """Start the seconds here and above, as the first reservation does."""
        with self._lock:
            self._begin(self._clock())

    def charge(self, spent: Spent, *, once: str | None = None) -> None:
        """Count earlier use, such as that of a resumed workflow's trace. Never refuses.

        Use of a name `once` counts one time only, and not at all after `witness` of that name.
        """
        with self._lock:
            if once is None or once not in self._witnessed:
                self._charge(spent)
                self._witnessed.update(() if once is None else (once,))

    def witness(self, name: str) -> None:
        """Note that the use of this name has been counted."""
        with self._lock:
            self._witnessed.add(name)

    # -- under the lock -------------------------------------------------------------------------------------------------

    def _chain(self, iterations: int) -> Iterator[tuple[Budget, int]]:
        """Return this budget and all above it, each with the iterations that count there."""
        budget: Budget | None = self
        while budget is not None:
            yield budget, iterations
            iterations = iterations if budget._passes_iterations else 0
            budget = budget._parent

    def _begin(self, now: float) -> None:
        for budget, _ in self._chain(0):
            budget._began = now if budget._began is None else budget._began

    def _elapsed(self) -> float:
        running = 0.0 if self._began is None else self._clock() - self._began
        return self._spent.wall_s + running

    def _refuse(self, now: float, iterations: int, usd: float, tokens: int) -> None:
        for budget, count in self._chain(iterations):
            budget._refuse_own(now, count, usd, tokens)

    def _refuse_own(self, now: float, iterations: int, usd: float, tokens: int) -> None:
        limits, spent = self.limits, self._spent
        elapsed = spent.wall_s + (0.0 if self._began is None else now - self._began)
        parts: tuple[tuple[str, float | None, float, float, int], ...] = (
            ("iterations", limits.iterations if iterations else None, spent.iterations, iterations, 0),
            ("usd", limits.usd, whole_usd(spent.usd + self._held_usd), usd, spent.unknown_usd),
            ("tokens", limits.tokens, spent.tokens + self._held_tokens, tokens, spent.unknown_tokens),
            ("wall_s", limits.wall_s, elapsed, 0.0, 0),
        )
        for which, limit, used, more, unknown in parts:
            if limit is None:
                continue
            if used >= limit or whole_usd(used + more) > limit:
                why, hint = f"is used up: {used:.6g} of {limit:g} {which}", "stop here, or raise the limit"
                raise BudgetExhausted(
                    f"{self.name} {why}", hint=hint, which=which, limit=limit, used=used, budget=self.name
                )
            if unknown and self.unknown == "refuse":
                why = f"of {limit:g} {which} cannot be checked: {unknown} answers came without their {which}"
                hint = 'limit iterations or wall_s for this model, or set unknown="tell"'
                raise BudgetExhausted(
                    f"{self.name} {why}", hint=hint, which=which, limit=limit, used=None, budget=self.name
                )

    def _charge(self, spent: Spent, *, held_usd: float = 0.0, held_tokens: int = 0) -> None:
        for budget, iterations in self._chain(spent.iterations):
            budget._spent = budget._spent + replace(spent, iterations=iterations)
            budget._held_usd = max(0.0, budget._held_usd - held_usd)
            budget._held_tokens -= held_tokens
            budget._tell("usd", budget.limits.usd, spent.unknown_usd)
            budget._tell("tokens", budget.limits.tokens, spent.unknown_tokens)

    def _tell(self, which: str, limit: float | None, unknown: int) -> None:
        if limit is not None and unknown and which not in self._told:
            self._told.add(which)
            _logger.warning(
                "%s cannot hold its limit of %g %s: an answer came without them and counts as unknown",
                self.name,
                limit,
                which,
            )

    def _left(self, own_usd: float, own_tokens: int) -> Left:
        """Return the rest by all limits from here up, with the given own held amounts."""
        return _lowest(budget._own_left(count, own_usd, own_tokens) for budget, count in self._chain(1))

    def _own_left(self, iterations: int, own_usd: float, own_tokens: int) -> Left:
        usd, tokens, rounds, wall_s = self.limits
        return Left(
            None if usd is None else max(0.0, whole_usd(usd - self._spent.usd - self._held_usd + own_usd)),
            None if tokens is None else max(0, tokens - self._spent.tokens - self._held_tokens + own_tokens),
            None if rounds is None or not iterations else max(0, rounds - self._spent.iterations),
            None if wall_s is None else max(0.0, wall_s - self._elapsed()),
        )


class Reservation:
    """Reserved call, to settle once. As a context manager, an open reservation settles as unknown.

    `release` a call that never began, and its iteration does not count either. Safe from any thread.
    """

    def __init__(self, budget: Budget, iterations: int, usd: float, tokens: int) -> None:
        self._budget, self._iterations, self._usd, self._tokens = budget, iterations, usd, tokens
        self._open = True

    @property
    def left(self) -> Left:
        """Rest for this call, its own held amounts included."""
        with self._budget._lock:
            return self._budget._left(*((self._usd, self._tokens) if self._open else (0.0, 0)))

    def session_budget(self) -> SessionBudget:
        """Return the rest as a session's budget: `ChatOptions(budget=call.session_budget())`."""
        return _for_session(self.left)

    def settle(self, completion: Completion | None) -> None:
        """Count the answer. None means a failed answer of unknown use. Raises `UsageError` the second time."""
        self._close(Spent.of(completion))

    def release(self) -> None:
        """Give everything back: the call never began. Raises `UsageError` after `settle`."""
        self._close(Spent(iterations=-self._iterations))

    def _close(self, spent: Spent) -> None:
        with self._budget._lock:
            if not self._open:
                raise usage_error("the reservation was settled or released already")
            self._open = False
            self._budget._charge(spent, held_usd=self._usd, held_tokens=self._tokens)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._open:
            self.settle(None)


def _lowest(lefts: Iterable[Left]) -> Left:
    numbers = zip(Left(), *lefts, strict=True)
    return Left._make(min((n for n in each if n is not None), default=None) for each in numbers)


def _for_session(left: Left) -> SessionBudget:
    return SessionBudget(
        usd=None if left.usd is None else max(_LEAST_USD, left.usd),
        tokens=None if left.tokens is None else max(1, left.tokens),
        wall_s=None if left.wall_s is None else max(_LEAST_S, left.wall_s),
    )


_NEVER_ASKED = (BackendUnavailable, DaemonUnavailable, Unsupported)
"""Refusals that come before the prompt, if no event came before them: the call used nothing."""


def distinct(budgets: Sequence[Budget]) -> tuple[Budget, ...]:
    """Return the budgets without those above another one: a sub-budget charges all above it."""
    above = {id(higher) for budget in budgets for higher in budget.above()}
    kept = {id(budget): budget for budget in budgets if id(budget) not in above}
    return tuple(kept.values())


def admit(budgets: Sequence[Budget], *, iterations: int = 1) -> SessionBudget | None:
    """Return the common rest as a session's budget, or None for no limit. Raises `BudgetExhausted`. Count nothing."""
    for budget in budgets:
        budget.check(iterations=iterations)
    held = _for_session(_lowest(budget.left for budget in budgets))
    return held if held.to_wire() else None


async def ask_within(
    budgets: Sequence[Budget], chat: Chat, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None
) -> Completion:
    """Return the whole answer to a prompt. Raises `LLMError`s, and `BudgetExhausted` before the prompt or after `wall_s`."""
    with ExitStack() as stack:
        calls = [stack.enter_context(call) for call in _reserved(budgets)]
        completion = await _answered(chat, prompt, output_schema, calls)
        for call in calls:
            call.settle(completion)
        return completion


def _reserved(budgets: Sequence[Budget]) -> list[Reservation]:
    """Reserve a call of all budgets or, if one refuses, of none."""
    calls: list[Reservation] = []
    try:
        calls.extend(budget.reserve() for budget in budgets)  # a refusal keeps the earlier ones
    except BudgetExhausted:
        for call in calls:
            call.release()
        raise
    return calls


async def _answered(
    chat: Chat, prompt: Prompt, output_schema: Mapping[str, Any] | None, calls: Sequence[Reservation]
) -> Completion:
    left_s = _lowest(call.left for call in calls).wall_s
    wall_s = float("inf") if left_s is None else left_s
    completion, heard = None, False
    with trio.move_on_after(wall_s):
        try:
            async with stream_of(chat, prompt, output_schema=output_schema) as events:
                async for _ in events:
                    heard = True
                completion = events.completion
        except _NEVER_ASKED as error:
            if not heard and not error.side_effects:
                for call in calls:
                    call.release()
            raise
    if completion is not None:
        return completion
    if wall_s < float("inf"):
        raise BudgetExhausted(
            f"the answer was cut short: the budget's last {wall_s:.6g} seconds are over",
            hint="give more seconds, or ask for less",
            side_effects=heard,
            which="wall_s",
        )
    raise Failed("the answer ended without a completion", kind="crashed", side_effects=heard)
