"""Work that the real claude announces and then does in silence has limits of its own: hooks, a compaction, another login."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.e2e.lab import ClaudeLab
from tests.e2e.scenarios import Body, Pause, Reply, Scenario, fail, in_turn, message, say, text

pytestmark = pytest.mark.e2e
HASTY = "[backends.claude.timeouts]\nmodel_idle = 2"
SLOW_HOOK = 'args = ["--settings", {settings}]\n[backends.claude.timeouts]\nmodel_idle = 2\nhook = {limit}'
MODES = pytest.mark.parametrize("mode", ["one-shot", "live"])


def slow_hooks(*events: str, limit: float) -> str:
    hook = {"matcher": "*", "hooks": [{"type": "command", "command": "sleep 3"}]}
    settings = json.dumps({"hooks": {event: [hook] for event in events}})
    return SLOW_HOOK.format(settings=json.dumps(settings), limit=limit)


def slow_summary(body: Body, n: int) -> Reply:
    return [Pause(5), *message(body, n, text("<summary>Words.</summary>"))]


@pytest.mark.fault(80)
@MODES
def test_hooks_that_take_longer_than_the_model_may_be_silent_are_waited_for(
    lab: Callable[..., ClaudeLab], mode: str
) -> None:
    events = ("SessionStart", "UserPromptSubmit", "Stop")
    here = lab(Scenario("hooked", say("Hello.")), config=slow_hooks(*events, limit=60))
    turn = here.turn(mode=mode)
    assert (turn["outcome"], turn["text"]) == ("completed", "Hello.")
    told = [event for event in here.events(turn["session_id"], "status") if event["status"] == "hook_started"]
    assert [event["detail"].partition(":")[0] for event in told] == list(events)
    assert not here.events(turn["session_id"], "watchdog")


def test_a_hook_beyond_its_limit_ends_the_turn_by_its_name_and_the_gate_was_not_passed(
    lab: Callable[..., ClaudeLab],
) -> None:
    here = lab(Scenario("hooked", say("Hello.")), config=slow_hooks("Stop", limit=1))
    turn = here.turn()
    assert (turn["outcome"], turn["error"]["kind"]) == ("timed_out", "idle_timeout")
    assert "while a hook of its settings ran: Stop" in turn["error"]["message"]


@pytest.mark.fault(79)
@MODES
def test_a_slow_compaction_is_waited_for(lab: Callable[..., ClaudeLab], mode: str) -> None:
    here = lab(Scenario("compacting", in_turn(say("One."), slow_summary, say("Three."))), config=HASTY)
    session = here.open(mode=mode)
    here.turn("One.", session=session)
    assert here.turn("/compact", session=session, expand=True)["outcome"] == "completed"
    assert here.turn("Three.", session=session)["text"] == "Three."
    assert "compacted" in [event["status"] for event in here.events(session, "status")]


@pytest.mark.fault(81)
@MODES
def test_a_login_that_was_refused_once_heals(lab: Callable[..., ClaudeLab], mode: str) -> None:
    refused = fail(401, "authentication_error", "Invalid bearer token")
    here = lab(Scenario("rotated", in_turn(refused, say("Recovered."))), auth="oauth")
    turn = here.turn(mode=mode)
    assert (turn["outcome"], turn["text"]) == ("completed", "Recovered.")
    assert [retry["error"]["kind"] for retry in here.events(turn["session_id"], "retry")] == ["authentication"]
