"""Live sessions of the real qwen: one process for many turns, with approvals."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from clisup.errors import ClisupError
from tests.e2e.questions import QUESTIONS
from tests.e2e.qwen.lab import QwenLab
from tests.e2e.qwen.scenarios import (
    MODEL,
    SCHEMA,
    fail,
    partial,
    remember,
    say,
    shell,
    tool,
    use,
)
from tests.e2e.scenarios import Scenario, Stall, in_turn

pytestmark = pytest.mark.e2e
Start = Callable[..., QwenLab]
LIVE: dict[str, Any] = {"mode": "live"}
TOUCH = use(*shell("t", "touch made.txt"))
# The shares of the first requests, without the cached tokens of each prompt.
FIRST = {"input_tokens": 700, "output_tokens": 40, "cache_read_input_tokens": 300, "source": "reported"}
SECOND = {"input_tokens": 700, "output_tokens": 41, "cache_read_input_tokens": 301, "source": "reported"}


def test_many_turns_of_one_process_with_the_usage_of_each(lab: Start) -> None:
    here = lab("memory")
    session = here.open(**LIVE)
    first, second, third = (here.turn(text, session=session) for text in ("My name is Ada.", "What?", "And now?"))
    assert [turn["text"] for turn in (first, second, third)] == ["You first said: My name is Ada."] * 3
    assert FIRST.items() <= first["usage"].items() and SECOND.items() <= second["usage"].items()
    assert len(here.pids(session)) == 1 and not here.events(session, "unparsed")
    with here.client() as client:
        client.call("session/close", session_id=session)
    (exited,) = here.events(session, "process_exited")
    assert (exited["exit_code"], exited["ended_by"]) == (0, "client")


def test_a_new_process_goes_on_with_the_session_and_its_usage(lab: Start) -> None:
    here = lab("memory")
    session = here.open(**LIVE)
    here.turn("My name is Ada.", session=session)
    os.kill(here.pids(session)[0], signal.SIGKILL)
    here.wait_for(session, "process_exited")
    second = here.turn("What did I say?", session=session)
    assert second["text"] == "You first said: My name is Ada." and SECOND.items() <= second["usage"].items()
    assert here.turn("And now?", session=session)["text"] == "You first said: My name is Ada."
    assert len(here.pids(session)) == 2


def test_an_interrupt_ends_the_turn_and_keeps_the_process(lab: Start) -> None:
    here = lab(Scenario("slow", in_turn(partial(Stall()), say("Quick."), TOUCH, say("Quick again."))))
    session = here.open(permission_mode="default", **LIVE)
    for turn, kind, text in (("t1", "content_delta", "Quick."), ("t3", "approval_requested", "Quick again.")):
        here.prompt(session)
        here.wait_for(session, kind, turn_id=turn)
        with here.client() as client:
            assert client.call("session/interrupt", session_id=session)["outcome"] == "interrupted"
        done = here.turn("Go on.", session=session)
        assert (done["text"], done["outcome"]) == (text, "completed")
    assert len(here.pids(session)) == 1 and not here.events(session, "unparsed")


def test_a_tool_waits_for_its_approval(lab: Start) -> None:
    here = lab(Scenario("asks", in_turn(TOUCH, say("I did."), use(*shell("u", "touch more.txt")), say("I may not."))))
    session = here.open(permission_mode="default", **LIVE)
    here.prompt(session)
    asked = here.wait_for(session, "approval_requested")
    assert (asked["tool_name"], asked["input"]["command"]) == ("run_shell_command", "touch made.txt")
    here.answer(session, asked, "allow")
    assert here.wait_for(session, "turn_completed", turn_id="t1")["text"] == "I did."
    here.prompt(session)
    here.answer(session, here.wait_for(session, "approval_requested", turn_id="t2"), "deny", message="Not that.")
    assert here.wait_for(session, "turn_completed", turn_id="t2")["text"] == "I may not."
    assert "Not that." in here.events(session, "tool_result")[1]["content"]
    assert (here.cwd / "made.txt").exists() and not (here.cwd / "more.txt").exists()
    assert [event["decision"] for event in here.events(session, "approval_resolved")] == ["allow", "deny"]


def test_a_question_of_the_model_gets_its_answers(lab: Start) -> None:
    here = lab(Scenario("asks", in_turn(use(*tool("ask_user_question", "q", QUESTIONS)), say("Thanks."))))
    session = here.open(**LIVE)
    here.prompt(session)
    asked = here.wait_for(session, "approval_requested")
    answers = {"Which database?": "Postgres", "Which checks?": "lint, unit"}
    here.answer(session, asked, "allow", updated_input={**QUESTIONS, "answers": answers})
    assert here.wait_for(session, "turn_completed")["text"] == "Thanks."
    told = here.events(session, "tool_result")[0]["content"]
    assert "Postgres" in told and "lint, unit" in told


def test_a_turn_goes_on_in_its_process_while_the_daemon_is_killed(lab: Start) -> None:
    here = lab(Scenario("touches", in_turn(*[TOUCH, say("done")], *[use(*shell("u", "touch more.txt")), say("done")])))
    session = here.open(permission_mode="default", **LIVE)
    here.prompt(session, "First.")
    asked = here.wait_for(session, "approval_requested")
    here.kill()
    here.start()  # it adopts a process in its first turn
    here.answer(session, asked, "allow")
    assert here.wait_for(session, "turn_completed", turn_id="t1")["text"] == "done"
    here.kill()
    here.start()  # it adopts a resting process
    here.prompt(session, "Second.")
    asked = here.wait_for(session, "approval_requested", turn_id="t2")
    here.kill()
    here.start()  # it adopts a process in its second turn
    here.answer(session, asked, "deny")
    second = here.wait_for(session, "turn_completed", turn_id="t2")
    assert second["text"] == "done" and second["usage"]["output_tokens"] == 42 + 43
    assert (here.cwd / "made.txt").exists() and len(here.pids(session)) == 1
    seqs = [event["seq"] for event in here.events(session)]
    assert seqs == list(range(1, len(seqs) + 1)) and not here.events(session, "unparsed")
    said = [json.dumps(request.body["messages"]).count("Second.") for request in here.api.main_requests]
    assert said == [0, 0, 1, 1]


def test_a_failed_turn_leaves_the_process_for_the_next(lab: Start) -> None:
    here = lab(Scenario("bad_first", in_turn(fail(401, "invalid_api_key", "Incorrect API key."), say("Well."))))
    session = here.open(**LIVE)
    first, second = (here.turn(f"{n}", session=session) for n in range(2))
    assert (first["outcome"], first["error"]["kind"]) == ("failed", "authentication")
    assert second["text"] == "Well." and second["usage"]["output_tokens"] == 41
    assert len(here.pids(session)) == 1


def test_a_hostile_prompt_is_text_in_every_turn(lab: Start) -> None:
    here = lab(Scenario("text", remember))
    (here.cwd / "secret.txt").write_text("the file's own words")
    session = here.open(**LIVE)
    for text in ("/quit", "Read @secret.txt now."):
        assert here.turn(text, session=session)["outcome"] == "completed"
        assert "the file's own words" not in json.dumps(here.api.requests[-1].body)
    assert all(event["prompt_altered"] for event in here.events(session, "turn_started"))
    assert len(here.pids(session)) == 1


def test_the_output_of_a_monitor_begins_a_turn_of_its_own(lab: Start) -> None:
    watch = tool("monitor", "m", {"command": "sleep 1; echo tick; sleep 1", "description": "watch"})
    here = lab(
        Scenario("monitor", in_turn(use(*watch), say("I watch."), say("It ticked."), say("It ended."), say("Yes.")))
    )
    session = here.open(permission_mode="yolo", **LIVE)
    assert here.turn("Watch.", session=session)["text"] == "I watch."
    here.wait_for(session, "turn_completed", text="It ended.")
    begun = [event.get("origin") for event in here.events(session, "turn_started")]
    assert begun[1:] and set(begun[1:]) == {"backend"}
    assert here.turn("Still there?", session=session)["text"] == "Yes."
    assert len(here.pids(session)) == 1 and not here.events(session, "unparsed")


def test_the_model_changes_in_the_running_process(lab: Start) -> None:
    here = lab("text")
    session = here.open(**LIVE)
    here.turn(session=session)
    with here.client() as client:
        used = client.call("session/context_usage", session_id=session)
        assert client.call("session/set_model", session_id=session, model="other-coder")["applied"] == "now"
    assert (used["model"], used["total_tokens"]) == (MODEL, 1000) and used["categories"]
    here.turn(session=session)
    assert [request.body["model"] for request in here.api.main_requests] == [MODEL, "other-coder"]
    assert len(here.pids(session)) == 1


def test_what_only_one_shot_sessions_have_is_refused_before_the_turn(lab: Start) -> None:
    here = lab("text")
    session = here.open(**LIVE)
    with here.client() as client, pytest.raises(ClisupError) as refused:
        client.call("session/prompt", session_id=session, prompt="Answer.", output_schema=SCHEMA)
    assert refused.value.kind == "unsupported" and "only one-shot sessions" in refused.value.message


def test_a_turn_of_a_live_process_costs_little_beside_the_model(lab: Start) -> None:
    lab("text").prove_that_live_is_cheap()
