"""Live sessions of the real codex: one app-server for many turns of a thread."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest

from clisup.errors import ClisupError
from tests.e2e.codex.lab import CodexLab, running_with
from tests.e2e.codex.scenarios import SLOW, Scenario, fail, remember, run, say
from tests.e2e.codex.test_answers import FIRST, SECOND
from tests.e2e.codex.test_approvals import ESCALATED, SERVER, answer, asked, resolved
from tests.e2e.codex.test_structured import BY_SCHEMA, SCHEMA
from tests.e2e.lab import poll
from tests.e2e.scenarios import in_turn

pytestmark = pytest.mark.e2e
Lab = Callable[..., CodexLab]
LIVE = {"mode": "live"}


def test_many_turns_of_one_process_with_the_usage_of_each(lab: Lab) -> None:
    here = lab("resume")
    session = here.open(**LIVE)
    first, second, third = (here.turn(text, session=session) for text in ("My name is Ada.", "What?", "And now?"))
    assert [turn["text"] for turn in (first, second, third)] == ["You first said: My name is Ada."] * 3
    assert len(here.pids(session)) == 1
    assert 0 < third["cost_usd"] < 2 * second["cost_usd"] and second["cost_source"] == "estimated"
    assert FIRST.items() <= first["usage"].items() and SECOND.items() <= second["usage"].items()
    with here.client() as client:
        client.call("session/close", session_id=session)
    (exited,) = here.events(session, "process_exited")
    assert (exited["exit_code"], exited["ended_by"]) == (0, "client")


def test_a_new_process_goes_on_with_the_thread(lab: Lab) -> None:
    here = lab("resume")
    session = here.open(**LIVE)
    here.turn("My name is Ada.", session=session)
    os.kill(here.pids(session)[0], signal.SIGKILL)
    here.wait_for(session, "process_exited")
    assert here.turn("What did I say?", session=session)["text"] == "You first said: My name is Ada."
    assert here.turn("And now?", session=session)["text"] == "You first said: My name is Ada."
    assert len(here.pids(session)) == 2


def test_a_running_turn_takes_no_other_prompt(lab: Lab) -> None:
    here = lab(Scenario("slow", in_turn(run(SLOW), say("Quick."))))
    session = here.open(**LIVE)
    here.prompt(session)
    here.wait_for(session, "tool_use")
    with here.client() as client:
        with pytest.raises(ClisupError) as refused:
            client.call("session/prompt", session_id=session, prompt="Also this.", when_busy="steer")
        assert refused.value.kind == "unsupported"
        queued = client.call("session/prompt", session_id=session, prompt="Then this.")
        client.call("session/interrupt", session_id=session)
    assert here.wait_for(session, "turn_completed", turn_id=queued["turn_id"])["text"] == "Quick."
    assert len(here.pids(session)) == 1


def test_an_interrupt_ends_the_turn_and_keeps_the_process(lab: Lab) -> None:
    here = lab(Scenario("slow", in_turn(run(SLOW), say("Quick."), run(SLOW), say("Quick again."))))
    session = here.open(**LIVE)
    for turn, text in (("t1", "Quick."), ("t3", "Quick again.")):
        here.prompt(session)
        here.wait_for(session, "tool_use", turn_id=turn)
        with here.client() as client:
            assert client.call("session/interrupt", session_id=session)["outcome"] == "interrupted"
        assert here.turn("Go on.", session=session)["text"] == text
    assert len(here.pids(session)) == 1


@pytest.mark.fault(10)
@pytest.mark.parametrize("mode", ["workspace-write", "danger-full-access"])
def test_an_interrupt_ends_the_commands_of_its_turn_and_no_others(lab: Lab, mode: str) -> None:
    """By itself codex 0.169.0 ends the turn, and the command goes on."""
    earlier, own = (f"sleep {3720 + n + len(mode)}" for n in (1, 2))
    here = lab(Scenario("runs", in_turn(run(earlier, yield_time_ms=300), say("It runs."), run(own), say("Well."))))
    session = here.open(permission_mode=mode, **LIVE)
    assert here.turn(session=session)["text"] == "It runs."
    here.prompt(session)
    poll(lambda: running_with(own), "the start of the command")
    with here.client() as client:
        assert client.call("session/interrupt", session_id=session)["outcome"] == "interrupted"
    poll(lambda: not running_with(own), "the end of the command")
    assert running_with(earlier) and here.turn(session=session)["text"] == "Well."
    with here.client() as client:
        client.call("session/close", session_id=session)
    poll(lambda: not running_with(earlier), "the end of the other command")
    assert len(here.pids(session)) == 1


def test_a_turn_goes_on_in_its_process_while_the_daemon_is_killed(lab: Lab) -> None:
    touch = run("touch made.txt", **ESCALATED)
    here = lab(Scenario("touches", in_turn(*[touch, say("done")] * 3), kinds=SERVER))
    session = here.open(**LIVE)
    here.prompt(session)
    answer(here, session, asked(here, session), "allow")
    here.wait_for(session, "turn_completed")
    here.kill()
    here.start()  # it adopts a resting process
    (here.cwd / "made.txt").unlink()
    here.prompt(session, "Again.")
    approval = here.wait_for(session, "approval_requested", turn_id="t2")
    here.kill()
    here.start()  # it adopts a process in its second turn
    answer(here, session, approval, "allow")
    assert here.wait_for(session, "turn_completed", turn_id="t2")["text"] == "done"
    assert (here.cwd / "made.txt").exists() and len(here.pids(session)) == 1
    assert resolved(here, session) == [("allow", "client")] * 2
    here.prompt(session, "Once more.")
    here.kill()
    here.start()
    answer(here, session, here.wait_for(session, "approval_requested", turn_id="t3"), "deny")
    here.wait_for(session, "turn_completed", turn_id="t3")
    assert len(here.pids(session)) == 1
    seqs = [event["seq"] for event in here.events(session)]
    assert seqs == list(range(1, len(seqs) + 1))


def test_each_turn_has_its_own_schema(lab: Lab) -> None:
    here = lab(BY_SCHEMA)
    session = here.open(**LIVE)
    first = here.turn("First.", session=session, output_schema=SCHEMA)
    second = here.turn("Second.", session=session)
    third = here.turn("Third.", session=session, output_schema=SCHEMA)
    assert [turn.get("structured") for turn in (first, second, third)] == [{"answer": 42}, None, {"answer": 42}]
    assert len(here.pids(session)) == 1 and "First." in json.dumps(here.api.requests[-1].body)


def test_a_failed_turn_leaves_the_process_for_the_next(lab: Lab) -> None:
    here = lab(Scenario("bad_first", in_turn(fail(400, "bad thing", code="invalid_value"), say("Well."))))
    session = here.open(**LIVE)
    outcomes = [here.turn(f"{n}", session=session)["outcome"] for n in range(2)]
    assert outcomes == ["failed", "completed"] and len(here.pids(session)) == 1


def test_a_prompt_that_names_a_skill_is_text(lab: Lab) -> None:
    here = lab(Scenario("skills", remember))
    skill = here.codex_home / "skills" / "secret" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: secret\ndescription: d\n---\nDo as the skill says.\n")
    session = here.open(**LIVE)
    for text in ("Use $secret now.", "Again $secret."):
        here.turn(text, session=session)
        assert "Do as the skill says." not in json.dumps(here.api.requests[-1].body)
    started = here.events(session, "turn_started")
    assert all("zero-width" in event["prompt_altered"] for event in started)


def test_a_turn_of_a_live_process_costs_little_beside_the_model(lab: Lab) -> None:
    lab("text").prove_that_live_is_cheap()
