"""What the daemon counts: each event once, by labels of few values, and nothing ever taken back."""

from __future__ import annotations

import signal
from typing import Any, get_args

import pytest

from clisup.daemon.metrics import COUNTED, FIRING, MAX_BACKENDS, OTHER, PHASES, Histogram, Meter, Metrics
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
from clisup.policy.watchdog import Phase


@pytest.fixture
def meter() -> Meter:
    return Meter(Metrics(), "demo")


def see(meter: Meter, event: EventBase, turn: str | None = "t1", now: float = 0.0) -> None:
    meter.see(event, turn, now)


def value(meter: Meter, name: str, *labels: str) -> Any:
    return meter.metrics.values[f"clisup_{name}"].get(("demo", *labels), 0)


def series(meter: Meter, name: str) -> dict[str, Any]:
    """Return the values of a counter by its last label, without zeros."""
    return {labels[-1]: value for labels, value in meter.metrics.values[f"clisup_{name}"].items() if value}


TIMES = ("turn_wait", "turn_process_start", "turn_first_event", "turn_duration")


def times(meter: Meter, what: str) -> list[float]:
    found = [value(meter, f"{name}_seconds") for name in TIMES]
    return [0 if h == 0 else h.total if what == "sum" else sum(h.counts) for h in found]


def test_no_event_that_comes_by_the_token_is_looked_at() -> None:
    assert set(EVENT_TYPES) >= COUNTED.keys()
    assert not COUNTED.keys() & {"content_delta", "message_start", "message", "message_stop", "tool_progress", "stderr"}


def test_a_batch_is_three_additions(meter: Meter) -> None:
    meter.stored(5, 2, 700)
    meter.stored(1, 0, 50)
    assert series(meter, "journal_events_total") == {"backend": 4, "daemon": 2}
    assert value(meter, "journal_bytes_total") == 750


def test_a_turn_is_counted_from_its_prompt_to_its_end(meter: Meter) -> None:
    see(meter, PromptAccepted(delivery="queued"), now=1.0)
    see(meter, TurnStarted(run=1), now=3.0)
    see(meter, ProcessStarted(pid=7), now=3.2)
    meter.first_event(now=3.7)
    meter.first_event(now=9.0)  # of a second process of the turn: the turn has begun to speak before
    usage = Usage(input_tokens=3, output_tokens=5, reasoning_tokens=2)
    see(meter, TurnCompleted(outcome="completed", usage=usage, cost_usd=0.25, duration_s=4.5), now=7.5)
    assert series(meter, "prompts_total") == {"queued": 1}
    assert series(meter, "turns_started_total") == {"prompt": 1}
    assert series(meter, "turns_total") == {"completed": 1}
    assert series(meter, "tokens_total") == {"input": 3, "output": 5, "reasoning": 2}
    assert value(meter, "cost_usd_total") == 0.25
    assert times(meter, "count") == [1, 1, 1, 1]
    assert times(meter, "sum") == pytest.approx([2.0, 0.2, 0.7, 4.5])


def test_a_turn_that_a_daemon_before_this_one_started_has_no_times_but_its_end(meter: Meter) -> None:
    see(meter, ProcessStarted(pid=7), now=3.0)
    meter.first_event(now=3.1)
    see(meter, TurnCompleted(outcome="completed", duration_s=60.0), now=5.0)
    assert times(meter, "count") == [0, 0, 0, 1]
    assert series(meter, "turns_total") == {"completed": 1}


def test_a_queued_turn_that_is_dropped_leaves_the_running_one_alone(meter: Meter) -> None:
    see(meter, TurnStarted(run=1), "t1", now=0.0)
    see(meter, PromptAccepted(delivery="queued"), "t2", now=1.0)
    see(meter, TurnCompleted(outcome="interrupted"), "t2", now=2.0)
    meter.first_event(now=3.0)
    assert times(meter, "sum") == [0, 0, 3.0, 0]
    assert times(meter, "count") == [0, 0, 1, 0]


def test_a_steered_prompt_waits_for_no_turn(meter: Meter) -> None:
    see(meter, PromptAccepted(delivery="steered", prompt_id="p"), "t1")
    see(meter, TurnStarted(run=1), "t1", now=5.0)
    assert times(meter, "count")[0] == 0


