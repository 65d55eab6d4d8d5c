"""Token usage of one model call or one turn, and the rounding of its cost. Unknown is not zero."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from clisup.model.structs import WireStruct, kept

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
