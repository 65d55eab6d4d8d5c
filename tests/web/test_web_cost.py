"""Cost by day, backend and model, as pure functions of events and rows."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clisup.web.pages.site import render
from clisup.web.views.cost import (
    DAYS,
    MOST_BUDGETS,
    MOST_MODELS,
    MOST_ROWS,
    MOST_SERIES,
    SessionSpending,
    budgets_of,
    cost_view,
    usd_limit,
    window,
)

TODAY = date(2026, 3, 1)
SCRIPT = "<script>alert(1)</script>"


def ended(usd: float | None, back: int = 0, /, **usage: int) -> dict[str, Any]:
    day = (TODAY - timedelta(days=back)).isoformat()
    event: dict[str, Any] = {"type": "turn_completed", "ts": f"{day}T23:59:59.999999Z", "usage": usage}
    return event if usd is None else {**event, "cost_usd": usd, "cost_source": "reported"}


def named(model: str) -> dict[str, Any]:
    return {"type": "session_init", "ts": "2026-03-01T00:00:00Z", "model": model}


def session(*events: dict[str, Any], backend: str = "claude", model: str = "m") -> SessionSpending:
    made = SessionSpending(backend, model)
    for event in events:
        made.take(event)
    return made


def budget(number: int, used: float, limit: float, **more: Any) -> dict[str, Any]:
    return {"session_id": f"{number:08d}-x", "title": None, "state": "idle",
            "budget": {"limit": {"usd": limit}, "used": {"usd": used}, "exhausted": None}, **more}  # fmt: skip


def test_turns_count_for_their_day_their_backend_and_the_model_named_last() -> None:
    one = session(ended(1.0, 2), named("opus"), ended(2.0, 1), ended(0.5))
    two = session(ended(0.25), backend="codex", model="gpt")
    view = cost_view([one, two], TODAY)
    assert [(each.backend, each.model, each.row.cost) for each in view.series] == [
        ("claude", "opus", "$2.5000"), ("claude", "m", "$1.0000"), ("codex", "gpt", "$0.2500"),
    ]  # fmt: skip
    assert [(day, row.cost, row.turns) for day, row in view.days] == [
        ("2026-03-01", "$0.7500", "2"), ("2026-02-28", "$2.0000", "1"), ("2026-02-27", "$1.0000", "1"),
    ]  # fmt: skip
    assert (view.total.cost, view.total.turns) == ("$3.7500", "4")


def test_parts_of_a_bar_stand_on_each_other_and_reach_the_cost_of_the_day() -> None:
    view = cost_view([session(ended(1.0)), session(ended(3.0), backend="codex")], TODAY)
    assert view.chart is not None and len(view.chart.bars) == DAYS and view.chart.top == "$5.0000"
    bar = view.chart.bars[-1]
    assert bar.parts == [(0, 40.0, 60.0), (1, 20.0, 20.0)] and bar.title == "2026-03-01: $4.0000"
    assert view.chart.labels == ["Jan 31", "Feb 15", "Mar 1"]


def test_the_share_of_the_cache_is_cached_input_of_all_input() -> None:
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 60, "output_tokens": 7}
    view = cost_view([session(ended(1.0, **usage))], TODAY)
    assert (view.total.input, view.total.output, view.total.cached) == ("80", "7", "75%")
    assert cost_view([session(ended(1.0, input_tokens=5))], TODAY).total.cached == "-"


def test_an_unknown_cost_is_no_zero_and_an_estimate_is_marked() -> None:
    unknown = cost_view([session(ended(None, input_tokens=5))], TODAY)
    assert (unknown.total.cost, unknown.unpriced, unknown.chart) == ("?", 1, None)
    some = cost_view([session(ended(None, input_tokens=5), {**ended(1.0), "cost_source": "estimated"})], TODAY)
    assert (some.total.cost, some.estimated) == ("~$1.0000 + ?", True)
    assert cost_view([session(ended(None))], TODAY).total.cost == "-"


def test_older_turns_are_off_the_page_but_count_towards_a_budget() -> None:
    old = session(ended(1.0, DAYS), ended(0.5))
    assert cost_view([old], TODAY).total.cost == "$0.5000"
    grown = cost_view([old], TODAY, grows=True, limit=2.0)
    assert grown.chart is not None and grown.total.cost == "$1.5000"
    assert [sum(height for _, _, height in bar.parts) for bar in grown.chart.bars[-2:]] == [50.0, 75.0]
    assert (grown.chart.limit, grown.chart.limit_words) == (0.0, "$2.0000")


def test_a_page_is_bounded() -> None:
    many = [session(ended(1.0 + n, n % DAYS), model=f"m{n}") for n in range(MOST_ROWS + 10)]
    view = cost_view(many, TODAY)
    assert (len(view.series), view.more) == (MOST_ROWS, 10)
    assert {each.slot for each in view.series} == set(range(MOST_SERIES))
    switching = session(*(event for n in range(200) for event in (named(f"m{n}"), ended(1.0))))
    assert len(switching.days) == MOST_MODELS + 1 and cost_view([switching], TODAY).total.cost == "$200.0000"
    assert len(budgets_of(budget(n, 1.0, 2.0) for n in range(200))) == MOST_BUDGETS


def test_budgets_stand_by_what_is_used_of_them() -> None:
    rows = [
        budget(1, 1.0, 4.0),
        budget(2, 9.0, 4.0),
        budget(3, 3.9, 4.0, state="closed"),
        {**budget(4, 1, 1), "budget": None},
    ]
    found = budgets_of(rows)
    assert [(each.session_id[:8], each.part) for each in found] == [("00000002", 100), ("00000001", 25)]
    assert found[1].words == "1 of 4 USD" and usd_limit(rows[0]) == 4.0 and usd_limit(rows[3]) is None


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, DAYS - 1), st.sampled_from("abc")), max_size=30))
def test_the_bars_have_the_cost_of_the_table_and_stay_in_their_box(turns: list[tuple[float, int, str]]) -> None:
    view = cost_view([session(ended(usd, back), model=model) for usd, back, model in turns], TODAY)
    if view.chart is None:
        assert not turns
        return
    top = float(view.chart.top.removeprefix("$"))
    heights = [sum(height for _, _, height in bar.parts) for bar in view.chart.bars]
    assert max(heights) <= 100.5 and all(y >= -0.5 for bar in view.chart.bars for _, y, _ in bar.parts)
    for day, height in zip(window(TODAY), heights, strict=True):
        usd = sum(usd for usd, back, _ in turns if TODAY - timedelta(days=back) == day)
        assert not top or abs(height / 100 * top - usd) <= top / 1000 + 0.0001


def test_names_of_models_and_titles_are_escaped() -> None:
    rows = [budget(1, 1.0, 4.0, title=SCRIPT)]
    view = cost_view([session(named(SCRIPT), ended(1.0), backend=SCRIPT)], TODAY, limit=2.0)
    html = render("cost_live.html", session='"><b>', about=SCRIPT, budget=SCRIPT, view=view, budgets=budgets_of(rows),
                  unread=2, left_out=9)  # fmt: skip
    assert "<script" not in html and "<b>" not in html and html.count("&lt;script&gt;") == 5
    assert " style=" not in html and " on" not in html.replace(" one", "")
