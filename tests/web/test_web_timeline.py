"""The timeline's view model: events as segments and marks, as pure functions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.web.pages.site import render
from clisup.web.views.timeline import (
    KINDS,
    MARKS,
    MOST_LISTED,
    MOST_MARKS,
    MOST_SEGMENTS,
    SPANS,
    Lane,
    LaneReader,
    Window,
    lane_of,
    ticks_of,
    window_of,
)

BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCRIPT = "<script>alert(1)</script>"
ROW = {"session_id": "00000001-x", "title": "T", "turn_id": None}


def at(seconds: float) -> float:
    return BEGIN.timestamp() + seconds


def event(second: float, kind: str, /, **values: Any) -> dict[str, Any]:
    ts = (BEGIN + timedelta(seconds=second)).isoformat()
    return {"type": kind, "session_id": "s", "turn_id": "t1", "ts": ts, **values}


def drawn(*events: dict[str, Any], now: float = 100.0, row: dict[str, Any] | None = None, whole: bool = True) -> Lane:
    return lane_of({**ROW, **(row or {})}, LaneReader(events), Window(at(0), at(now), at(now)), whole=whole)


def shape(lane: Lane) -> list[tuple[str, float, float]]:
    return [(one.kind, one.start - at(0), one.end - at(0)) for one in lane.segments]


def test_a_turn_is_a_bar_of_model_tool_approval_and_retry() -> None:
    lane = drawn(
        event(10, "turn_started"),
        event(20, "tool_use", tool_use_id="u", name="Bash", input={"command": "make"}),
        event(25, "approval_requested", approval_id="1:a", tool_name="Bash"),
        event(35, "approval_resolved", approval_id="1:a", decision="allow"),
        event(50, "tool_result", tool_use_id="u"),
        event(55, "retry", attempt=1),
        event(60, "message_start"),
        event(70, "turn_completed", outcome="completed"),
    )
    assert shape(lane) == [
        ("model", 10, 20), ("tool", 20, 25), ("approval", 25, 35), ("tool", 35, 50), ("model", 50, 55), ("retry", 55, 60),
        ("model", 60, 70), ("idle", 70, 100)]  # fmt: skip
    assert lane.segments[1].words == "Bash make"
    assert [round(one.x, 1) for one in lane.segments[:3]] == [10, 20, 25]


def test_parallel_tools_are_one_segment_until_the_last_has_ended() -> None:
    lane = drawn(
        event(0, "turn_started"),
        event(1, "tool_use", tool_use_id="a", name="Read"),
        event(2, "tool_use", tool_use_id="b", name="Grep"),
        event(3, "tool_result", tool_use_id="a"),
        event(4, "tool_result", tool_use_id="b"),
        event(5, "turn_completed"),
        now=6,
    )
    assert [(kind, start) for kind, start, _ in shape(lane)] == [
        ("model", 0), ("tool", 1), ("tool", 2), ("tool", 3), ("model", 4), ("idle", 5)]  # fmt: skip
    assert lane.segments[2].words == "Read, Grep"


def test_background_work_goes_on_after_the_answer_and_between_turns() -> None:
    task = {"task_id": "k", "description": "Run the tests"}
    lane = drawn(
        event(0, "turn_started"),
        event(10, "task", state="running", **task),
        event(20, "message_stop", stop_reason="end_turn"),
        event(30, "turn_completed", outcome="completed"),
        event(60, "task", state="completed", turn_id=None, **task),
    )
    assert shape(lane) == [("model", 0, 20), ("background", 20, 30), ("background", 30, 60), ("idle", 60, 100)]
    assert lane.segments[1].words == "Run the tests"


def test_a_restart_is_a_mark_within_an_unbroken_segment() -> None:
    lane = drawn(
        event(10, "turn_started"),
        event(40, "notice", code="adopted", message="a new daemon goes on with run 1"),
        event(90, "turn_completed", outcome="completed"),
    )
    assert shape(lane)[0] == ("model", 10, 90)
    (mark,) = lane.marks
    assert (mark.kind, mark.x) == ("restart", 40.0) and MARKS["restart"] in mark.name


def test_the_watchdog_leaves_marks_and_shows_its_next_limit() -> None:
    evidence = {"phase": "tool", "limit_s": 60.0, "idle_s": 48.0}
    lane = lane_of(
        {**ROW, "turn_id": "t1", "next_timer": {"phase": "tool", "limit_s": 60.0, "fires_in_s": 5.0}},
        LaneReader([event(0, "turn_started"), event(40, "watchdog", action="warned", **evidence),
                    event(80, "watchdog", action="credited", **evidence)]),
        Window(at(0), at(90), at(100)),
        whole=True,
    )  # fmt: skip
    assert [(mark.kind, mark.x) for mark in lane.marks] == [("warned", 40.0), ("credited", 80.0), ("limit", 95.0)]
    assert lane.segments[-1].end == at(90), "a running turn goes on until now, not to the limit"


def test_a_turn_that_began_before_the_window_is_shown_from_its_edge() -> None:
    lane = drawn(event(-50, "turn_started"), event(60, "turn_completed"))
    assert shape(lane) == [("model", 0, 60), ("idle", 60, 100)] and lane.cut_x == 0.0


def test_what_was_not_read_is_marked_as_unknown() -> None:
    lane = drawn(event(40, "tool_use", tool_use_id="u", name="Read"), whole=False, row={"turn_id": "t1"})
    assert lane.cut_x == 40.0 and shape(lane) == [("tool", 40, 100)]


def test_a_late_event_of_an_ended_turn_begins_no_turn() -> None:
    lane = drawn(event(0, "turn_started"), event(10, "turn_completed"), event(11, "process_exited", exit_code=0),
                 event(50, "turn_started", turn_id="t2"), event(60, "turn_completed", turn_id="t2"))  # fmt: skip
    assert [(one.kind, one.turn) for one in lane.segments] == [
        ("model", "t1"),
        ("idle", ""),
        ("model", "t2"),
        ("idle", ""),
    ]


def test_a_closed_session_ends_its_lane() -> None:
    lane = drawn(
        event(0, "turn_started"),
        event(10, "turn_completed"),
        event(20, "notice", code="closed", message="", turn_id=None),
    )
    assert shape(lane) == [("model", 0, 10), ("idle", 10, 20)]


def test_a_busy_day_makes_a_bounded_lane_that_has_no_hole() -> None:
    events = [event(0, "turn_started")]
    for second in range(1, 80_000, 4):
        events += [
            event(second, "tool_use", tool_use_id="u", name="Read"),
            event(second + 2, "tool_result", tool_use_id="u"),
        ]
        events.append(event(second + 2, "watchdog", action="warned", phase="tool"))
    lane = drawn(*events, now=86_400)
    assert len(lane.segments) <= MOST_SEGMENTS + 1 and len(lane.listed) <= MOST_LISTED and len(lane.marks) == MOST_MARKS
    assert all(one.end == after.start for one, after in zip(lane.segments, lane.segments[1:], strict=False))


KIND = st.sampled_from(["turn_started", "turn_completed", "message_start", "message_stop", "tool_use", "tool_result", "retry", "task",
                        "approval_requested", "approval_resolved", "process_exited", "watchdog", "notice", "gap"])  # fmt: skip


@given(st.lists(st.tuples(st.floats(-50, 200), KIND, st.sampled_from(["a", "b"])), max_size=30))
def test_segments_of_any_events_are_in_order_and_within_the_window(found: list[tuple[float, str, str]]) -> None:
    events = [
        event(second, kind, tool_use_id=name, approval_id=name, task_id=name, name=name, state="running", action="warned",
              phase="model", code="adopted", message="", attempt=1, from_seq=1, to_seq=2)
        for second, kind, name in found
    ]  # fmt: skip
    lane = drawn(*events, now=300)
    for one, after in zip(lane.segments, lane.segments[1:], strict=False):
        assert one.end <= after.start
    assert all(one.x >= 0 and one.x + one.width <= 100.001 and one.start < one.end for one in lane.segments)
    assert all(one.kind in KINDS for one in lane.segments)


@pytest.mark.parametrize("span", SPANS)
def test_the_axis_has_a_few_times_within_the_window(span: str) -> None:
    window = window_of(span, at(1234))
    ticks = ticks_of(window)
    assert 3 <= len(ticks) <= 6 and all(0 <= tick.x <= window.part(window.now) for tick in ticks)


@given(st.floats(0, 86_400))
def test_the_window_begins_with_the_first_event_of_young_sessions(age: float) -> None:
    window = window_of("6h", at(0), at(-age))
    assert window.now - window.start == min(6 * 3600, max(30, at(0) - at(-age)))
    assert 1 <= len(ticks_of(window)) <= 6


def test_no_name_of_a_tool_or_task_brings_markup() -> None:
    lane = drawn(
        event(0, "turn_started", turn_id=SCRIPT),
        event(10, "tool_use", turn_id=SCRIPT, tool_use_id="u", name=SCRIPT, input={"command": SCRIPT}),
        event(20, "approval_requested", turn_id=SCRIPT, approval_id="1:a", tool_name=SCRIPT),
        event(30, "task", turn_id=SCRIPT, task_id="k", state="running", description=SCRIPT),
        event(40, "watchdog", turn_id=SCRIPT, action="fired", phase=SCRIPT),
        event(50, "notice", code="adopted", message=SCRIPT),
        event(60, "turn_completed", turn_id=SCRIPT),
        row={"title": SCRIPT},
    )
    token = type("Token", (), {"name": "t", "role": "observe"})
    html = render(
        "timeline.html", lanes=[lane], ticks=[], more=0, now_x=1, span="1h", spans=list(SPANS), only=SCRIPT, kinds=KINDS, marks=MARKS,
        title="Timeline", box="", path="/timeline", can={"observe": True, "approve": False, "drive": False}, form_token="", token=token,
    )  # fmt: skip
    assert "<script>" not in html and "alert(1)" in html
