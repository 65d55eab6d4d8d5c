"""Cost of the turns by day, backend and model, as bars and rows of tables. Pure.

A turn counts for the day of its end in UTC, as in the vendors' own lists, and for the model that its CLI named last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import date, timedelta
from math import floor, log10
from typing import NamedTuple, TypeVar

from clisup.cli.status.command import budget_words
from clisup.cli.views.terminal import clip, count, plain, session_name
from clisup.cli.views.terminal import cost as dollars
from clisup.client.raw import JsonObject
from clisup.model.usage import COUNTS, UNKNOWN_USAGE, Usage, whole_usd

__all__ = [
    "DAYS", "EVENTS", "MOST_BUDGETS", "MOST_MODELS", "MOST_ROWS", "MOST_SERIES", "BudgetMeter", "CostChart", "CostRow", "CostSeries",
    "CostView", "DayBar", "SessionSpending", "TurnSum", "budgets_of", "cost_view", "usd_limit", "window",
]  # fmt: skip

EVENTS = ["session_init", "turn_completed"]
"""Types of events that name the model and the cost."""

DAYS = 30
"""Days on the page, with today."""

MOST_SERIES = 8
"""Colours at most. Backends and models beyond share the last one."""

MOST_ROWS = 50
"""Backends and models on the page at most."""

MOST_MODELS = 64
"""Models of one session at most. The names come from the CLI. Turns of further models count for an unknown model."""

MOST_BUDGETS = 50
"""Budgets on the page at most: those that are nearest to their limit."""

_Key = tuple[date, str, str]
"""Day, backend and model."""
_Name = TypeVar("_Name", bound=Hashable)
_BAR, _GAP, _HEIGHT = 10, 2, 100


class TurnSum(NamedTuple):
    """Sum over turns. `usd` is None if no cost is known, and `unpriced` counts the turns of unknown cost."""

    turns: int = 0
    usd: float | None = None
    estimated: bool = False
    unpriced: int = 0
    usage: Usage = UNKNOWN_USAGE

    def __add__(self, other: TurnSum) -> TurnSum:  # type: ignore[override]  # a sum, not a longer tuple
        known = [usd for usd in (self.usd, other.usd) if usd is not None]
        return TurnSum(
            self.turns + other.turns,
            whole_usd(sum(known)) if known else None,
            self.estimated or other.estimated,
            self.unpriced + other.unpriced,
            self.usage + other.usage,
        )


class SessionSpending:
    """Sums of one session by day and model, folded from its events up to `seq`."""

    def __init__(self, backend: str, model: str) -> None:
        self.backend, self.seq = backend, 0
        self.days: dict[tuple[date, str], TurnSum] = {}
        self._model = model

    def take(self, event: JsonObject) -> None:
        """Fold an event of `EVENTS`."""
        if event["type"] == "session_init":
            self._model = str(event.get("model") or self._model)
            return
        day, spent = date.fromisoformat(str(event["ts"])[:10]), _spent(event)
        models = {model for _, model in self.days}
        model = self._model if self._model in models or len(models) < MOST_MODELS else ""
        self.days[day, model] = self.days.get((day, model), TurnSum()) + spent


def _spent(event: JsonObject) -> TurnSum:
    told = event.get("usage") or {}
    usage = Usage(**{name: told.get(name) for name in COUNTS}, source=told.get("source", "unknown"))
    usd = event.get("cost_usd")
    estimated = usd is not None and event.get("cost_source") == "estimated"
    return TurnSum(1, usd, estimated, int(usd is None and bool(usage.total_tokens)), usage)


class CostRow(NamedTuple):
    """Sum in words. `cached` is the share of the input that came from the cache."""

    cost: str
    turns: str
    input: str
    output: str
    cached: str


class CostSeries(NamedTuple):
    """Backend and model with its colour, from 0."""

    slot: int
    backend: str
    model: str
    row: CostRow


class DayBar(NamedTuple):
    """Bar of one day: its place, its words, and (colour, y, height) of each part from below."""

    x: int
    title: str
    parts: list[tuple[int, float, float]]


class CostChart(NamedTuple):
    """Bars in a box of `width` and `height`. `top` is the amount at its upper edge, `limit` the y of the budget's line."""

    width: int
    height: int
    bar: int
    bars: list[DayBar]
    top: str
    labels: list[str]
    limit: float | None
    limit_words: str


class CostView(NamedTuple):
    """Everything on the page. `chart` is None without a known cost, and `more` counts the series that are not shown."""

    chart: CostChart | None
    series: list[CostSeries]
    more: int
    days: list[tuple[str, CostRow]]
    total: CostRow
    unpriced: int
    estimated: bool


class BudgetMeter(NamedTuple):
    """Budget of one session. `part` is the used percentage of the limit that is nearest."""

    session_id: str
    title: str
    words: str
    part: int


def window(today: date) -> list[date]:
    """Return the days on the page, oldest first."""
    return [today - timedelta(days=back) for back in reversed(range(DAYS))]


