"""Answers, tools and sessions of the real codex, through the daemon."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.codex.fake_api import FAKE_KEY
from tests.e2e.codex.lab import CodexLab
from tests.e2e.codex.scenarios import MODEL, Scenario, run, then_done
from tests.e2e.lab import text_of
from tests.versions import VERSIONS

pytestmark = pytest.mark.e2e


def test_a_text_answer_is_confirmed_whole_in_the_session_whose_id_codex_chose(
    lab: Callable[..., CodexLab], kind: str
) -> None:
    here = lab("text", kind=kind)
    turn = here.turn()
    events = here.events(turn["session_id"])
    assert turn["outcome"] == "completed"
    assert turn["text"] == "Hello, smile \U0001f600 line\u2028separator.\nBye."
    deltas = "".join(e["text"] for e in events if e["type"] == "content_delta")
    assert turn["text"] == text_of(events) == (deltas if kind == "codex" else turn["text"])
    assert not [e for e in events if e["type"] == "unparsed"]
    assert [e["exit_code"] for e in events if e["type"] == "process_exited"] == [0]
    init = here.events(turn["session_id"], "session_init")[0]
    assert len(init["native_session_id"]) == 36 and init["native_session_id"] != turn["session_id"]
    if kind == "codex":
        assert init["model"] == MODEL and init["backend_version"] == VERSIONS["codex"]
        assert init["permission_mode"] == "workspace-write"


def test_a_call_that_codex_refuses_is_told_although_it_has_no_item(lab: Callable[..., CodexLab]) -> None:
    here = lab("tool_escalated")
    turn = here.turn(permission_mode="danger-full-access")  # there it asks nobody
    (denied,) = here.events(turn["session_id"], "permission_denied")
    assert denied["name"] == "exec_command" and "approval policy" in denied["reason"]
    assert here.events(turn["session_id"], "turn_completed")[0]["denied"] == ["exec_command"]


def test_a_command_that_the_sandbox_stops_is_told_although_it_has_no_item(lab: Callable[..., CodexLab]) -> None:
    here = lab("tool_denied")
    (result,) = here.events(here.turn()["session_id"], "tool_result")
    assert result["is_error"] and "Read-only file system" in result["content"]


def test_a_system_prompt_is_given_beside_codex_s_own_and_kept(lab: Callable[..., CodexLab]) -> None:
    here = lab("resume")
    first = here.turn("My name is Ada.", system_prompt="Speak like a pirate.")
    here.turn("What did I say?", session=first["session_id"])
    for request in here.api.main_requests:
        developer = str([entry for entry in request.body["input"] if entry.get("role") == "developer"])
        assert developer.count("Speak like a pirate.") == 1
    started = here.events(first["session_id"], "process_started")
    assert "pirate" not in str(started)


def test_an_mcp_server_of_the_session_is_used_and_stands_in_no_argv(lab: Callable[..., CodexLab]) -> None:
    from tests.e2e.codex.scenarios import SERVERS

    here = lab("mcp")
    good = {**SERVERS["good"], "default_tools_approval_mode": "approve", "env": {"SERVER_SECRET": "for-the-server"}}
    turn = here.turn(mcp_config={"mcpServers": {**SERVERS, "good": good}})
    (result,) = here.events(turn["session_id"], "tool_result")
    told = [e["detail"] for e in here.events(turn["session_id"], "status") if e["status"] == "mcp_server"]
    assert result["content"] == "3" and not result.get("is_error")
    assert any(detail.startswith("bad: failed") for detail in told) and "good: ready" in told
    assert "for-the-server" not in str(here.events(turn["session_id"], "process_started"))


def test_an_mcp_tool_that_nobody_approves_is_denied(lab: Callable[..., CodexLab]) -> None:
    from tests.e2e.codex.scenarios import SERVERS

    here = lab("mcp_refused", config="[backends.codex.approvals]\nunattended_after_s = 0\n")
    servers = {"mcpServers": {"good": SERVERS["good"]}}
    turn = here.turn(mcp_config=servers, approvals={"unattended": "deny"})
    assert [e["name"] for e in here.events(turn["session_id"], "permission_denied")] == ["mcp__good__add"]
    assert turn["denied"] == ["mcp__good__add"]


def test_a_command_that_still_runs_at_the_end_gets_no_result_and_leaves_no_process(
    lab: Callable[..., CodexLab], kind: str
) -> None:
    from tests.e2e.lab import marked

    here = lab("tool_running_at_end", kind=kind)
    turn = here.turn()
    assert turn["text"] == "done"
    assert len(here.events(turn["session_id"], "tool_use")) == 1
    assert not here.events(turn["session_id"], "tool_result")
    assert not marked(turn["session_id"])


def test_credentials_do_not_reach_the_tools(lab: Callable[..., CodexLab], kind: str) -> None:
    """Nor does their environment hold codex's own: its sandbox shows them no other process."""
    look = "env; tr '\\0' '\\n' < /proc/1/environ; cat /proc/*/environ | tr '\\0' '\\n'; echo looked"
    here = lab(Scenario("env", then_done(run(look))), kind=kind)
    turn = here.turn()
    (result,) = here.events(turn["session_id"], "tool_result")
    assert "looked" in result["content"] and "PATH=" in result["content"]
    assert FAKE_KEY not in result["content"]
    assert FAKE_KEY in str([request.headers for request in here.api.main_requests])
