"""What a measurement says: a figure with its unit, its reference, its target; and the few rules of counting. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

__all__ = ["FAR", "Figure", "Fit", "Target", "far_off", "figure", "fit", "missing"]

FAR = 3.0
"""How much worse than recorded a ratio may be before the short form fails: machines differ, and are shared."""

GROWN = 1.1
"""How much a count may be above the recorded one before the short form fails: no neighbour on the machine moves it."""
COUNTED = ("calls", "syncs")
"""Units of such counts. How many system calls a turn takes changes with what the daemon finds ready at once."""

Better = Literal["less", "more"]


class Target(NamedTuple):
    """What was asked for (docs/proofs/performance.md), of the figure's ratio or of its value itself."""

    of: Literal["ratio", "value"]
    better: Better
    must: float
    moonshot: float

    def verdict(self, found: float) -> str:
        def reached(bound: float) -> bool:
            return found <= bound if self.better == "less" else found >= bound

        return "moonshot" if reached(self.moonshot) else "must" if reached(self.must) else "missed"

    def words(self) -> str:
        sign, mark = ("<=" if self.better == "less" else ">="), ("x" if self.of == "ratio" else "")
        return f"{sign} {self.must:g}{mark} ({self.moonshot:g}{mark})"


@dataclass(frozen=True)
class Figure:
    """One line of the table. `value` is a median over rounds; None where `note` says why there is none.

    `ratio` is the median of the rounds' ratios of the value to the reference, `low` and `high` its extremes (without a
    reference: those of the value), `better` which way the ratio is good. `stolen` is the median of the shares of the
    processors that the hypervisor gave to others in the rounds of the value, where that is measured by the clock.
    """

    part: str
    name: str
    unit: str
    value: float | None
    reference: str = ""
    reference_value: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int = 1
    better: Better = "less"
    note: str = ""
    target: str = ""
    verdict: str = ""
    stolen: float | None = None

    @property
    def key(self) -> str:
        return f"{self.part}: {self.name}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def figure(
    part: str,
    name: str,
    unit: str,
    values: Sequence[float],
    *,
    reference: str = "",
    against: Sequence[float] = (),
    target: Target | None = None,
    better: Better = "less",
    note: str = "",
    stolen: Sequence[float] = (),
) -> Figure:
    """From the values of interleaved rounds, and the reference's of the same rounds, in the same order."""
    ratios = [value / other for value, other in zip(values, against, strict=True) if other > 0] if against else []
    value, ratio = statistics.median(values), statistics.median(ratios) if ratios else None
    found = value if target is None or target.of == "value" else ratio
    shown = ratios or values
    return Figure(
        part=part,
        name=name,
        unit=unit,
        value=value,
        reference=reference,
        reference_value=statistics.median(against) if against else None,
        ratio=ratio,
        low=min(shown),
        high=max(shown),
        rounds=len(values),
        better=target.better if target else better,
        note=note,
        target=target.words() if target else "",
        verdict=target.verdict(found) if target and found is not None else "",
        stolen=statistics.median(stolen) if stolen else None,
    )


def missing(part: str, name: str, why: str, target: Target | None = None) -> Figure:
    """A figure that could not be had."""
    return Figure(part, name, "", None, rounds=0, note=why, target=target.words() if target else "")


class Fit(NamedTuple):
    """`cost = factor * size ** exponent`, and the root of the mean square of what it misses the logarithms by."""

    exponent: float
    residual: float


def fit(sizes: Sequence[float], costs: Sequence[float]) -> Fit:
    """Least squares over the logarithms. Two sizes at least, not all the same."""
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    slope, start = statistics.linear_regression(x, y)
    missed = [b - (start + slope * a) for a, b in zip(x, y, strict=True)]
    return Fit(slope, math.sqrt(sum(miss * miss for miss in missed) / len(missed)))


def far_off(found: Figure, recorded: dict[str, Any] | None) -> str | None:
    """Why the short form fails because of this figure, or None. Only ratios and counts that were recorded before matter."""
    if found.unit in COUNTED and found.value is not None and (count := (recorded or {}).get("value")):
        grown = found.value / count
        return (
            None if grown <= GROWN else f"{found.key}: {found.value:,.6g}, recorded {count:,.6g} (allowed: {GROWN:g}x)"
        )
    before = (recorded or {}).get("ratio")
    if found.ratio is None or not before:
        return None
    worse = found.ratio / before if found.better == "less" else before / max(found.ratio, 1e-9)
    if worse <= FAR:
        return None
    return f"{found.key}: {found.ratio:.3g}x, recorded {before:.3g}x: {worse:.1f} times worse (allowed: {FAR:g})"
