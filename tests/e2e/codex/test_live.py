"""Live sessions of the real codex: one app-server for many turns of a thread."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest

from clisup.errors import ClisupError
from tests.e2e.codex.fake_api import message, prompts, said
from tests.e2e.codex.lab import CodexLab, running_with
from tests.e2e.codex.scenarios import PLANS, SLOW, Scenario, plan, remember, run, say, think
from tests.e2e.codex.test_codex_steering import gated, killed_at, stuck
from tests.e2e.codex.test_content import SENT_IMAGE, sent
from tests.e2e.codex.test_content import said as said_text
from tests.e2e.codex.test_structured import BY_SCHEMA, SCHEMA
from tests.e2e.lab import poll
from tests.e2e.pictures import image, text
from tests.e2e.scenarios import Body, Reply, in_turn

pytestmark = pytest.mark.e2e
Lab = Callable[..., CodexLab]
LIVE = {"mode": "live"}
TODO = "[completed] look\n[inProgress] think"


def test_a_queued_prompt_has_its_turn_after_an_interrupt(lab: Lab) -> None:
    here = lab(Scenario("slow", in_turn(run(SLOW), say("Quick."))))
    session = here.open(**LIVE)
    here.prompt(session)
    here.wait_for(session, "tool_use")
    with here.client() as client:
        queued = client.call("session/prompt", session_id=session, prompt="Then this.")
        client.call("session/interrupt", session_id=session)
    assert here.wait_for(session, "turn_completed", turn_id=queued["turn_id"])["text"] == "Quick."
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


def test_each_turn_has_its_own_schema(lab: Lab) -> None:
    here = lab(BY_SCHEMA)
    session = here.open(**LIVE)
    first = here.turn("First.", session=session, output_schema=SCHEMA)
    second = here.turn("Second.", session=session)
    third = here.turn("Third.", session=session, output_schema=SCHEMA)
    assert [turn.get("structured") for turn in (first, second, third)] == [{"answer": 42}, None, {"answer": 42}]
    assert len(here.pids(session)) == 1 and "First." in json.dumps(here.api.requests[-1].body)


def test_a_prompt_that_names_a_skill_is_text(lab: Lab) -> None:
    here = lab(Scenario("skills", remember))
    skill = here.codex_home / "skills" / "secret" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: secret\ndescription: d\n---\nDo as the skill says.\n")
    session = here.open(**LIVE)
    for words in ("Use $secret now.", "Again $secret."):
        here.turn(words, session=session)
        assert "Do as the skill says." not in json.dumps(here.api.requests[-1].body)
    started = here.events(session, "turn_started")
    assert all("zero-width" in event["prompt_altered"] for event in started)


def model_of(body: Body, n: int) -> Reply:
    return said(n, message(f"{body['model']} {(body.get('reasoning') or {}).get('effort')}"))


def set_model(here: CodexLab, session: str, model: str) -> None:
    with here.client() as client:
        changed = client.call("session/set_model", session_id=session, model=model)
    assert changed == {"applied": "next_turn", "value": model}


def test_another_model_has_the_next_turn_in_the_same_process(lab: Lab) -> None:
    here = lab(Scenario("model", model_of), args=("-c", 'model_reasoning_effort="high"'))
    session = here.open(**LIVE)
    assert here.turn(session=session)["text"] == "gpt-5.2 high"
    set_model(here, session, "gpt-5.1")
    assert here.turn(session=session)["text"] == "gpt-5.1 high"
    assert [event["model"] for event in here.events(session, "session_init")] == ["gpt-5.2", "gpt-5.1"]
    with here.client() as client:
        assert client.call("session/get", session_id=session)["model"] == "gpt-5.1"
    assert here.turn(session=session)["text"] == "gpt-5.1 high" and len(here.pids(session)) == 1
    os.kill(here.pids(session)[0], signal.SIGKILL)
    here.wait_for(session, "process_exited")
    assert here.turn(session=session)["text"] == "gpt-5.1 high"


@pytest.mark.fault(1)
def test_kill_9_before_the_turn_with_another_model_changes_nothing(lab: Lab) -> None:
    here = lab(Scenario("model", gated(model_of, model_of)))
    session = here.open(**LIVE)
    here.prompt(session)
    here.wait_for(session, "tool_use")
    set_model(here, session, "gpt-5.1")
    here.kill()
    here.start()
    (here.cwd / "go").touch()
    assert here.wait_for(session, "turn_completed")["text"].startswith("gpt-5.2")
    with killed_at(here, "say.journaled"):
        here.turn("Next.", session=session)
    here.start()
    assert here.wait_for(session, "turn_completed", turn_id="t2")["text"].startswith("gpt-5.1")
    assert prompts(here.api.main_requests[-1].body) == ["Say hello.", "Next."]
    assert len(here.pids(session)) == 1


@pytest.mark.parametrize("mode", ["live", "one-shot"])
def test_a_compaction_is_a_turn_like_any_other(lab: Lab, mode: str) -> None:
    here = lab(Scenario("compacted", in_turn(say("One."), say("The summary."), say("Two."))))
    session = here.open(mode=mode)
    here.turn("First.", session=session)
    with here.client() as client:
        with pytest.raises(ClisupError) as refused:
            client.call("session/compact", session_id=session, instructions="the numbers")
        assert refused.value.kind == "unsupported"
        done = client.call("session/compact", session_id=session, wait=True, key="c")
        assert client.call("session/compact", session_id=session, key="c")["delivery"] == "duplicate"
    assert (done["turn_id"], done["outcome"], done["text"]) == ("t2", "completed", "")
    assert done["usage"]["input_tokens"] == 700 and done["usage"]["output_tokens"] == 41
    assert here.wait_for(session, "status", status="compacted")["turn_id"] == "t2"
    assert here.turn("Second.", session=session)["text"] == "Two."
    first, summary, second = prompts(here.api.main_requests[-1].body)
    assert (first, second) == ("First.", "Second.") and summary.endswith("The summary.")
    assert len(here.pids(session)) == (1 if mode == "live" else 3)


def test_an_interrupt_ends_a_compaction(lab: Lab) -> None:
    here = lab(Scenario("compacted", in_turn(say("One."), stuck, say("Two."))))
    session = here.open(**LIVE)
    here.turn("First.", session=session)
    with here.client() as client:
        client.call("session/compact", session_id=session)
        poll(lambda: len(here.api.main_requests) == 2, "the request for a summary")
        assert client.call("session/interrupt", session_id=session)["outcome"] == "interrupted"
    assert here.turn("Second.", session=session)["text"] == "Two."
    assert prompts(here.api.main_requests[-1].body) == ["First.", "Second."] and len(here.pids(session)) == 1


@pytest.mark.fault(1)
def test_kill_9_at_a_compaction_compacts_once(lab: Lab) -> None:
    here = lab(Scenario("compacted", in_turn(say("One."), say("The summary."), say("Two."))))
    session = here.open(**LIVE)
    here.turn("First.", session=session)
    with killed_at(here, "say.journaled"), here.client() as client:
        client.call("session/compact", session_id=session, wait=True)
    here.start()
    here.wait_for(session, "turn_completed", turn_id="t2")
    assert here.turn("Second.", session=session)["text"] == "Two."
    assert len(here.api.main_requests) == 3 and len(here.pids(session)) == 1


def test_plans_reasoning_and_images_come_in_each_turn(lab: Lab) -> None:
    """Also in later turns: their decoder has seen nothing of the first one."""
    here = lab(Scenario("rich", in_turn(*[plan, think] * 2)), args=PLANS)
    session = here.open(**LIVE)
    for turn_id in ("t1", "t2"):
        turn = here.turn([text("What is"), image(), text("this?")], session=session)
        events = [event for event in here.events(session) if event.get("turn_id") == turn_id]
        assert (turn["turn_id"], turn["text"]) == (turn_id, "A picture.")
        assert [event["detail"] for event in events if event.get("status") == "todo_list"] == [TODO]
        thoughts = [event for event in events if event["type"] == "content_delta" and event["kind"] == "thinking"]
        assert "".join(event["text"] for event in thoughts) == "Let me look."
        assert {"kind": "thinking", "text": "Let me look."} in [
            block for event in events if event["type"] == "message" for block in event["blocks"]
        ]
        assert sent(here)[-3:] == [said_text("What is"), SENT_IMAGE, said_text("this?")]
    assert len(here.pids(session)) == 1


def test_a_steered_prompt_may_have_images(lab: Lab) -> None:
    here = lab(Scenario("picture", gated(say("A picture."))))
    session = here.open(**LIVE)
    here.prompt(session)
    here.wait_for(session, "tool_use")
    with here.client() as client:
        prompt = [text("And"), image(), text("this?")]
        client.call("session/prompt", session_id=session, prompt=prompt, when_busy="steer")
    (here.cwd / "go").touch()
    here.wait_for(session, "turn_completed")
    assert sent(here)[-3:] == [said_text("And"), SENT_IMAGE, said_text("this?")]
