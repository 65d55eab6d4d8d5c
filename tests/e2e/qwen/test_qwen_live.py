"""Live sessions of the real qwen: one process for many turns, with approvals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clisup.errors import ClisupError
from tests.e2e.questions import QUESTIONS
from tests.e2e.qwen.lab import QwenLab
from tests.e2e.qwen.scenarios import (
    MODEL,
    SCHEMA,
    say,
    tool,
    use,
)
from tests.e2e.scenarios import Scenario, in_turn

pytestmark = pytest.mark.e2e
Start = Callable[..., QwenLab]
LIVE: dict[str, Any] = {"mode": "live"}


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