def cost_view(
    sessions: Iterable[SessionSpending], today: date, *, grows: bool = False, limit: float | None = None
) -> CostView:
    """Return the page. With `grows`, earlier turns count too, and a bar has the cost up to its day, as a budget counts it."""
    days = window(today)
    sums: dict[_Key, TurnSum] = {}
    for session in sessions:
        for (day, model), spent in session.days.items():
            if grows or day >= days[0]:
                key = day, session.backend, model
                sums[key] = sums.get(key, TurnSum()) + spent
    by_series, by_day = _by(sums, lambda key: key[1:]), _by(sums, lambda key: key[0])
    ranked = sorted(by_series, key=lambda name: (-(by_series[name].usd or 0.0), name))
    slots = {name: min(at, MOST_SERIES - 1) for at, name in enumerate(ranked)}
    total = sum(by_day.values(), TurnSum())
    series = [
        CostSeries(slots[name], plain(name[0]), clip(name[1], 60) or "unknown model", _row(by_series[name]))
        for name in ranked
    ]
    return CostView(
        None if total.usd is None else _chart(days, _amounts(sums, slots, days, grows=grows), limit),
        series[:MOST_ROWS],
        max(0, len(series) - MOST_ROWS),
        [(day.isoformat(), _row(by_day[day])) for day in sorted(by_day, reverse=True)[:DAYS]],
        _row(total),
        total.unpriced,
        total.estimated,
    )


def budgets_of(rows: Iterable[JsonObject]) -> list[BudgetMeter]:
    """Return the budgets of open sessions, by what is used of them."""
    found = []
    for row in rows:
        if (budget := row.get("budget")) and row.get("state") != "closed":
            parts = [(budget["used"].get(name) or 0) / limit for name, limit in budget["limit"].items()]
            title = session_name(row.get("title"), row["session_id"])
            part = min(_HEIGHT, floor(_HEIGHT * max(parts)))
            words = plain(budget_words(budget) or "")
            found.append(BudgetMeter(str(row["session_id"]), title, words, part))
    return sorted(found, key=lambda each: (-each.part, each.session_id))[:MOST_BUDGETS]


def usd_limit(row: JsonObject) -> float | None:
    """Return the limit of a session in dollars."""
    limit = ((row.get("budget") or {}).get("limit") or {}).get("usd")
    return None if limit is None else float(limit)


def _by(sums: Mapping[_Key, TurnSum], part: Callable[[_Key], _Name]) -> dict[_Name, TurnSum]:
    found: dict[_Name, TurnSum] = {}
    for key, spent in sums.items():
        found[part(key)] = found.get(part(key), TurnSum()) + spent
    return found


def _row(spent: TurnSum) -> CostRow:
    fresh = spent.usage.total_input_tokens
    cached = spent.usage.cache_read_input_tokens
    share = "-" if not fresh or cached is None else f"{cached / fresh:.0%}"
    return CostRow(_money(spent), str(spent.turns), count(fresh), count(spent.usage.output_tokens), share)


def _money(spent: TurnSum) -> str:
    """Return the cost, with `~` for an estimate and `+ ?` for turns of unknown cost."""
    if spent.usd is None:
        return "?" if spent.unpriced else dollars(None)
    return f"{'~' if spent.estimated else ''}{dollars(spent.usd)}{' + ?' if spent.unpriced else ''}"


def _amounts(
    sums: Mapping[_Key, TurnSum], slots: Mapping[tuple[str, str], int], days: list[date], *, grows: bool
) -> list[list[float]]:
    """Return the dollars of each colour on each day. Turns outside of the days count for the nearest one."""
    found = [[0.0] * MOST_SERIES for _ in days]
    for (day, backend, model), spent in sums.items():
        at = min(max(0, (day - days[0]).days), len(days) - 1)
        found[at][slots[backend, model]] += spent.usd or 0.0
    return [list(map(sum, zip(*found[: at + 1], strict=True))) for at in range(len(days))] if grows else found


def _chart(days: list[date], amounts: list[list[float]], limit: float | None) -> CostChart:
    top = _nice(max([*map(sum, amounts), limit or 0.0]))
    bars = [
        DayBar(at * _BAR, f"{day.isoformat()}: {dollars(sum(parts))}", _stack(parts, top))
        for at, (day, parts) in enumerate(zip(days, amounts, strict=True))
    ]
    line = None if limit is None else round(_HEIGHT - _HEIGHT * limit / top, 2)
    labels = [f"{day:%b} {day.day}" for day in (days[0], days[len(days) // 2], days[-1])]
    return CostChart(_BAR * len(days), _HEIGHT, _BAR - _GAP, bars, dollars(top), labels, line, dollars(limit))


def _stack(parts: list[float], top: float) -> list[tuple[int, float, float]]:
    below, found = 0.0, []
    for slot, amount in enumerate(parts):
        if amount > 0:
            height = _HEIGHT * amount / top
            found.append((slot, round(_HEIGHT - below - height, 2), round(height, 2)))
            below += height
    return found


def _nice(amount: float) -> float:
    """Return the next amount of the form 1, 2 or 5 times a power of ten."""
    if amount <= 0:
        return 1.0
    power = 10.0 ** floor(log10(amount))
    return power * next(step for step in (1, 2, 5, 10) if amount <= step * power * (1 + 1e-9))
