"""What the daemon counts: each event once, by labels of few values, and nothing ever taken back."""

from __future__ import annotations

import signal
from typing import get_args

import pytest

from clisup.model.events import (
    EVENT_TYPES,
    ApprovalRequested,
    ApprovalResolved,
    BackendRetry,
    EventBase,
    Notice,
    ProcessExited,
    ProcessStarted,
    PromptAccepted,
    ToolResult,
    ToolUse,
    TurnCompleted,
    TurnError,
    TurnStarted,
    Unparsed,
    WatchdogNotice,
)
from clisup.model.usage import Usage
from clisup.ops.figures import COUNTED, FIRING, MAX_BACKENDS, OTHER, PHASES, Figures, Histogram, Meter, Tally
from clisup.policy.watchdog import Phase


@pytest.fixture
def meter() -> Meter:
    return Meter(Figures(), "demo")


def see(meter: Meter, event: EventBase, turn: str | None = "t1", now: float = 0.0) -> Tally:
    meter.see(event, turn, now)
    return meter.tally


def test_no_event_that_comes_by_the_token_is_looked_at() -> None:
    assert set(EVENT_TYPES) >= COUNTED.keys()
    assert not COUNTED.keys() & {"content_delta", "message_start", "message", "message_stop", "tool_progress", "stderr"}


def test_a_batch_is_three_additions(meter: Meter) -> None:
    meter.stored(5, 2, 700)
    meter.stored(1, 0, 50)
    assert (meter.tally.events, meter.tally.own_events, meter.tally.journal_bytes) == (6, 2, 750)


def test_a_turn_is_counted_from_its_prompt_to_its_end(meter: Meter) -> None:
    see(meter, PromptAccepted(delivery="queued"), now=1.0)
    see(meter, TurnStarted(run=1), now=3.0)
    see(meter, ProcessStarted(pid=7), now=3.2)
    meter.first_event(now=3.7)
    meter.first_event(now=9.0)  # of a second process of the turn: the turn has begun to speak before
    usage = Usage(input_tokens=3, output_tokens=5, reasoning_tokens=2)
    tally = see(meter, TurnCompleted(outcome="completed", usage=usage, cost_usd=0.25, duration_s=4.5), now=7.5)
    assert tally.prompts == {"queued": 1}
    assert tally.turns_started == {"prompt": 1}
    assert tally.turns == {"completed": 1, "failed": 0, "interrupted": 0, "timed_out": 0}
    assert tally.tokens == {"input": 3, "output": 5, "reasoning": 2}
    assert tally.cost_usd == 0.25
    seen = (tally.waited, tally.process_came, tally.first_event_came, tally.lasted)
    assert [h.count for h in seen] == [1, 1, 1, 1]
    assert [h.total for h in seen] == pytest.approx([2.0, 0.2, 0.7, 4.5])


def test_a_turn_that_a_daemon_before_this_one_started_has_no_times_but_its_end(meter: Meter) -> None:
    see(meter, ProcessStarted(pid=7), now=3.0)
    meter.first_event(now=3.1)
    tally = see(meter, TurnCompleted(outcome="completed", duration_s=60.0), now=5.0)
    assert [h.count for h in (tally.waited, tally.process_came, tally.first_event_came)] == [0, 0, 0]
    assert tally.lasted.count == tally.turns["completed"] == 1


def test_a_queued_turn_that_is_dropped_leaves_the_running_one_alone(meter: Meter) -> None:
    see(meter, TurnStarted(run=1), "t1", now=0.0)
    see(meter, PromptAccepted(delivery="queued"), "t2", now=1.0)
    see(meter, TurnCompleted(outcome="interrupted"), "t2", now=2.0)
    meter.first_event(now=3.0)
    assert meter.tally.first_event_came.total == 3.0
    assert meter.tally.waited.count == meter.tally.lasted.count == 0


def test_a_steered_prompt_waits_for_no_turn(meter: Meter) -> None:
    see(meter, PromptAccepted(delivery="steered", prompt_id="p"), "t1")
    see(meter, TurnStarted(run=1), "t1", now=5.0)
    assert meter.tally.waited.count == 0


