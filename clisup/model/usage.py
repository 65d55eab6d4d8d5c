"""Token usage of one model call or one turn, and the rounding of its cost. Unknown is not zero.

`Spending` is the usage of a running turn so far. For finished turns only the sums count, and the ledger folds them from the
turns' ends. A message names its model when it begins and its usage at its end (claude). Other CLIs report the usage of each
model call separately (codex), and it counts for the session's model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, field

from clisup.model.structs import JsonObject, WireStruct, kept

UsageSource = Literal["reported", "estimated", "unknown"]

COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "reasoning_tokens",
)


class Usage(WireStruct, frozen=True):
    """Token counts; `None` stands for a count that the CLI did not report.

    `input_tokens` excludes cached ones, as claude reports them; `total_input_tokens` adds the parts. `reasoning_tokens`
    are part of `output_tokens`, if the CLI reports them at all.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    source: UsageSource = kept("unknown")

    @property
    def total_input_tokens(self) -> int | None:
        """Return fresh and cached input together, or `None` if nothing is known."""
        parts = (self.input_tokens, self.cache_creation_input_tokens, self.cache_read_input_tokens)
        known = [part for part in parts if part is not None]
        return sum(known) if known else None

    @property
    def total_tokens(self) -> int | None:
        """Return all input and all output, or `None` if nothing is known."""
        return _sum(self.total_input_tokens, self.output_tokens)

    def __add__(self, other: Usage) -> Usage:
        """Return the sum. A count unknown on one side is the other's; unknown on both sides it stays unknown."""
        return Usage.total((self, other))

    @classmethod
    def total(cls, usages: Iterable[Usage]) -> Usage:
        """Return the sum of many in one step: a record for each partial sum would take a hundredth of a second for
        thousands."""
        told = [usage for usage in usages if usage is not UNKNOWN_USAGE]
        known = {name: [n for usage in told if (n := getattr(usage, name)) is not None] for name in COUNTS}
        counts = {name: sum(numbers) if numbers else None for name, numbers in known.items()}
        return cls(**counts, source=_weakest(told))

    def since(self, earlier: Usage | None) -> Usage:
        """Return the difference of this running total and an `earlier` one: a turn's share.

        The share is unknown if the earlier total is unknown (None, or without a count). A total that has fallen was
        restarted, so all of it is the turn's.
        """
        if earlier is None or earlier.total_input_tokens is None:
            return Usage()
        pairs = {name: (getattr(self, name), getattr(earlier, name) or 0) for name in COUNTS}
        if any(now is not None and now < before for now, before in pairs.values()):
            return self
        counts = {name: None if now is None else now - before for name, (now, before) in pairs.items()}
        return Usage(**counts, source=self.source)


UNKNOWN_USAGE = Usage()
"""Shared object for all unknown usage: each takes half a kilobyte."""

NO_USAGE = Usage(**dict.fromkeys(COUNTS, 0), source="reported")
"""Usage that is known to be zero: the start of a fresh session's running totals."""


def whole_usd(amount: float) -> float:
    """Round a calculated amount of dollars to a thousandth of a millionth.

    A sum or difference of two floats has more digits (0.30000000000000004), and they mean nothing.
    """
    return round(float(amount), 9)


def _sum(a: int | None, b: int | None) -> int | None:
    if a is None:
        return b
    return a if b is None else a + b


def _weakest(usages: Iterable[Usage]) -> UsageSource:
    """Return the source of a sum: that of its least certain part. An empty part does not count."""
    sources = {u.source for u in usages if any(getattr(u, n) is not None for n in COUNTS)}
    if "estimated" in sources:
        return "estimated"
    return "reported" if "reported" in sources else "unknown"


SPENDING = frozenset({"message_start", "message_stop", "usage"})
"""Types of events that report usage."""

MODELS_A_TURN = 64
"""Limit of models with separate usage. The usage of further models counts for an unknown model."""


class Spending(Struct):
    """Spending of one turn.

    `spent` is usage by model (empty: unknown); `speaking` the model of each open message, by its parent.
    """

    spent: dict[str, dict[str, int]] = field(default_factory=dict)
    speaking: dict[str, str] = field(default_factory=dict)

    @property
    def by_model(self) -> dict[str, Usage]:
        """Return the usage of each model. A count that no call has reported stays unknown."""
        return {model: Usage(**counts, source="reported") for model, counts in self.spent.items()}

    @property
    def usage(self) -> Usage:
        """Return the usage of all models together."""
        return sum(self.by_model.values(), Usage())

    def add(self, event: JsonObject, model: str | None) -> None:
        """Fold an event of `SPENDING`; `model` is the session's."""
        parent = event.get("parent_tool_use_id") or ""
        if event["type"] == "message_start":
            if event.get("model") and len(self.speaking) < MODELS_A_TURN:
                self.speaking[parent] = event["model"]
            return
        model = self.speaking.pop(parent, None) or model or ""
        if not (usage := event.get("usage")):
            return
        if model not in self.spent and len(self.spent) >= MODELS_A_TURN:
            model = ""
        counts = self.spent.setdefault(model, {})
        for name in COUNTS:
            if (count := usage.get(name)) is not None:
                counts[name] = counts.get(name, 0) + count
