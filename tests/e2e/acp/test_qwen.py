"""The real `qwen --acp` (0.24.4) as a backend of the kind acp, through the whole daemon."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clisup.cli.views.form import answer_of, form_of
from tests.e2e.acp.qwen import QwenAcpLab
from tests.e2e.lab import marked, poll, text_of
from tests.e2e.qwen.lab import qwen_command
from tests.e2e.qwen.scenarios import MODEL

pytestmark = pytest.mark.e2e
Start = Callable[..., QwenAcpLab]
YOLO = {"permission_mode": "yolo"}


def test_a_text_answer_streams_and_is_confirmed_whole(lab: Start) -> None:
    here = lab("text")
    turn = here.turn(model=MODEL)
    events = here.events(turn["session_id"])
    deltas = "".join(e["text"] for e in events if e["type"] == "content_delta")
    assert turn["outcome"] == "completed"
    assert turn["text"] == deltas == text_of(events) == "Hello, smile \U0001f600 line\u2028separator.\nBye."
    init = next(e for e in events if e["type"] == "session_init")
    assert (init["backend_version"], init["permission_mode"]) == ("0.24.4", "auto")
    assert MODEL in init["model"] and init["agent"] == "qwen-code"
    usage = {"input_tokens": 700, "cache_read_input_tokens": 300, "output_tokens": 40, "reasoning_tokens": 7}
    assert turn["usage"] == {**usage, "source": "reported"}
    assert not [e for e in events if e["type"] == "unparsed"]


def test_tools_run_and_usage_is_the_sum_of_their_requests(lab: Start) -> None:
    here = lab("two_tools")
    turn = here.turn("Use your tools.", **YOLO)
    uses, results = (here.events(turn["session_id"], kind) for kind in ("tool_use", "tool_result"))
    assert [(e["name"], e["input"]["command"]) for e in uses] == [
        ("run_shell_command", "echo a"),
        ("run_shell_command", "echo b; exit 3"),
    ]
    assert [e["tool_use_id"] for e in uses] == [e["tool_use_id"] for e in results]
    assert "Output: a" in results[0]["content"]
    assert "Exit Code: 3" in results[1]["content"]
    assert (turn["text"], turn["usage"]["output_tokens"]) == ("Done.", 40 + 41 + 42)


def test_a_tool_that_needs_a_permission_is_asked_for_and_does_not_run_where_a_rule_denies_it(lab: Start) -> None:
    here = lab("asked")
    rules = [{"tool": "run_shell_command", "decision": "deny"}]
    turn = here.turn("Use your tools.", permission_mode="default", approvals={"rules": rules})
    assert (turn["outcome"], turn["denied"]) == ("completed", ["run_shell_command"])
    (asked,) = here.events(turn["session_id"], "approval_requested")
    assert asked["tool_use_id"] == here.events(turn["session_id"], "tool_use")[0]["tool_use_id"]
    assert not (here.cwd / "made.txt").exists()


def test_a_tool_that_needs_a_permission_runs_where_a_rule_allows_it(lab: Start) -> None:
    here = lab("asked")
    rules = [{"tool": "run_shell_command", "decision": "allow"}]
    turn = here.turn("Use your tools.", permission_mode="default", approvals={"rules": rules})
    assert (turn["outcome"], turn["denied"]) == ("completed", [])
    assert (here.cwd / "made.txt").exists()


def test_questions_are_answered_as_a_form_and_the_answers_reach_the_model(lab: Start) -> None:
    here = lab("question")
    session = here.open(**YOLO)
    here.prompt(session, "Ask me.")
    approval = here.wait_for(session, "approval_requested", tool_name="ask_user_question")
    with here.client() as client:
        answer = answer_of(form_of(approval), ("2", "1,2"))
        client.call("approval/respond", session_id=session, approval_id=approval["approval_id"], **answer)
    end = here.wait_for(session, "turn_completed")
    assert (end["outcome"], end["text"], end["denied"]) == ("completed", "Thanks.", [])
    (told,) = here.events(session, "tool_result")
    assert told["content"].endswith("**Store**: Postgres\n**Checks**: lint, unit")


@pytest.mark.parametrize("decision", ["allow", "deny"])
def test_no_rule_answers_questions(lab: Start, decision: str) -> None:
    turn = lab("question").turn("Ask me.", approvals={"rules": [{"tool": "*", "decision": decision}]}, **YOLO)
    assert (turn["outcome"], turn["denied"]) == ("completed", ["ask_user_question"])


def test_a_stall_is_ended_by_the_watchdog_by_request_and_what_was_said_stays(lab: Start) -> None:
    here = lab("stall_mid_stream", config="timeouts = { model_idle = 4 }")
    turn = here.turn()
    assert (turn["outcome"], turn["error"]["kind"]) == ("timed_out", "idle_timeout")
    assert text_of(here.events(turn["session_id"])) == "The answer is"


@pytest.mark.fault(72)
@pytest.mark.parametrize("mode", ["graceful", "kill"])
def test_an_interrupt_ends_the_tool_too_even_behind_npms_launcher(lab: Start, mode: str) -> None:
    here = lab("slow_tool", command=[str(qwen_command()), "--acp"])
    session = here.open(**YOLO)
    here.prompt(session, "Use your tools.")
    here.wait_for(session, "tool_use")
    poll(lambda: "sleep" in marked(session), "the tool's start")
    with here.client() as client:
        client.call("session/interrupt", session_id=session, mode=mode)
    end = here.wait_for(session, "turn_completed")
    assert end["outcome"] == "interrupted"
    assert end.get("stop_reason") == ("cancelled" if mode == "graceful" else None)
    poll(lambda: not marked(session), "the end of all of it", 10)