def test_a_failed_turn_says_why(meter: Meter) -> None:
    tally = see(meter, TurnCompleted(outcome="failed", error=TurnError(kind="rate_limit", message="")))
    assert (tally.turns["failed"], tally.turn_errors["rate_limit"], sum(tally.turn_errors.values())) == (1, 1, 1)


def test_a_processs_end_says_by_whom_by_which_signal_and_what_outlived_it(meter: Meter) -> None:
    one = ({"pid": 1, "comm": "sh"},)
    see(meter, ProcessExited(ended_by="watchdog:model", signal=signal.SIGKILL, survivors=one * 3))
    tally = see(meter, ProcessExited(ended_by="cli", exit_code=0, kept=one, left=one * 2))
    assert tally.processes_ended == {"watchdog": 1, "cli": 1}
    assert tally.signals == {"SIGKILL": 1}
    assert tally.survivors == {"killed": 3, "kept": 1, "left": 2}


def test_what_the_watchdog_and_the_approvals_do_is_counted_by_what_it_was(meter: Meter) -> None:
    for action in ("warned", "fired", "fired"):
        see(meter, WatchdogNotice(action=action, phase="tool"))
    see(meter, ApprovalRequested(approval_id="1:a", tool_name="Bash"))
    tally = see(meter, ApprovalResolved(approval_id="1:a", decision="deny", by="rule"))
    assert (tally.watchdog["warned", "tool"], tally.watchdog["fired", "tool"]) == (1, 2)
    assert tally.approvals_requested == 1 and tally.approvals_resolved == {("deny", "rule"): 1}


def test_tools_retries_broken_lines_and_notices_are_counted(meter: Meter) -> None:
    see(meter, ToolUse(tool_use_id="a", name="Bash"))
    see(meter, ToolResult(tool_use_id="a"))
    see(meter, ToolResult(tool_use_id="b", is_error=True))
    see(meter, BackendRetry())
    see(meter, Unparsed(reason="malformed", bytes=3))
    see(meter, Unparsed(reason="malformed", bytes=30, lines=10))
    tally = see(meter, Notice(code="adopted", message=""))
    assert (tally.tool_calls, tally.tool_errors, tally.retries) == (1, 1, 1)
    assert tally.unparsed == {"malformed": 11} and tally.notices == {"adopted": 1}


def test_what_nobody_knows_is_other(meter: Meter) -> None:
    see(meter, ProcessExited(ended_by="a new way", signal=63))
    see(meter, WatchdogNotice(action="fired", phase="a new phase"))
    tally = see(meter, Notice(code="a_new_code", message=""))
    assert tally.processes_ended == {OTHER: 1} and tally.signals == {OTHER: 1} and tally.notices == {OTHER: 1}
    assert tally.watchdog["fired", OTHER] == 1


def test_backends_beyond_the_bound_are_one() -> None:
    figures = Figures()
    tallies = {id(figures.of(f"b{n}")) for n in range(MAX_BACKENDS + 50)}
    assert len(tallies) == len(figures.backends) == MAX_BACKENDS + 1
    assert OTHER in figures.backends


def test_nothing_is_taken_back_by_a_cost_or_usage_below_zero(meter: Meter) -> None:
    tally = see(
        meter, TurnCompleted(outcome="completed", cost_usd=-1.0, usage=Usage(output_tokens=-5), duration_s=-1.0)
    )
    assert (tally.cost_usd, tally.tokens["output"], tally.lasted.total, tally.lasted.count) == (0.0, 0, 0.0, 1)


def test_a_histogram_puts_a_value_at_a_bound_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
        histogram.observe(value)
    assert (histogram.counts, histogram.count, histogram.total) == ([2, 2, 1], 5, 14.0)


def test_every_phase_that_ends_a_run_is_there_before_it_does() -> None:
    assert set(PHASES) == {*get_args(Phase), "turn"}
    assert {phase for action, phase in Tally().watchdog if action == "fired"} == set(FIRING)
    assert "resting" not in FIRING
