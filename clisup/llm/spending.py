"""What calls of models took, and what they may still take. Pure; unknown is not zero."""

from __future__ import annotations

from dataclasses import dataclass

from clisup.llm.chat import UNKNOWN_USAGE, Completion, Cost, FinishReason
from clisup.model.usage import Usage

__all__ = ["Left", "Spent"]


@dataclass(frozen=True, slots=True)
class Spent:
    """What was used. `tokens` and `usd` are what is known: where `unknown_tokens` or `unknown_usd` answers were not told, they are
    the least that it can be. `wall_s` runs from the first reservation on.
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
        """Input, cached or not, and output."""
        return self.usage.total_tokens or 0

    @property
    def usd(self) -> float:
        """Dollars, reported or estimated."""
        return 0.0 if self.cost is None else self.cost.usd

    @classmethod
    def of(cls, completion: Completion | None) -> Spent:
        """One answer's; None: it failed, and nobody knows what it took. What stops at tool calls in the middle of a turn is told by the
        answer that ends the turn.
        """
        if completion is None:
            return cls(answers=1, unknown_tokens=1, unknown_usd=1)
        usage, cost = completion.usage, completion.cost
        if completion.finish_reason is FinishReason.TOOL_CALLS and usage == UNKNOWN_USAGE and cost is None:
            return cls(answers=1)
        told = usage.total_input_tokens is not None and usage.output_tokens is not None
        return cls(0, 1, usage, cost, unknown_tokens=int(not told), unknown_usd=int(cost is None))

    def __add__(self, other: Spent) -> Spent:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Spent(
            self.iterations + other.iterations,
            self.answers + other.answers,
            self.usage + other.usage,
            costs[0] + costs[1] if len(costs) == 2 else costs[0] if costs else None,
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


@dataclass(frozen=True, slots=True)
class Left:
    """What may still be used; None: no limit. Never below zero."""

    usd: float | None = None
    tokens: int | None = None
    iterations: int | None = None
    wall_s: float | None = None
