"""Budgets of a program: what its calls of models may cost together. `reserve` refuses before a call, `settle` counts it after.

    budget = Budget(usd=2.0, iterations=50)
    with budget.reserve() as call:          # raises BudgetExhausted
        completion = await chat_to_the_end()
        call.settle(completion)

A budget knows nothing of models and waits for nothing: it is one lock, for threads and tasks alike. The daemon holds a session to
limits of its own (`SessionBudget`); `Reservation.session_budget` is what is left here, for it to hold one call to.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from numbers import Real
from types import TracebackType
from typing import Literal, Self

from clisup.errors import UsageError
from clisup.llm.chat import Completion, SessionBudget
from clisup.llm.failures import BudgetExhausted
from clisup.llm.spending import Left, Spent
from clisup.model.usage import whole_usd

__all__ = ["Budget", "Reservation"]

_LEAST_USD, _LEAST_S = 1e-6, 0.001
"""What a session is given where nothing is left any more: a limit of 0 would be none."""
_logger = logging.getLogger("clisup.llm.budget")  # the program's own log: docs/logs.md has the daemon's


class Budget:
    """At most so many US dollars, tokens, iterations and seconds; None: no limit of that kind. Each must be above 0.

    `sub` gives a module limits of its own within this budget: what it uses, all budgets above it have used.

    An answer whose cost or tokens nobody told is counted as unknown, never as nothing. With `unknown="tell"` a warning is logged
    the first time that a limit of that kind cannot be held because of it; with `unknown="refuse"` nothing more is allowed then.
    `clock` gives seconds that only grow.
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
                raise UsageError(
                    f"cannot hold a budget to {which}={limit!r:.50}, because a limit is an int or a float above 0",
                    kind="usage",
                    hint="leave it out for no limit",
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
        """A budget within this one, for a part of the work. Siblings share what is left here, as it comes.

        With `own_iterations` its iterations are not counted here: a workflow counts its rounds, not the calls within one.
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
        """What was used until now, in this budget and those below it. What is running is not in it."""
        with self._lock:
            return replace(self._spent, wall_s=self._elapsed())

    @property
    def left(self) -> Left:
        """What may still be used, by this budget's limits and those above it; what is reserved is taken off."""
        with self._lock:
            return self._left(0.0, 0)

    def reserve(self, *, iterations: int = 1, usd: float = 0.0, tokens: int = 0) -> Reservation:
        """Before a call. Raises `BudgetExhausted` where a limit is reached here or above, and counts nothing then.

        `usd` and `tokens` are held back until the call is settled, so that calls side by side cannot pass the limit together by
        more than what they were wrong about. Without them, each of them may begin while anything is left.
        """
        if iterations < 0 or usd < 0 or tokens < 0:
            raise UsageError("cannot reserve less than nothing", kind="usage", hint="give amounts of 0 and more")
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
        """The budgets that this one is a part of, the nearest first."""
        return tuple(budget for budget, _ in self._chain(0))[1:]

    def settle(self, completion: Completion | None) -> None:
        """Count an answer that was not reserved with amounts; None: one whose use nobody knows."""
        self.charge(Spent.of(completion))

    def check(self, *, iterations: int = 1) -> None:
        """Raise `BudgetExhausted` where `reserve` would now; nothing is counted or held."""
        with self._lock:
            self._refuse(self._clock(), iterations, 0.0, 0)

    def session_budget(self) -> SessionBudget:
        """What is left, for the daemon to hold a session to: `ChatOptions(budget=...)`. That of a reservation has what it holds itself."""
        return _for_session(self.left)

    def begin(self) -> None:
        """Have the seconds run from now on, here and above; the first reservation does so, too."""
        with self._lock:
            self._begin(self._clock())

    def charge(self, spent: Spent, *, once: str | None = None) -> None:
        """Count what was used elsewhere, or before: a workflow that goes on charges what its trace says. Never refuses.

        What has a name `once` is counted one time only, and not at all where `witness` has named it.
        """
        with self._lock:
            if once is None or once not in self._witnessed:
                self._charge(spent)
                self._witnessed.update(() if once is None else (once,))

    def witness(self, name: str) -> None:
        """What is known by this name is counted already, as it happened."""
        with self._lock:
            self._witnessed.add(name)

    # -- under the lock -------------------------------------------------------------------------------------------------

    def _chain(self, iterations: int) -> Iterator[tuple[Budget, int]]:
        """This budget and all above it, each with the iterations that count there."""
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
            budget._refuse_where_used_up(now, count, usd, tokens)

    def _refuse_where_used_up(self, now: float, iterations: int, usd: float, tokens: int) -> None:
        limits, spent = self.limits, self._spent
        if limits.iterations is not None and iterations and spent.iterations + iterations > limits.iterations:
            raise self._exhausted("iterations", limits.iterations, spent.iterations)
        if limits.usd is not None:
            used = whole_usd(spent.usd + self._held_usd)
            if used >= limits.usd or whole_usd(used + usd) > limits.usd:
                raise self._exhausted("usd", limits.usd, used)
            self._refuse_the_unknown("usd", limits.usd, spent.unknown_usd)
        if limits.tokens is not None:
            held = spent.tokens + self._held_tokens
            if held >= limits.tokens or held + tokens > limits.tokens:
                raise self._exhausted("tokens", limits.tokens, held)
            self._refuse_the_unknown("tokens", limits.tokens, spent.unknown_tokens)
        if limits.wall_s is not None:
            elapsed = spent.wall_s + (0.0 if self._began is None else now - self._began)
            if elapsed >= limits.wall_s:
                raise self._exhausted("wall_s", limits.wall_s, elapsed)

    def _refuse_the_unknown(self, which: str, limit: float, answers: int) -> None:
        if self.unknown == "refuse" and answers:
            raise BudgetExhausted(
                f"cannot ask the model, because {answers} answers came without their {which}: whether {self.name} is within its "
                f"{limit:g} {which} nobody knows",
                kind="budget_exhausted",
                hint='limit iterations or wall_s for this model, or take unknown="tell"',
                which=which,
                limit=limit,
                used=None,
                budget=self.name,
            )

    def _exhausted(self, which: str, limit: float, used: float) -> BudgetExhausted:
        return BudgetExhausted(
            f"cannot ask the model, because {self.name} is used up: {used:.6g} of {limit:g} {which}",
            kind="budget_exhausted",
            hint="stop here, or give it more",
            which=which,
            limit=limit,
            used=used,
            budget=self.name,
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
                "%s cannot hold its %g %s: an answer came without them, and counts as unknown", self.name, limit, which
            )

    def _left(self, own_usd: float, own_tokens: int) -> Left:
        """By all limits from here up; what the asker itself holds is not taken off."""
        usd, tokens, iterations, wall_s = [], [], [], []
        for budget, count in self._chain(1):
            limits, spent = budget.limits, budget._spent
            if limits.usd is not None:
                usd.append(max(0.0, whole_usd(limits.usd - spent.usd - budget._held_usd + own_usd)))
            if limits.tokens is not None:
                tokens.append(max(0, limits.tokens - spent.tokens - budget._held_tokens + own_tokens))
            if limits.iterations is not None and count:
                iterations.append(max(0, limits.iterations - spent.iterations))
            if limits.wall_s is not None:
                wall_s.append(max(0.0, limits.wall_s - budget._elapsed()))
        return Left(
            min(usd, default=None), min(tokens, default=None), min(iterations, default=None), min(wall_s, default=None)
        )


class Reservation:
    """What `reserve` gave: settle it once. As a context manager it settles as unknown what was left open by an exception.

    A call that never began is `release`d: then it was no iteration either. Safe from any thread.
    """

    def __init__(self, budget: Budget, iterations: int, usd: float, tokens: int) -> None:
        self._budget, self._iterations, self._usd, self._tokens = budget, iterations, usd, tokens
        self._open = True

    @property
    def left(self) -> Left:
        """What this call may use: what it holds itself is in it."""
        with self._budget._lock:
            return self._budget._left(*((self._usd, self._tokens) if self._open else (0.0, 0)))

    def session_budget(self) -> SessionBudget:
        """What is left, for the daemon to hold the call to: `ChatOptions(budget=call.session_budget())`."""
        return _for_session(self.left)

    def settle(self, completion: Completion | None) -> None:
        """Count the answer; None: it failed on its way, and what it took is unknown. Raises `UsageError` the second time."""
        self._close(Spent.of(completion))

    def release(self) -> None:
        """Nothing was asked: give all of it back. Raises `UsageError` where it was settled."""
        self._close(Spent(iterations=-self._iterations))

    def _close(self, spent: Spent) -> None:
        with self._budget._lock:
            if not self._open:
                raise UsageError("cannot settle this reservation, because it was settled or released", kind="usage")
            self._open = False
            self._budget._charge(spent, held_usd=self._usd, held_tokens=self._tokens)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._open:
            self.settle(None)


def _for_session(left: Left) -> SessionBudget:
    return SessionBudget(
        usd=None if left.usd is None else max(_LEAST_USD, left.usd),
        tokens=None if left.tokens is None else max(1, left.tokens),
        wall_s=None if left.wall_s is None else max(_LEAST_S, left.wall_s),
    )
