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
    turn = here.turn(model="claude-sonnet-4-5")
    events = here.events(turn["session_id"])
    deltas = "".join(e["text"] for e in events if e["type"] == "content_delta" and e["kind"] == "text")
    assert turn["outcome"] == "completed"
    assert turn["text"] == "Hello, smile \U0001f600 line\u2028separator.\nBye."
    assert deltas == turn["text"] == text_of(events)
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert not [e for e in events if e["type"] == "unparsed"]
    init = here.events(turn["session_id"], "session_init")[0]
    assert init["native_session_id"] == turn["session_id"]
    assert "sonnet" in init["model"]
    assert init["credential_source"] == "ANTHROPIC_API_KEY"
    assert init["backend_version"] == VERSIONS["claude"]


def test_thinking_comes_as_its_own_kind(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("thinking")
    turn = here.turn()
    blocks = [b["kind"] for e in here.events(turn["session_id"], "message") for b in e["blocks"]]
    kinds = {e["kind"] for e in here.events(turn["session_id"], "content_delta")}
    assert blocks == ["thinking", "redacted_thinking", "text"]
    assert kinds == {"thinking", "text"}
    assert turn["text"] == "Thought."


def test_a_denied_tool_is_said_although_the_cli_exits_0(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("tool_denied")
    turn = here.turn("Use your tools.")
    denied = here.events(turn["session_id"], "permission_denied")
    assert turn["outcome"] == "completed"
    assert turn["denied"] == ["Write"] == [event["name"] for event in denied]
    assert here.events(turn["session_id"], "process_exited")[0]["exit_code"] == 0


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
