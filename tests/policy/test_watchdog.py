"""When a silent turn is ended: every phase by its own limit, never before it, and always at it."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from clisup.model.events import (
    ApprovalRequested,
    ApprovalResolved,
    BackendRetry,
    BackendStatus,
    EventBase,
    MessageStart,
    MessageStop,
    TaskUpdate,
    ToolResult,
    ToolUse,
    TurnError,
    Unparsed,
)
from clisup.policy.watchdog import (
    PHASE_LIMITS,
    Patience,
    Phase,
    PhaseTracker,
    TurnTimeouts,
    Watchdog,
    ladder_for,
    out_of_patience,
)

LIMITS = TurnTimeouts(
    startup=60, model_idle=180, tool_idle=1800, approval=90, background=660, linger=5, resting=600, turn=0
)
NEVER = TurnTimeouts(**{name: 0.0 for name in set(PHASE_LIMITS.values()) if name is not None})
LIMITED = [phase for phase in get_args(Phase) if phase != "blocked"]
WARNED = [phase for phase in LIMITED if phase not in ("startup", "tail", "linger", "resting")]


def limit_of(phase: str) -> float:
    return float(getattr(LIMITS, PHASE_LIMITS[phase] or ""))


def watching(phase: Phase, timeouts: TurnTimeouts = LIMITS, now: float = 1000.0) -> Watchdog:
    return Watchdog(timeouts, now=now, phase=phase)


# -- phases from events -----------------------------------------------------------------------------------------------


def phase_after(*events: EventBase) -> str:
    tracker = PhaseTracker()
    for event in events:
        tracker.see(event)
    return tracker.phase


use = ToolUse(tool_use_id="u1", name="Bash")
result = ToolResult(tool_use_id="u1")
frame = BackendStatus(status="requesting")
asked = ApprovalRequested(approval_id="1:a", tool_name="Bash")
answered = ApprovalResolved(approval_id="1:a", decision="allow")


@pytest.mark.parametrize(
    ("events", "phase"),
    [
        ((), "startup"),
        ((frame,), "model"),
        ((use,), "tool"),
        ((use, result), "model"),
        ((use, ToolUse(tool_use_id="u2", name="Read"), result), "tool"),
        ((result,), "model"),
        ((use, asked), "approval"),
        ((use, asked, answered), "tool"),
        ((asked, ApprovalResolved(approval_id="1:a", decision="cancelled")), "model"),
        ((TaskUpdate(task_id="b", state="running"),), "model"),
        ((BackendStatus(status="unknown_phase", detail="sandboxing"),), "tool"),
        ((BackendStatus(status="unknown_phase", detail="sandboxing"), frame), "model"),
        ((BackendStatus(status="unknown_phase", detail="sandboxing"), MessageStart(message_id="m")), "model"),
        ((BackendStatus(status="mcp_server", detail="a: starting"),), "opening"),
        (
            (
                BackendStatus(status="mcp_server", detail="a: starting"),
                BackendStatus(status="mcp_server", detail="a: ready"),
            ),
            "model",
        ),
        ((BackendStatus(status="mcp_server", detail="a: starting"), MessageStart(message_id="m")), "model"),
        ((BackendStatus(status="mcp_server", detail="a: failed: no such file"),), "model"),
    ],
)
def test_the_phase_follows_from_the_events(events: tuple[EventBase, ...], phase: str) -> None:
    assert phase_after(*events) == phase


def test_after_the_terminal_frame_background_work_decides_between_background_and_linger() -> None:
    tracker = PhaseTracker()
    tracker.see(use)
    tracker.see(asked)
    tracker.background = frozenset({"b"})
    tracker.finish()
    assert tracker.phase == "background"
    tracker.background = frozenset()
    assert tracker.phase == "linger"
    tracker.follow_up()
    assert tracker.phase == "model"


def test_sub_agents_at_work_after_the_models_answer_have_the_time_of_background_work() -> None:
    tracker = PhaseTracker()
    tracker.background = frozenset({"agent"})
    tracker.see(MessageStart())
    assert tracker.phase == "model"
    tracker.see(MessageStop(stop_reason="tool_use"))
    assert tracker.phase == "model"
    tracker.see(MessageStop(stop_reason="end_turn", parent_tool_use_id="agent"))
    assert tracker.phase == "model"
    tracker.see(MessageStop(stop_reason="end_turn"))
    assert tracker.phase == "background"
    tracker.see(asked)
    assert tracker.phase == "approval"
    tracker.see(MessageStart())
    tracker.see(answered)
    assert tracker.phase == "model"


def test_a_live_process_that_waits_for_its_background_work_does_not_rest() -> None:
    tracker = PhaseTracker(started=True, background=frozenset({"agent"}))
    tracker.wait()
    assert tracker.phase == "background"
    tracker.background = frozenset()
    tracker.wait()
    assert tracker.phase == "model"


def test_a_live_process_rests_after_the_terminal_frame_unless_background_work_goes_on() -> None:
    tracker = PhaseTracker()
    tracker.see(use)
    tracker.rest()
    assert tracker.phase == "resting"
    tracker.background = frozenset({"b"})
    assert tracker.phase == "background"
    tracker.follow_up()
    assert tracker.phase == "model"


def test_a_full_disk_hides_every_other_phase() -> None:
    tracker = PhaseTracker(blocked=True)
    tracker.see(use)
    tracker.finish()
    assert tracker.phase == "blocked"


# -- limits -----------------------------------------------------------------------------------------------------------


def test_every_phase_but_blocked_names_a_limit_of_its_own() -> None:
    assert set(PHASE_LIMITS) == set(get_args(Phase))
    names = [name for name in PHASE_LIMITS.values() if name]
    assert len(set(names)) == len(names) == len(LIMITED)


@pytest.mark.fault(15)
@pytest.mark.parametrize("phase", LIMITED)
def test_each_phase_fires_at_its_own_limit_and_not_a_moment_before(phase: Phase) -> None:
    dog, limit = watching(phase), limit_of(phase)
    assert dog.poll(1000 + limit - 0.001).action != "fire"
    verdict = dog.poll(1000 + limit)
    assert (verdict.action, verdict.phase, verdict.limit_s, verdict.idle_s) == ("fire", phase, limit, limit)
    assert verdict.next_at is None


@pytest.mark.parametrize("phase", get_args(Phase))
def test_zero_means_never(phase: Phase) -> None:
    dog = watching(phase, NEVER)
    verdict = dog.poll(1e9)
    assert (verdict.action, verdict.next_at, dog.timers(1e9)) == ("wait", None, [])


@pytest.mark.parametrize("phase", WARNED)
def test_it_warns_once_when_80_percent_have_passed(phase: Phase) -> None:
    dog, limit = watching(phase), limit_of(phase)
    first = dog.poll(1000)
    assert (first.action, first.next_at) == ("wait", 1000 + limit * 0.8)
    warning = dog.poll(first.next_at)
    assert (warning.action, warning.phase, warning.next_at) == ("warn", phase, 1000 + limit)
    assert dog.poll(1000 + limit * 0.9).action == "wait"


@pytest.mark.parametrize("phase", WARNED)
def test_after_a_sign_of_life_it_would_warn_again(phase: Phase) -> None:
    dog, limit = watching(phase), limit_of(phase)
    assert dog.poll(1000 + limit * 0.9).action == "warn"
    dog.alive(1000 + limit * 0.95)
    assert dog.last_life == 1000 + limit * 0.95
    assert dog.poll(1000 + limit * 1.5).action == "wait"
    assert dog.poll(1000 + limit * 1.9).action == "warn"


@pytest.mark.parametrize("phase", ["startup", "linger", "resting"])
def test_a_process_that_only_drips_bytes_must_still_start_and_still_leave(phase: Phase) -> None:
    dog, limit = watching(phase), limit_of(phase)
    dog.alive(1000 + limit - 1)
    assert dog.poll(1000 + limit * 0.9).action == "wait"
    assert dog.poll(1000 + limit).action == "fire"


@pytest.mark.fault(13)
def test_lingering_counts_from_the_last_frame() -> None:
    dog = watching("model")
    dog.enter("linger", 1100)
    assert dog.poll(1104.9).action == "wait"
    assert dog.poll(1105).phase == "linger"


def test_entering_the_same_phase_again_opens_no_new_window() -> None:
    dog = watching("startup")
    dog.enter("startup", 1050)
    assert dog.poll(1060).action == "fire"


def test_a_change_of_phase_opens_a_new_window() -> None:
    dog = watching("model")
    dog.enter("tool", 1179)
    dog.enter("model", 1180)
    assert (dog.phase, dog.poll(1181).action) == ("model", "wait")
    assert dog.poll(1360).action == "fire"


@pytest.mark.fault(16)
def test_a_turn_that_never_falls_silent_ends_at_the_limit_of_the_whole_turn() -> None:
    dog = watching("model", replace(LIMITS, turn=3600))
    for second in range(1000, 4600, 10):
        dog.alive(second)
        assert dog.poll(second).action != "fire"
    verdict = dog.poll(4600)
    assert (verdict.action, verdict.phase, verdict.limit_s, verdict.idle_s) == ("fire", "turn", 3600, 3600)


def test_the_limit_of_the_turn_warns_once_however_much_life_there_is() -> None:
    dog = watching("model", replace(LIMITS, turn=1000))
    warnings = []
    for second in range(1000, 2000, 10):
        dog.alive(second)
        verdict = dog.poll(second)
        if verdict.action == "warn":
            warnings.append((verdict.phase, second))
    assert warnings == [("turn", 1800)]


def test_two_warnings_that_are_due_together_are_both_given() -> None:
    dog = watching("model", replace(LIMITS, model_idle=100, turn=100))
    first = dog.poll(1090)
    second = dog.poll(1090)
    assert {first.phase, second.phase} == {"model", "turn"}
    assert (first.action, second.action, dog.poll(1090).action) == ("warn", "warn", "wait")


@pytest.mark.fault(55)
def test_a_full_disk_freezes_the_timers_the_turns_own_too() -> None:
    dog = watching("tool", replace(LIMITS, turn=600))
    dog.enter("blocked", 1400)
    assert dog.timers(9000) == []
    assert dog.poll(9000) == ("wait", "blocked", 0, 7600, None)
    dog.enter("tool", 9000)
    assert dog.poll(9079).action == "wait"  # 200 s of the turn were left
    assert dog.poll(9080)[:2] == ("warn", "turn")
    assert dog.poll(9200)[:2] == ("fire", "turn")


@pytest.mark.fault(21)
def test_a_pause_of_the_daemon_grants_a_new_window_and_a_hung_backend_is_still_found() -> None:
    dog = watching("model", replace(LIMITS, turn=1000))
    dog.credit(5000, 3900)
    assert dog.poll(5000).action == "wait"
    assert dog.poll(5179.9).action != "fire"
    assert dog.poll(5180)[:2] == ("fire", "model")


def test_a_pause_does_not_count_for_the_turns_own_limit() -> None:
    dog = watching("tool", replace(LIMITS, turn=1000))
    dog.credit(5000, 3900)  # 100 s of the turn had passed before
    assert {timer["phase"]: timer["fires_in_s"] for timer in dog.timers(5000)} == {"tool": 1800, "turn": 900}


steps = st.lists(
    st.tuples(st.floats(0.01, 400), st.sampled_from(["alive", "poll", "tool", "model", "background", "approval"])),
    max_size=40,
)


@settings(max_examples=150)
@given(steps)
def test_it_never_fires_before_the_limit_since_the_last_sign_of_life_and_always_at_it(
    script: list[tuple[float, str]],
) -> None:
    now, life = 0.0, 0.0
    dog = Watchdog(LIMITS, now=0, phase="model")
    for pause, step in script:
        now += pause
        if step == "alive":
            dog.alive(now)
            life = now
        elif step != "poll":
            life = now if step != dog.phase else life
            dog.enter(step, now)  # type: ignore[arg-type]
        fired = dog.poll(now).action == "fire"
        assert fired == (now >= life + limit_of(dog.phase))


@settings(max_examples=100)
@given(st.sampled_from(LIMITED), st.floats(0, 1e6), st.floats(0, 5000))
def test_asking_only_when_told_to_finds_the_deadline(phase: Phase, start: float, turn: float) -> None:
    dog = Watchdog(replace(LIMITS, turn=turn), now=start, phase=phase)
    limit = min(limit_of(phase), (0 if phase == "resting" else turn) or 1e9)  # a rest is no part of a turn
    now, asked = start, 0
    while (verdict := dog.poll(now)).action != "fire":
        assert verdict.next_at is not None
        assert verdict.next_at > now or verdict.action == "warn"
        now, asked = verdict.next_at, asked + 1
        assert asked < 8
    assert now == pytest.approx(start + limit)


def test_other_limits_hold_from_now_on_and_what_has_passed_counts() -> None:
    dog = watching("model", now=0.0)
    assert dog.poll(100).action == "wait"
    dog.renew(replace(LIMITS, model_idle=90))
    assert dog.poll(100).action == "fire"
    dog.renew(replace(LIMITS, model_idle=120))
    assert [dog.poll(at).action for at in (100, 101, 120)] == ["warn", "wait", "fire"]
    dog.renew(NEVER)
    assert dog.poll(10_000).next_at is None


@pytest.mark.parametrize("phase", ["model", "tool", "background"])
def test_a_cli_that_waits_for_a_clients_tool_is_not_silent(phase: Phase) -> None:
    dog = Watchdog(TurnTimeouts(model_idle=10, tool_idle=10, background=10), now=0, phase=phase)
    dog.hold(held=True, now=1)
    assert dog.poll(1000).action == "wait" and dog.timers(1000) == []
    dog.hold(held=False, now=1000)
    assert dog.poll(1000).next_at == 1008  # a new window, and its warning
    assert dog.poll(1010).action == "fire"


def test_the_time_of_the_whole_turn_goes_on_while_a_clients_tool_runs() -> None:
    dog = Watchdog(TurnTimeouts(tool_idle=10, turn=100), now=0, phase="tool")
    dog.hold(held=True, now=0)
    assert dog.poll(100).phase == "turn" and dog.poll(100).action == "fire"


def test_a_process_that_does_not_leave_is_ended_also_where_a_call_is_open() -> None:
    dog = Watchdog(TurnTimeouts(linger=5), now=0, phase="linger")
    dog.hold(held=True, now=0)
    assert dog.poll(5).action == "fire"


def retry(kind: str, *, attempt: int | None = 1, delay_s: float | None = 1.0) -> BackendRetry:
    error = msgspec.convert({"kind": kind, "message": "no", "retryable": True}, TurnError)
    return BackendRetry(attempt=attempt, max_attempts=10, delay_s=delay_s, error=error)


@pytest.mark.fault(64)
@pytest.mark.parametrize(("kind", "last"), [("authentication", 3), ("permission", 3), ("quota_exceeded", 1)])
def test_what_no_further_retry_can_change_ends_and_is_not_retryable(kind: str, last: int) -> None:
    healing = [out_of_patience(retry(kind, attempt=n), Patience()) for n in range(1, last)]
    assert healing == [None] * (last - 1)
    for attempt in (last, last + 1, None):  # None: the CLI does not count
        error = out_of_patience(retry(kind, attempt=attempt), Patience())
        assert error is not None and error.kind == kind and not error.retryable


def told(status: str, detail: str | None = None) -> BackendStatus:
    return BackendStatus(status=status, detail=detail)


@pytest.mark.parametrize(
    ("begins", "ends", "phase", "names"),
    [
        ([told("hook_started", "Stop")], [told("hook_response", "Stop: success")], "hook", ["Stop"]),
        ([told("hook_started", "preToolUse: running")], [told("hook_response", "preToolUse: done")], "hook", ["preToolUse"]),
        ([told("compacting")], [told("compacted", "success")], "compaction", []),
        ([told("compacting")], [told("compaction_failed", "x")], "compaction", []),
        ([told("compaction", "in_progress")], [told("compaction", "completed")], "compaction", []),
        ([retry("authentication")], [MessageStart(message_id="m")], "login", []),
        ([retry("overloaded")], [MessageStart(message_id="m")], "model", []),
    ],
)  # fmt: skip
def test_work_that_a_cli_announces_has_a_phase_of_its_own(
    begins: list[EventBase], ends: list[EventBase], phase: Phase, names: list[str]
) -> None:
    tracker = PhaseTracker()
    for event in begins:
        tracker.see(event)
    assert (tracker.phase, tracker.at_work) == (phase, names)
    for event in ends:
        tracker.see(event)
    assert (tracker.phase, tracker.at_work) == ("model", [])


def test_a_hook_is_open_until_its_own_end_and_an_unknown_end_closes_the_newest() -> None:
    tracker = PhaseTracker()
    for name in ("Stop", "Stop", "PreToolUse:Bash"):
        tracker.see(told("hook_started", name))
    tracker.see(told("hook_response", "Stop: success"))
    assert tracker.at_work == ["PreToolUse:Bash", "Stop"]
    tracker.see(told("hook_response", "never begun: success"))
    assert tracker.at_work == ["Stop"]
    tracker.see(told("hook_response", "Stop: failed"))
    tracker.see(told("hook_response", "Stop: failed"))
    assert (tracker.phase, tracker.at_work) == ("model", [])


def test_the_answer_is_not_whole_while_a_hook_runs() -> None:
    tracker = PhaseTracker()
    tracker.see(MessageStop(message_id="m", stop_reason="end_turn"))
    assert tracker.answer_is_whole
    tracker.see(told("hook_started", "Stop"))
    assert tracker.phase == "hook" and not tracker.answer_is_whole


@pytest.mark.parametrize("kind", ["overloaded", "rate_limit", "server", "network"])
def test_all_else_is_left_to_the_cli_by_default(kind: str) -> None:
    assert out_of_patience(retry(kind, attempt=9, delay_s=40), Patience()) is None


def test_one_retry_more_than_allowed_ends_the_turn_with_its_own_error() -> None:
    patience = Patience(retries=2)
    assert out_of_patience(retry("overloaded", attempt=2), patience) is None
    error = out_of_patience(retry("overloaded", attempt=3), patience)
    assert error is not None and error.kind == "overloaded" and error.retryable


def test_a_wait_longer_than_allowed_ends_the_turn_and_says_how_long_it_would_be() -> None:
    patience = Patience(wait_s=5)
    assert out_of_patience(retry("rate_limit", delay_s=5), patience) is None
    error = out_of_patience(retry("rate_limit", delay_s=30), patience)
    assert error is not None and (error.kind, error.retry_after_s) == ("rate_limit", 30)


@pytest.mark.parametrize("event", [BackendRetry(attempt=99), retry("server", attempt=None, delay_s=None)])
def test_a_retry_that_says_little_is_given_time(event: BackendRetry) -> None:
    assert out_of_patience(event, Patience(retries=1, wait_s=1)) is None


TIMEOUTS = TurnTimeouts(int_grace=2, term_grace=7)


def test_an_ending_is_gentle_first() -> None:
    assert ladder_for("graceful", TIMEOUTS) == [("INT", 2), ("TERM", 7)]


def test_a_term_ending_leaves_sigint_out() -> None:
    assert ladder_for("term", TIMEOUTS) == [("TERM", 7)]


def test_a_kill_has_no_step_before_sigkill() -> None:
    assert ladder_for("kill", TIMEOUTS) == []


@pytest.mark.parametrize(
    ("reason", "phase"), [("malformed", "startup"), ("truncated", "startup"), ("unknown_type", "model")]
)
def test_words_that_are_no_frame_are_no_start(reason: str, phase: str) -> None:
    tracker = PhaseTracker()
    tracker.see(Unparsed(reason=reason, bytes=3, excerpt="Ok?"))  # type: ignore[arg-type]
    assert (tracker.phase, tracker.unreadable) == (phase, "Ok?" if phase == "startup" else "")
