"""The view models of processes, environment and context, as pure functions."""

from __future__ import annotations

from typing import Any

import pytest

from clisup.host.process.listing import SeenProcess
from clisup.web.views.context import MOST_CATEGORIES, MOST_POINTS, gauge_of, series_of
from clisup.web.views.processes import (
    COMMAND_CHARS,
    MOST_ENDS,
    MOST_LISTED,
    MOST_NAMES,
    MOST_PROCESSES,
    ends_of,
    environment_of,
    running_of,
    tree_of,
)

SCRIPT = "<script>alert(1)</script>"
STARTED = {
    "type": "process_started",
    "pid": 10,
    "start_time": 7,
    "argv": ["claude", "-p"],
    "env_names": ["HOME"],
    "env_attested": True,
}


def event(kind: str, /, **values: Any) -> dict[str, Any]:
    return {"type": kind, "turn_id": "t1", "ts": "2026-01-01T12:00:00Z", **values}


def process(pid: int, parent: int, *argv: str, start: int = 7) -> SeenProcess:
    return SeenProcess(pid, parent, start, "S", "sh", list(argv), 1024 * 1024)


# -- processes


def test_the_tree_has_parents_before_their_children() -> None:
    found = [process(10, 1, "claude"), process(11, 10, "sh", "-c", "make"), process(12, 11, "make"), process(13, 10, "rg"),
             process(14, 1)]  # fmt: skip
    tree = tree_of(found, STARTED)
    assert tree is not None and tree[1] == 0
    assert [(one.pid, one.depth, one.command, one.is_cli) for one in tree[0]] == [
        (10, 0, "claude -p", True), (11, 1, "sh -c make", False), (12, 2, "make", False), (13, 1, "rg", False),
        (14, 0, "[sh]", False)]  # fmt: skip


@pytest.mark.parametrize("found", [[], [process(10, 1, start=8)], [process(11, 1)]])
def test_a_tree_that_is_not_of_the_run_is_not_shown(found: list[SeenProcess]) -> None:
    """As where the daemon runs on another machine, or a pid was used again."""
    assert tree_of(found, STARTED) is None


def test_commands_are_bounded_and_show_neither_secrets_nor_the_prompt() -> None:
    key = "sk-" + "a" * 30
    found = [
        process(10, 1, "claude", "-p", "my prompt"),
        process(11, 10, "curl", f"Bearer {key}", "--token", "hunter2hunter2", "x" * 9999),
    ]
    tree = tree_of(found, STARTED)
    assert tree is not None
    text = " ".join(one.command for one in tree[0])
    assert "my prompt" not in text and key not in text and "hunter2" not in text and "[redacted]" in text
    assert all(len(one.command) <= COMMAND_CHARS for one in tree[0])


def test_a_thousand_processes_make_a_bounded_tree() -> None:
    tree = tree_of([process(10, 1), *(process(pid, pid - 1) for pid in range(11, 1010))], STARTED)
    assert tree is not None and len(tree[0]) == MOST_PROCESSES and tree[1] == 1000 - MOST_PROCESSES


def test_the_ends_say_what_was_killed_newest_first() -> None:
    killed = [{"pid": pid, "comm": f"c{pid}"} for pid in range(80)]
    events = [
        STARTED,
        event("watchdog", action="fired", phase="tool", limit_s=1.0, idle_s=1.0),
        event("notice", code="ending", message="the watchdog ends the run"),
        event("notice", code="other", message=""),
        event("process_exited", signal=9, ended_by="watchdog:tool", survivors=killed, kept=[{"pid": 3, "comm": "k"}]),
    ]
    ends = ends_of(events)
    assert [end.title for end in ends] == ["The process ended", "The daemon ends it", "Watchdog"]
    assert "signal 9" in ends[0].words and "watchdog:tool" in ends[0].words
    assert [(group.title, len(group.processes), group.more) for group in ends[0].groups] == [
        ("Killed at the end", MOST_LISTED, 80 - MOST_LISTED), ("Kept by the orphan policy", 1, 0)]  # fmt: skip
    assert len(ends_of(events * 50)) == MOST_ENDS
    assert running_of(events) == (STARTED, False) and running_of(events[:1]) == (STARTED, True)


