"""Context of a session: how full it is, its size over the turns, and compactions. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from clisup.cli.export.facts import moment
from clisup.cli.views.terminal import clip, count
from clisup.client.raw import JsonObject

__all__ = [
    "EVENTS", "MOST_CATEGORIES", "MOST_POINTS", "CompactionMark", "ContextCategory", "ContextGauge", "ContextPoint",
    "ContextSeries", "gauge_of", "series_of",
]  # fmt: skip

EVENTS = ["usage", "message_stop", "status", "turn_started"]
"""Types of events that the page is made of."""

MOST_POINTS = 300
"""Model calls on the drawing at most. The newest stay."""

MOST_CATEGORIES = 30
"""Categories of the CLI's answer at most."""

_COMPACTIONS = ("compacted", "compact_boundary", "compaction")
_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class ContextPoint(NamedTuple):
    """Size of the context after a model call. `x` and `height` are percents of the drawing."""

    tokens: int
    turn: str
    at: str
    x: float = 0.0
    width: float = 0.0
    height: float = 0.0

    @property
    def name(self) -> str:
        """Return the point in words."""
        return f"{count(self.tokens)} tokens, {self.turn}, {self.at}"


class CompactionMark(NamedTuple):
    """Compaction of the context. `after` counts the points before it."""

    after: int
    at: str
    words: str
    x: float = 0.0

    @property
    def name(self) -> str:
        """Return the mark in words."""
        return ", ".join(part for part in ("Compacted", self.at, self.words) if part)


class ContextSeries(NamedTuple):
    """Context over the model calls of a session. `top` are the tokens at the drawing's top."""

    points: list[ContextPoint]
    marks: list[CompactionMark]
    top: str
    summary: str


class ContextCategory(NamedTuple):
    """Part of the context by the CLI's own count. `free`: the part is room that is left."""

    name: str
    tokens: str
    percent: int
    free: bool


class ContextGauge(NamedTuple):
    """Fill of the context. `percent` is None if its limit is not known."""

    tokens: str
    limit: str
    percent: int | None
    model: str
    categories: list[ContextCategory]


def series_of(events: Iterable[JsonObject]) -> ContextSeries:
    """Return the series of a session's events."""
    reported, counted, compactions = _read(events)
    own = reported or counted
    marks = _distinct(compactions, [order for order, _ in own])
    first = max(0, len(own) - MOST_POINTS)
    points = [point for _, point in own[first:]]
    marks = [mark._replace(after=mark.after - first) for mark in marks if mark.after >= first]
    top = max((point.tokens for point in points), default=0)
    width = 100 / max(1, len(points))
    points = [
        point._replace(
            x=round(n * width, 3), width=round(width * 0.8, 3), height=round(100 * point.tokens / max(1, top), 2)
        )
        for n, point in enumerate(points)
    ]
    marks = [mark._replace(x=round(mark.after * width - width * 0.1, 3)) for mark in marks]
    return ContextSeries(points, marks, count(top), _summary(points, marks))


def gauge_of(usage: JsonObject | None, series: ContextSeries) -> ContextGauge | None:
    """Return the gauge by the result of `session/context_usage`, else by the last point. None if nothing is known."""
    if usage is None:
        return ContextGauge(count(series.points[-1].tokens), "", None, "", []) if series.points else None
    total, limit, said = _number(usage.get("total_tokens")), _number(usage.get("max_tokens")), usage.get("percentage")
    percent = round(said) if isinstance(said, int | float) else round(100 * total / limit) if limit else None
    return ContextGauge(
        count(total),
        count(limit) if limit else "",
        None if percent is None else min(100, max(0, percent)),
        clip(str(usage.get("model") or ""), 80),
        [_category(one, limit or total) for one in (usage.get("categories") or [])[:MOST_CATEGORIES]],
    )


def _category(one: JsonObject, whole: int) -> ContextCategory:
    used = _number(one.get("tokens"))
    percent = min(100, max(0, round(100 * used / max(1, whole))))
    return ContextCategory(clip(str(one.get("name") or "?"), 60), count(used), percent, one.get("kind") == "free")


_Ordered = list[tuple[int, ContextPoint]]


def _read(events: Iterable[JsonObject]) -> tuple[_Ordered, _Ordered, list[tuple[int, CompactionMark]]]:
    """Return the points that the CLI reports, those by the usage of model calls, and the compactions, in their order."""
    reported: _Ordered = []
    counted: _Ordered = []
    compactions: list[tuple[int, CompactionMark]] = []
    for order, event in enumerate(events):
        kind, at = event["type"], moment(event.get("ts"))
        turn = clip(str(event.get("turn_id") or "-"), 20)
        if kind == "usage" and event.get("context_tokens"):
            reported.append((order, ContextPoint(int(event["context_tokens"]), turn, at)))
        elif kind == "message_stop" and not event.get("parent_tool_use_id"):
            used = event.get("usage") or {}
            if tokens := sum(int(used.get(name) or 0) for name in _INPUT):
                counted.append((order, ContextPoint(tokens + int(used.get("output_tokens") or 0), turn, at)))
        elif kind == "status" and event.get("status") in _COMPACTIONS:
            compactions.append((order, CompactionMark(0, at, clip(str(event.get("detail") or ""), 100))))
    return reported, counted, compactions


def _distinct(found: list[tuple[int, CompactionMark]], orders: list[int]) -> list[CompactionMark]:
    """Return one mark for the reports of one compaction: a CLI may tell of its steps. The longest words stay."""
    marks: dict[int, CompactionMark] = {}
    for order, mark in found:
        after = sum(1 for each in orders if each < order)
        known = marks.get(after)
        if known is None or len(mark.words) > len(known.words):
            marks[after] = mark._replace(after=after)
    return list(marks.values())


def _summary(points: list[ContextPoint], marks: list[CompactionMark]) -> str:
    if not points:
        return "The CLI has not reported its context yet."
    most = max(point.tokens for point in points)
    times = f"{len(marks)} compaction{'' if len(marks) == 1 else 's'}"
    return f"{count(points[-1].tokens)} tokens now, {count(most)} at most, {len(points)} model calls, {times}"


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0
