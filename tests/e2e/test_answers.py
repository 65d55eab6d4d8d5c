"""Answers, tools and sessions of the real claude, through the daemon."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

from tests.e2e.lab import QUIET, ClaudeLab, claude_binary, text_of
from tests.versions import VERSIONS

pytestmark = pytest.mark.e2e
BYPASS = {"permission_mode": "bypassPermissions"}


def test_a_text_answer_streams_and_is_confirmed_whole(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("text")
    turn = here.turn()
    events = here.events(turn["session_id"])
    deltas = "".join(e["text"] for e in events if e["type"] == "content_delta" and e["kind"] == "text")
    assert turn["outcome"] == "completed"
    assert turn["text"] == "Hello, smile \U0001f600 line\u2028separator.\nBye."
    assert deltas == turn["text"] == text_of(events)
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert not [e for e in events if e["type"] == "unparsed"]


def test_the_session_init_names_the_session_the_model_and_where_the_credential_came_from(
    lab: Callable[..., ClaudeLab],
) -> None:
    here = lab("text")
    turn = here.turn(model="claude-sonnet-4-5")
    init = here.events(turn["session_id"], "session_init")[0]
    assert init["native_session_id"] == turn["session_id"]
    assert "sonnet" in init["model"]
    assert init["credential_source"] == "ANTHROPIC_API_KEY"
    assert init["backend_version"] == VERSIONS["claude"]


def test_usage_and_cost_are_of_the_turn_alone(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("text")
    first = here.turn()
    second = here.turn("And again.", session=first["session_id"])
    for turn in (first, second):
        assert turn["usage"]["source"] == "reported"
        assert turn["usage"]["output_tokens"] in (40, 41)
    assert first["usage"]["input_tokens"] == 1000
    assert second["usage"]["input_tokens"] == 1001
    assert 0 < second["cost_usd"] < 1.5 * first["cost_usd"]


def test_thinking_comes_as_its_own_kind(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("thinking")
    turn = here.turn()
    blocks = [b["kind"] for e in here.events(turn["session_id"], "message") for b in e["blocks"]]
    kinds = {e["kind"] for e in here.events(turn["session_id"], "content_delta")}
    assert blocks == ["thinking", "redacted_thinking", "text"]
    assert kinds == {"thinking", "text"}
    assert turn["text"] == "Thought."


def test_a_tool_call_has_its_use_and_its_result(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("tool_ok")
    turn = here.turn("Use your tools.", **BYPASS)
    use = here.events(turn["session_id"], "tool_use")[0]
    result = here.events(turn["session_id"], "tool_result")[0]
    assert use["name"] == "Bash" and use["input"]["command"] == "echo hi"
    assert result["tool_use_id"] == use["tool_use_id"] and result["content"] == "hi" and not result["is_error"]
    assert turn["outcome"] == "completed"


def test_parallel_tools_each_get_their_own_result(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("parallel_tools")
    turn = here.turn("Use your tools.", **BYPASS)
    uses = {e["tool_use_id"] for e in here.events(turn["session_id"], "tool_use")}
    results = [e["tool_use_id"] for e in here.events(turn["session_id"], "tool_result")]
    assert len(uses) == 3 and sorted(results) == sorted(uses)


def test_a_failing_tool_is_an_error_result_and_the_turn_goes_on(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("tool_fail")
    turn = here.turn("Use your tools.", **BYPASS)
    result = here.events(turn["session_id"], "tool_result")[0]
    assert result["is_error"] and "Exit code 7" in result["content"]
    assert turn["outcome"] == "completed" and turn["text"] == "It failed."


def test_a_denied_tool_is_said_although_the_cli_exits_0(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("tool_denied")
    turn = here.turn("Use your tools.")
    denied = here.events(turn["session_id"], "permission_denied")
    assert turn["outcome"] == "completed"
    assert turn["denied"] == ["Write"] == [event["name"] for event in denied]
    assert here.events(turn["session_id"], "process_exited")[0]["exit_code"] == 0


def test_a_resumed_session_remembers_its_first_turn(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("memory")
    first = here.turn("My name is Ada.")
    second = here.turn("What did I say?", session=first["session_id"])
    assert "My name is Ada." in second["text"]
    assert len(here.api.main_requests[1].body["messages"]) >= 3


def test_a_vanilla_claude_goes_on_from_the_same_history(lab: Callable[..., ClaudeLab]) -> None:
    """`session/new` and two prompts, then `claude -p --resume ID` outside clisup."""
    here = lab("memory")
    here.asked_by_others = True
    session = here.turn("My name is Ada.")["session_id"]
    here.turn("Second prompt.", session=session)
    env = {"PATH": os.environ["PATH"], "HOME": str(here.home), **here.variables, **QUIET}
    argv = [str(claude_binary()), "-p", "--resume", session, "What did I say?"]
    done = subprocess.run(
        argv, env=env, cwd=here.cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    assert "My name is Ada." in done.stdout
    assert "Second prompt." in str(here.api.main_requests[-1].body["messages"])


def test_an_answer_of_3_mb_arrives_whole(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("big_text")
    turn = here.turn()
    completed = here.events(turn["session_id"], "turn_completed")[0]
    deltas = "".join(e["text"] for e in here.events(turn["session_id"], "content_delta"))
    assert len(turn["text"]) == 3_000_000
    assert len(completed["text"]) < 300_000 and completed["blob"]
    with here.client() as client:
        assert client.blob(turn["session_id"], completed["blob"]).decode() == turn["text"]
    assert len(deltas) <= len(turn["text"])


@pytest.mark.fault(69)
def test_a_prompt_that_looks_like_a_command_or_a_file_reaches_the_model_as_text(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("text")
    (here.cwd / "secret.txt").write_text("the file's own words")
    turn = here.turn("/cost and @secret.txt")
    sent = str(here.api.main_requests[0].body["messages"])
    assert "/cost and @secret.txt" in sent
    assert "the file's own words" not in sent
    assert here.events(turn["session_id"], "turn_started")[0]["prompt_altered"]


@pytest.mark.fault(66)
@pytest.mark.parametrize(
    ("scenario", "text"),
    [
        ("background_bash", "It has finished."),
        ("async_agent", "All agents reported."),
        ("async_agents", "All agents reported."),
    ],
)
def test_the_text_of_a_turn_with_background_work_is_the_clis_final_answer(
    lab: Callable[..., ClaudeLab], scenario: str, text: str
) -> None:
    here = lab(scenario)
    turn = here.turn("Use your tools.", **BYPASS)
    assert (turn["outcome"], turn["text"]) == ("completed", text)
    assert [event["origin"] for event in here.events(turn["session_id"], "turn_started")] == ["prompt"]
    reports = [event["report"] for event in here.events(turn["session_id"], "task") if "report" in event]
    assert reports == [f"agent {k} reports 42" for k in range(scenario.count("agent") + scenario.count("agents"))]
    assert len(here.events(turn["session_id"], "process_exited")) == 1


def test_a_turn_whose_answer_to_its_sub_agents_fails_has_failed(lab: Callable[..., ClaudeLab]) -> None:
    turn = lab("async_agent_fails").turn("Use your tools.", **BYPASS)
    assert (turn["outcome"], turn["text"], turn["error"]["kind"]) == ("failed", "", "permission")


@pytest.mark.fault(65)
def test_text_that_a_cut_stream_takes_back_is_retracted(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("cut_mid_stream")
    turn = here.turn()
    assert turn["text"] == "The whole answer." == text_of(here.events(turn["session_id"]))
    assert here.events(turn["session_id"], "retracted")
