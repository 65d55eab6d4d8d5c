"""Figures of a run, each beside its target. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Figure", "figure_table", "last_line", "misses", "quantile"]


class Figure(NamedTuple):
    """Measured value, and its target. None is a value that could not be measured: a miss.

    A miss of the target 0, or of a value that could not be measured, is a fault: the run fails.
    """

    name: str
    value: float | None
    limit: float | None = None
    unit: str = ""

    @property
    def is_missed(self) -> bool:
        """Tell whether the figure misses its target."""
        return self.limit is not None and (self.value is None or self.value > self.limit)

    @property
    def is_fault(self) -> bool:
        """Tell whether the figure fails the run."""
        return self.is_missed and (self.value is None or self.limit == 0)


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the value below which this share of the values lies, or None without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else None


def misses(figures: Sequence[Figure]) -> list[Figure]:
    """Return the figures that miss their targets."""
    return [figure for figure in figures if figure.is_missed]


def figure_table(figures: Sequence[Figure]) -> str:
    """Return a line for each figure."""
    lines = [f"{'figure':44} {'measured':>12} {'target':>12}"]
    for figure in figures:
        value = "-" if figure.value is None else f"{figure.value:.4g} {figure.unit}".strip()
        limit = "" if figure.limit is None else f"<= {figure.limit:g}"
        lines.append(f"{figure.name:44} {value:>12} {limit:>12}{'  MISSED' if figure.is_missed else ''}")
    return "\n".join(lines)


def last_line(kills: int, figures: Sequence[Figure]) -> str:
    """Return the verdict."""
    whole = {figure.name: figure.value for figure in figures}
    parts = [
        f"{name} {whole[name]:.0f}" for name in ("lost", "doubled", "differing", "jobs run twice") if name in whole
    ]
    return f"kills {kills} " + " ".join([*parts, f"missed {len(misses(figures))}"])