def test_a_failed_turn_says_why(meter: Meter) -> None:
    see(meter, TurnCompleted(outcome="failed", error=TurnError(kind="rate_limit", message="")))
    assert series(meter, "turns_total") == {"failed": 1} and series(meter, "turn_errors_total") == {"rate_limit": 1}


def test_a_processs_end_says_by_whom_by_which_signal_and_what_outlived_it(meter: Meter) -> None:
    one = ({"pid": 1, "comm": "sh"},)
    see(meter, ProcessExited(ended_by="watchdog:model", signal=signal.SIGKILL, survivors=one * 3))
    see(meter, ProcessExited(ended_by="cli", exit_code=0, kept=one, left=one * 2))
    assert series(meter, "processes_ended_total") == {"watchdog": 1, "cli": 1}
    assert series(meter, "process_signals_total") == {"SIGKILL": 1}
    assert series(meter, "survivors_total") == {"killed": 3, "kept": 1, "left": 2}


def test_what_the_watchdog_and_the_approvals_do_is_counted_by_what_it_was(meter: Meter) -> None:
    for action in ("warned", "fired", "fired"):
        see(meter, WatchdogNotice(action=action, phase="tool"))
    see(meter, ApprovalRequested(approval_id="1:a", tool_name="Bash"))
    see(meter, ApprovalResolved(approval_id="1:a", decision="deny", by="rule"))
    assert series(meter, "watchdog_warnings_total") == {"tool": 1}
    assert series(meter, "watchdog_firings_total") == {"tool": 2}
    assert value(meter, "approvals_requested_total") == 1
    assert value(meter, "approvals_resolved_total", "deny", "rule") == 1


def test_tools_retries_broken_lines_and_notices_are_counted(meter: Meter) -> None:
    see(meter, ToolUse(tool_use_id="a", name="Bash"))
    see(meter, ToolResult(tool_use_id="a"))
    see(meter, ToolResult(tool_use_id="b", is_error=True))
    see(meter, BackendRetry())
    see(meter, Unparsed(reason="malformed", bytes=3))
    see(meter, Unparsed(reason="malformed", bytes=30, lines=10))
    see(meter, Notice(code="adopted", message=""))
    names = ("tool_calls_total", "tool_errors_total", "backend_retries_total")
    assert [value(meter, name) for name in names] == [1, 1, 1]
    assert series(meter, "unparsed_lines_total") == {"malformed": 11}
    assert series(meter, "notices_total") == {"adopted": 1}


def test_what_nobody_knows_is_other(meter: Meter) -> None:
    see(meter, ProcessExited(ended_by="a new way", signal=63))
    see(meter, WatchdogNotice(action="fired", phase="a new phase"))
    see(meter, Notice(code="a_new_code", message=""))
    for name in ("processes_ended", "process_signals", "notices", "watchdog_firings"):
        assert series(meter, f"{name}_total") == {OTHER: 1}


def test_backends_beyond_the_bound_are_one() -> None:
    metrics = Metrics()
    labels = {metrics.backend(f"b{n}") for n in range(MAX_BACKENDS + 50)}
    assert len(labels) == len(metrics.backends) == MAX_BACKENDS + 1
    assert OTHER in metrics.backends


def test_nothing_is_taken_back_by_a_cost_or_usage_below_zero(meter: Meter) -> None:
    see(meter, TurnCompleted(outcome="completed", cost_usd=-1.0, usage=Usage(output_tokens=-5), duration_s=-1.0))
    assert value(meter, "cost_usd_total") == value(meter, "tokens_total", "output") == 0
    assert (times(meter, "sum")[3], times(meter, "count")[3]) == (0.0, 1)


def test_every_phase_that_ends_a_run_is_there_before_it_does(meter: Meter) -> None:
    assert set(PHASES) == {*get_args(Phase), "turn"} and "resting" not in FIRING
    for phase in FIRING:
        assert meter.metrics.values["clisup_watchdog_firings_total"]["demo", phase] == 0


def test_a_histogram_puts_a_value_at_a_bound_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for seconds in (0.5, 1.0, 1.5, 2.0, 9.0):
        histogram.observe(seconds)
    assert (histogram.counts, histogram.total) == ([2, 2, 1], 14.0)
