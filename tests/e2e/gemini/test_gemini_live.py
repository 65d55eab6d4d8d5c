"""Live sessions of the real gemini: one `gemini --acp` for many turns, with approvals and MCP servers."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

from clisup.errors import ClisupError
from tests.e2e.gemini.lab import GeminiLab
from tests.e2e.gemini.scenarios import (
    Scenario,
    always,
    call,
    calls,
    in_turn,
    remembers,
    says,
)
from tests.e2e.gemini.test_hostile_repository import infest
from tests.e2e.lab import ROOT, poll
from tests.e2e.tools.stage import ADD, FAIL, Stage, ended, interactions

pytestmark = pytest.mark.e2e
Start = Callable[..., GeminiLab]
LIVE: dict[str, Any] = {"mode": "live"}
SERVER = {"tools": {"command": sys.executable, "args": [str(ROOT / "tests" / "e2e" / "tool_server.py")]}}


def test_new_processes_go_on_with_the_session_at_once(lab: Start) -> None:
    """Each comes within the minute of the one before, in which gemini's own way to load a session finds nothing."""
    here = lab(Scenario("memory", remembers))
    session = here.open(**LIVE)
    said = "You said: "
    for n, text in enumerate(("I am Ada.", "What?", "Again?")):
        said += f" | {text}" if n else text
        assert here.turn(text, session=session)["text"] == said
        said += f" | More {n}."
        assert here.turn(f"More {n}.", session=session)["text"] == said  # by the name under which it was loaded
        os.kill(here.pids(session)[-1], signal.SIGKILL)
        poll(lambda gone=n + 1: len(here.events(session, "process_exited")) == gone, "the end of the process")
    assert len(here.pids(session)) == 3
    assert len({event["native_session_id"] for event in here.events(session, "session_init")}) == 1
    assert not here.events(session, "unparsed")


def test_servers_of_the_session_and_pictures_reach_the_model(lab: Start) -> None:
    use = in_turn(calls(call("mcp_tools_fail", {"a": "b"})), says("It failed.", n=1))
    here = lab(Scenario("mcp", use))
    turn = here.turn(
        [{"type": "text", "text": "Look."}, {"type": "image", "media_type": "image/png", "data": "iVBORw0KGgo="}],
        mcp_config={"mcpServers": SERVER}, permission_mode="yolo", **LIVE,
    )  # fmt: skip
    assert turn["text"] == "It failed."
    assert [event["name"] for event in here.events(turn["session_id"], "tool_use")] == ["mcp_tools_fail"]
    assert "inlineData" in json.dumps(here.api.main_requests[0].body["contents"])


def test_tools_of_the_client_run_without_a_question(lab: Start) -> None:
    on = Stage("gemini-live", [[("add", {"a": 2, "b": 3})], [("fail", {})]])
    with on.playing():
        events = on.turn(ADD, FAIL, model="fake-model")
    told = [(one["name"], one["input"], one["content"], one["is_error"]) for one in interactions(events)]
    assert told == [
        ("mcp__clisup__add", {"a": 2, "b": 3}, "5", False),
        ("mcp__clisup__fail", {}, "it went wrong", True),
    ]
    assert ended(events)["text"] == "Done." and not [e for e in events if e["type"] == "approval_requested"]


def test_an_end_without_an_answer_is_a_failure(lab: Start) -> None:
    here = lab(Scenario("empty", always(*says("", n=0))))
    turn = here.turn(**LIVE)
    assert (turn["outcome"], turn["error"]["kind"]) == ("failed", "server")


def test_no_server_hook_or_command_of_the_repository_runs_in_a_live_session(lab: Start) -> None:
    here = lab("text")
    canary = infest(here.cwd, "http://127.0.0.1:9")
    session = here.open(permission_mode="yolo", **LIVE)
    assert [here.turn(session=session)["outcome"] for _ in range(2)] == ["completed"] * 2
    assert not canary.exists() and "EVIL" not in json.dumps(here.api.main_requests[0].body)


def test_servers_are_refused_in_a_one_shot_session(lab: Start) -> None:
    with pytest.raises(ClisupError) as refused:
        lab("text").open(mcp_config={"mcpServers": SERVER})
    assert refused.value.kind == "unsupported" and "only live sessions" in refused.value.message
