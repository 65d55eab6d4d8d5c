"""Plot of what sessions cost whose lines come one by one, as SVG: drawn from the recorded figures of `paced`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import log10
from typing import Any

__all__ = ["plot"]

WIDTH, HEIGHT, LEFT, TOP = 300, 190, 48, 34
"""Of a panel's axes, and what stands left of them and above them."""
GAP = 84
_ROW = re.compile(r"([\d,]+) sessions with .*: (daemon and keepers|daemon|age of a line, p50|age of a line, p99)")
Points = Sequence[tuple[float, float]]
STYLE = """\
text { font: 12px sans-serif; fill: #444 } .title { font-size: 13px; fill: #111 } .axis { stroke: #999 }
.grid { stroke: #ddd } .a { stroke: #1f5fa8; fill: none; stroke-width: 2 } .b { stroke: #c25a12; fill: none; stroke-width: 2 }
text.a { fill: #1f5fa8; stroke: none } text.b { fill: #c25a12; stroke: none } rect { fill: #fff }
"""


def plot(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the drawing: cores by sessions, and the age of a line by sessions."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in figures.values():
        if row["part"] == "paced" and (found := _ROW.fullmatch(row["name"])):
            lines.setdefault(found[2], []).append((float(found[1].replace(",", "")), row["value"]))
    most = max((x for points in lines.values() for x, _ in points), default=1.0)
    width = 2 * (LEFT + WIDTH) + GAP
    cores = _Panel(
        0, "processor cores", most, _linear(max((y for _, y in lines.get("daemon and keepers", ())), default=1))
    )
    ages = _Panel(LEFT + WIDTH + GAP // 2, "age of a line at its client, ms", most, (0.1, 1, 10, 100, 1000), log=True)
    shown = [
        cores.frame(), cores.line(lines.get("daemon and keepers", ()), "a", "with keepers"),
        cores.line(lines.get("daemon", ()), "b", "daemon"), ages.frame(),
        ages.line(lines.get("age of a line, p99", ()), "a", "p99"), ages.line(lines.get("age of a line, p50", ()), "b", "p50"),
    ]  # fmt: skip
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT + TOP + 44}" role="img" '
        f'aria-label="cores and latency by sessions">\n<style>\n{STYLE}</style>\n'
        f'<rect width="{width}" height="{HEIGHT + TOP + 44}"/>\n' + "\n".join(shown) + "\n</svg>\n"
    )


def _linear(most: float) -> tuple[float, ...]:
    """Return five even marks from 0 to at least `most`."""
    step = next((step for step in (0.05, 0.1, 0.25, 0.5, 1.0) if 4 * step >= most), most / 4)
    return tuple(round(number * step, 2) for number in range(5))


class _Panel:
    """One pair of axes, `left` px from the left."""

    def __init__(self, left: int, title: str, most: float, marks: Sequence[float], *, log: bool = False) -> None:
        self._left, self._title, self._most, self._marks, self._log = left + LEFT, title, most, marks, log

    def _x(self, sessions: float) -> float:
        return round(self._left + sessions / self._most * WIDTH, 1)

    def _y(self, value: float) -> float:
        low, high = self._marks[0], self._marks[-1]
        if self._log:
            value, low, high = log10(max(value, low)), log10(low), log10(high)
        return round(TOP + HEIGHT - (value - low) / (high - low) * HEIGHT, 1)

    def frame(self) -> str:
        """Return the axes with their marks."""
        bottom, right = TOP + HEIGHT, self._left + WIDTH
        drawn = [f'<text class="title" x="{self._left}" y="{TOP - 14}">{self._title}</text>']
        for mark in self._marks:
            y = self._y(mark)
            drawn.append(f'<path class="grid" d="M{self._left} {y}H{right}"/>')
            drawn.append(f'<text x="{self._left - 6}" y="{y + 4}" text-anchor="end">{mark:g}</text>')
        for sessions in (0.0, self._most / 2, self._most):
            x = self._x(sessions)
            drawn.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{sessions:g}</text>')
        drawn.append(f'<path class="axis" d="M{self._left} {bottom}H{right}"/>')
        drawn.append(
            f'<text x="{self._left}" y="{bottom + 36}">sessions, each with 20 lines a second and a client</text>'
        )
        return "\n".join(drawn)

    def line(self, points: Points, style: str, name: str) -> str:
        """Return a line through the points, with its name at its end."""
        if not points:
            return ""
        path = "L".join(f"{self._x(x)} {self._y(y)}" for x, y in points)
        x, y = self._x(points[-1][0]), self._y(points[-1][1])
        label = (
            f'<text class="{style}" x="{x - 4}" y="{y + (16 if style == "b" else -8)}" text-anchor="end">{name}</text>'
        )
        return f'<path class="{style}" d="M{path}"/>\n{label}'