def test_the_environment_says_what_is_kept_and_dropped_and_whether_it_is_attested() -> None:
    report = {"kept": [{"name": "HOME", "rule": "common.allow:HOME"}], "set": [],
              "dropped": [{"name": f"V{n}", "rule": "unlisted"} for n in range(MOST_NAMES + 5)], "held_back": ["KEY"],
              "lists": [{"list": "common", "source": "demo", "date": "2026-01-01"}]}  # fmt: skip
    found = environment_of(STARTED, report)
    assert (found.ok, found.names, found.held_back) == (True, ["HOME"], ["KEY"])
    assert [(len(group.names), group.more) for group in found.groups] == [(1, 0), (0, 0), (MOST_NAMES, 5)]
    assert environment_of({**STARTED, "env_attested": False}, report).ok is False
    assert environment_of(None, None).ok is None


# -- context


def usage(tokens: int, turn: str = "t1") -> dict[str, Any]:
    return event("usage", turn_id=turn, usage={}, context_tokens=tokens)


def stop(tokens: int, **values: Any) -> dict[str, Any]:
    return event(
        "message_stop", usage={"input_tokens": 1, "cache_read_input_tokens": tokens - 2, "output_tokens": 1}, **values
    )


def test_the_series_takes_what_the_cli_reports_else_the_usage_of_model_calls() -> None:
    assert [point.tokens for point in series_of([stop(100), stop(999, parent_tool_use_id="u"), stop(200)]).points] == [
        100,
        200,
    ]
    assert [point.tokens for point in series_of([stop(100), usage(50), stop(200), usage(60)]).points] == [50, 60]
    assert "not reported" in series_of([event("turn_started")]).summary


def test_a_compaction_is_one_mark_between_two_calls() -> None:
    steps = [event("status", status="compacting"), event("status", status="compacted", detail="success"),
             event("status", status="compact_boundary", detail="trigger auto, pre_tokens 900")]  # fmt: skip
    series = series_of([usage(500), usage(900), *steps, usage(100), *steps, usage(120)])
    assert [mark.after for mark in series.marks] == [2, 3]
    assert series.marks[0].words == "trigger auto, pre_tokens 900"
    assert [point.height for point in series.points] == [55.56, 100.0, 11.11, 13.33]
    assert series.points[1].x < series.marks[0].x < series.points[2].x
    assert "2 compactions" in series.summary


def test_a_long_session_makes_a_bounded_drawing() -> None:
    steps = [event("status", status="compacted"), *[usage(10)] * 4]
    series = series_of(steps * 500)
    assert len(series.points) == MOST_POINTS and len(series.marks) == MOST_POINTS // 4
    assert all(-1 <= mark.x <= 100 for mark in series.marks)


def test_the_gauge_takes_the_answer_of_the_cli_with_its_categories() -> None:
    answer = {"total_tokens": 50_000, "max_tokens": 200_000, "percentage": None, "model": "m",
              "categories": [{"name": SCRIPT, "tokens": 20_000, "kind": "x"}] * 99}  # fmt: skip
    gauge = gauge_of(answer, series_of([usage(10)]))
    assert gauge is not None and (gauge.percent, gauge.limit, len(gauge.categories)) == (25, "200.0k", MOST_CATEGORIES)
    assert (gauge.categories[0].percent, gauge.categories[0].free) == (10, False)
    odd = gauge_of(
        {"total_tokens": None, "max_tokens": None, "percentage": 250.0, "model": None, "categories": []}, series_of([])
    )
    assert odd is not None and odd.percent == 100


def test_without_the_cli_the_gauge_has_the_last_call_and_no_limit() -> None:
    gauge = gauge_of(None, series_of([usage(10), usage(1500)]))
    assert gauge is not None and (gauge.tokens, gauge.percent) == ("1.5k", None)
    assert gauge_of(None, series_of([])) is None
