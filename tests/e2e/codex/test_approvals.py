"""The real codex asks: a client's word reaches it, across a kill of the daemon and an interrupt, too."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clisup.cli.views.form import answer_of, form_of
from tests.e2e.codex.lab import CodexLab
from tests.e2e.codex.scenarios import ASKING, MAY_ASK, SERVER, SERVERS, Scenario, add_patch, run, then_done
from tests.e2e.lab import poll
from tests.e2e.mcp_server import FILLED

pytestmark = pytest.mark.e2e
ESCALATED = {"sandbox_permissions": "require_escalated", "justification": "I want it"}
TOUCH = Scenario("touch", then_done(run("touch made.txt", **ESCALATED)), kinds=SERVER)
Lab = Callable[..., CodexLab]


def asked(here: CodexLab, session: str, nth: int = 1) -> dict[str, Any]:
    """The nth approval that codex asked for."""
    return dict(poll(lambda: here.events(session, "approval_requested")[nth - 1 : nth], "an approval")[0])


def resolved(here: CodexLab, session: str) -> list[tuple[str, str]]:
    return [(e["decision"], e["by"]) for e in here.events(session, "approval_resolved")]


@pytest.mark.parametrize("decision", ["allow", "deny"])
def test_a_command_runs_outside_the_sandbox_only_where_it_is_allowed(lab: Lab, decision: str) -> None:
    here = lab(TOUCH)
    session = here.open(permission_mode="read-only")
    here.prompt(session)
    approval = asked(here, session)
    assert (approval["tool_name"], approval["input"]["command"]) == ("exec_command", "touch made.txt")
    assert approval["reason"] == "I want it"
    assert not (here.cwd / "made.txt").exists()
    here.answer(session, approval, decision)
    end = here.wait_for(session, "turn_completed")
    assert (end["outcome"], end["text"]) == ("completed", "done")
    assert (here.cwd / "made.txt").exists() == (decision == "allow")
    assert (end.get("denied") or []) == ([] if decision == "allow" else ["exec_command"])
    assert resolved(here, session) == [(decision, "client")]


def test_what_is_to_be_remembered_is_not_asked_again_in_the_turn(lab: Lab) -> None:
    here = lab("approved_for_session")
    session = here.open()
    here.prompt(session)
    here.answer(session, asked(here, session), "allow", remember=True)
    assert here.wait_for(session, "turn_completed")["outcome"] == "completed"
    assert len(here.events(session, "approval_requested")) == 1
    assert len(here.events(session, "tool_result")) == 2


def test_a_tool_of_an_mcp_server_runs_where_it_is_allowed(lab: Lab) -> None:
    here = lab("mcp_refused")
    session = here.open(mcp_config={"mcpServers": {"good": SERVERS["good"]}})
    here.prompt(session)
    approval = asked(here, session)
    assert (approval["tool_name"], approval["input"]) == ("mcp__good__add", {"a": 1, "b": 2})
    here.answer(session, approval, "allow")
    here.wait_for(session, "turn_completed", outcome="completed")
    assert [e["content"] for e in here.events(session, "tool_result")] == ["3"]


@pytest.mark.parametrize(("path", "decision"), [("{}/**", "allow"), ("/var/**", "deny")])
def test_a_patch_outside_the_directory_is_judged_by_its_path(lab: Lab, path: str, decision: str) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as outside:  # not /tmp, which codex lets tools write in
        here = lab(Scenario("patch", then_done(run(add_patch(f"{outside}/a.txt"))), kinds=SERVER))
        rules = [{"tool": "apply_patch", "path": path.format(outside), "decision": decision}]
        turn = here.turn(approvals={"rules": rules})
        assert turn["outcome"] == "completed"
        assert resolved(here, turn["session_id"]) == [(decision, "rule")]
        assert (Path(outside) / "a.txt").exists() == (decision == "allow")


def test_an_approval_outlives_a_kill_of_the_daemon(lab: Lab) -> None:
    here = lab(TOUCH)
    session = here.open()
    here.prompt(session)
    approval = asked(here, session)
    here.kill()
    here.start()
    here.answer(session, approval, "allow")
    assert here.wait_for(session, "turn_completed")["text"] == "done"
    assert (here.cwd / "made.txt").exists()
    assert resolved(here, session) == [("allow", "client")]


def test_an_interrupt_takes_the_question_away_and_codex_leaves_by_itself(lab: Lab) -> None:
    here = lab(TOUCH)
    session = here.open()
    here.prompt(session)
    asked(here, session)
    with here.client() as client:
        assert client.call("session/interrupt", session_id=session)["outcome"] == "interrupted"
    assert resolved(here, session) == [("cancelled", "end")]
    assert [e["exit_code"] for e in here.events(session, "process_exited")] == [0]
    assert not (here.cwd / "made.txt").exists()


def test_without_a_sandbox_nobody_is_asked(lab: Lab) -> None:
    here = lab(TOUCH)
    turn = here.turn(permission_mode="danger-full-access")
    assert turn["outcome"] == "completed" and not here.events(turn["session_id"], "approval_requested")
    (denied,) = here.events(turn["session_id"], "permission_denied")
    assert re.search("approval policy is Never", denied["reason"])


# Forms


def filled(here: CodexLab, session: str, *typed: str) -> dict[str, Any]:
    """Answer the open approval as a person types, and return the result of its tool."""
    approval = asked(here, session)
    with here.client() as client:
        params = answer_of(form_of(approval), typed)
        client.call("approval/respond", session_id=session, approval_id=approval["approval_id"], **params)
    assert here.wait_for(session, "turn_completed")["outcome"] == "completed"
    (result,) = here.events(session, "tool_result")
    return dict(json.loads(result["content"]))


@pytest.mark.parametrize(
    ("scenario", "typed", "result"),
    [
        # codex sorts the fields by their names
        ("elicitation_form", ("", "blue", "yes", "", "1,3"), {"action": "accept", "content": FILLED}),
        ("elicitation_url", ("yes",), {"action": "accept", "content": {}}),
        ("elicitation_url", ("no",), {"action": "decline"}),
    ],
)
def test_the_form_of_an_mcp_server_reaches_it_filled(
    lab: Lab, scenario: str, typed: tuple[str, ...], result: dict[str, Any]
) -> None:
    here = lab(scenario)
    session = here.open(mcp_config={"mcpServers": ASKING})
    here.prompt(session)
    assert asked(here, session)["tool_name"] == "mcp__good__elicitation"
    assert filled(here, session, *typed) == result
    assert len(resolved(here, session)) == 1


def test_a_form_that_is_open_while_the_daemon_is_killed_is_filled_afterwards(lab: Lab) -> None:
    here = lab("elicitation_form")
    session = here.open(mcp_config={"mcpServers": ASKING})
    here.prompt(session)
    asked(here, session)
    here.kill()
    here.start()
    result = filled(here, session, "", "blue", "yes", "", "1,3")
    assert result == {"action": "accept", "content": FILLED}
    assert resolved(here, session) == [("allow", "client")]


def test_in_full_access_codex_declines_the_form_of_an_mcp_server_by_itself(lab: Lab) -> None:
    here = lab("elicitation_full_access")
    session = here.open(mcp_config={"mcpServers": ASKING}, permission_mode="danger-full-access")
    assert here.turn(session=session)["outcome"] == "completed"
    (result,) = here.events(session, "tool_result")
    assert json.loads(result["content"]) == {"action": "decline"} and not resolved(here, session)


def test_the_questions_of_codex_are_answered_where_the_user_lets_it_ask(lab: Lab) -> None:
    here = lab("user_input", args=MAY_ASK)
    session = here.open()
    here.prompt(session)
    result = filled(here, session, "2", "=8080")
    assert result == {"answers": {"store": {"answers": ["Postgres"]}, "port": {"answers": ["8080"]}}}
