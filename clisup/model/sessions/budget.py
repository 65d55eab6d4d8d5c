"""Budget of a session in dollars, tokens, turns, and seconds in turns. Pure.

The ledger folds the used amounts from the journal, so a budget survives the daemon. Once a limit is reached, no turn
begins, and the daemon ends a running turn. A limit of turns ends no running turn.
"""

# Not `from __future__ import annotations`: pydantic would compile and evaluate each field's at every start.

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from clisup.model.events import TurnError
from clisup.model.structs import JsonObject
from clisup.model.usage import Usage

if TYPE_CHECKING:
    from clisup.model.sessions.ledger import Ledger

Limit = Literal["usd", "tokens", "turns", "wall_s"]
LIMITS: tuple[Limit, ...] = ("usd", "tokens", "turns", "wall_s")
ENDING: tuple[Limit, ...] = ("usd", "tokens", "wall_s")
"""Limits that end a running turn."""

_USD_DIGITS = 9  # a sum of floats may miss its limit by a smaller amount


class Budget(BaseModel):
    """Limits of a session. None is no limit. `tokens` counts all input, including cached input, and all output."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    usd: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = None
    tokens: Annotated[int, Field(gt=0, le=2**53)] | None = None
    turns: Annotated[int, Field(gt=0, le=2**53)] | None = None
    wall_s: Annotated[float, Field(gt=0, le=3.2e9, allow_inf_nan=False)] | None = None

    @property
    def limits(self) -> dict[str, float]:
        """Return the set limits."""
        return {name: value for name in LIMITS if (value := getattr(self, name)) is not None}


class Used(NamedTuple):
    """Amounts used so far. `usd` is None if no turn's cost is known. `unpriced` counts the turns of unknown cost."""

    usd: float | None = None
    tokens: int = 0
    turns: int = 0
    wall_s: float = 0.0
    unpriced: int = 0


class Breach(NamedTuple):
    """Reached limit."""

    which: Limit
    limit: float
    used: float

    @property
    def words(self) -> str:
        """Return a sentence like `the session's budget of 1000 tokens is used up (1200)`."""
        return f"the session's budget of {_amount(self.which, self.limit)} is used up ({self.used:.10g})"


def limits_of(opened_with: Budget | None, set_since: Mapping[str, Any] | None) -> Budget | None:
    """Return the budget in force, or None. The last set budget replaces all earlier budgets."""
    budget = opened_with if set_since is None else Budget.model_validate(set_since)
    return budget if budget is not None and budget.limits else None


def used_of(
    ledger: "Ledger", *, running: Usage | None = None, running_usd: float | None = None, running_s: float = 0.0
) -> Used:
    """Return the amounts used by all turns. The caller adds the usage, cost and time of the running turn."""
    costs = [cost for cost in (ledger.cost_usd, running_usd) if cost is not None]
    return Used(
        usd=sum(costs) if costs else None,
        tokens=ledger.tokens + ((running and running.total_tokens) or 0),
        turns=ledger.turns_begun,
        wall_s=ledger.wall_s + running_s,
        unpriced=ledger.unpriced,
    )


def breach_of(budget: Budget | None, used: Used, *, among: tuple[Limit, ...] = LIMITS) -> Breach | None:
    """Return the first reached limit, or None. An unknown amount reaches no limit."""
    for name, limit in (budget.limits if budget is not None else {}).items():
        seen = getattr(used, name)
        if name in among and seen is not None and round(seen, _USD_DIGITS) >= limit:
            return Breach(name, limit, round(seen, _USD_DIGITS))
    return None


def error_of(breach: Breach, *, started: bool) -> TurnError:
    """Return the error of a turn ended (`started`) or not begun because of the breach."""
    what = "the turn was ended" if started else "the turn was not begun"
    return TurnError(kind="budget", message=f"{what}: {breach.words}")


def describe_budget(budget: Budget | None, used: Used) -> JsonObject | None:
    """Return a budget for `session/get`: `{limit, used, exhausted}`, or None."""
    if budget is None:
        return None
    rounded = used._replace(
        usd=None if used.usd is None else round(used.usd, _USD_DIGITS), wall_s=round(used.wall_s, 3)
    )
    breach = breach_of(budget, used)
    return {"limit": budget.limits, "used": rounded._asdict(), "exhausted": breach.which if breach else None}


def _amount(which: Limit, value: float) -> str:
    words = {"usd": "{:.10g} USD", "tokens": "{:.0f} tokens", "turns": "{:.0f} turns", "wall_s": "{:.10g} s in turns"}
    return words[which].format(value)
