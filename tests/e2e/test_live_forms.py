"""The real claude asks questions, shows a plan, and passes on what an MCP server asks: the answers of a form reach them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clisup.cli.views.form import answer_of, form_of
from tests.e2e.dialogues import DIALOGUES
from tests.e2e.lab import ClaudeLab
from tests.e2e.mcp_server import FILLED, LOGIN
from tests.e2e.questions import question
from tests.e2e.scenarios import Reply, Scenario, in_turn, message, say, tool, use

pytestmark = pytest.mark.e2e
Lab = Callable[..., ClaudeLab]
QUESTIONS = {
    "questions": [
        question("Which database?", "Store", {"SQLite": "one file", "Postgres": "a server"}),
        question("Which checks?", "Checks", {"lint": "a", "unit, slow": "b"}, several=True),
        question("Which port?", "Port", {"80": "a", "443": "b"}),
    ]
}
PLAN = "# Move it\n1. Copy the file.\n2. Delete the old one."


def write_the_plan(body: dict[str, Any], n: int) -> Reply:
    """Write the plan into the file that claude's reminder names: ExitPlanMode takes the plan from there."""
    named = re.search(r'/[^\s"\\\\]+/plans/[^\s"\\\\]+\.md', json.dumps(body["messages"]))
    assert named is not None
    return [*message(body, n, tool("Write", "w", {"file_path": named[0], "content": PLAN}))]


ASKS = Scenario("questions", in_turn(use(tool("AskUserQuestion", "q", QUESTIONS)), say("Thanks.")), recorded=False)
PLANS = Scenario("plan", in_turn(write_the_plan, use(tool("ExitPlanMode", "p", {})), say("Done.")), recorded=False)


def answered(here: ClaudeLab, session: str, *typed: str) -> dict[str, Any]:
    """Answer the open approval as a person types, and return the result of its tool."""
    approval = here.wait_for(session, "approval_requested")
    with here.client() as client:
        answer = answer_of(form_of(approval), typed)
        client.call("approval/respond", session_id=session, approval_id=approval["approval_id"], **answer)
    assert here.wait_for(session, "turn_completed")["outcome"] == "completed"
    (*_, result) = here.events(session, "tool_result")
    return dict(result)


def test_choices_several_choices_and_own_words_reach_the_model(lab: Lab) -> None:
    here = lab(ASKS)
    session = here.open(mode="live")
    here.prompt(session, "Ask me.")
    result = answered(here, session, "2", "1,2", "=8080")
    assert result["content"].startswith(("Your questions have been answered:", "The user answered:"))
    for part in ('"Which database?"="Postgres"', '"Which checks?"="lint, "unit, slow""', '"Which port?"="8080"'):
        assert part in result["content"]


@pytest.mark.parametrize(("typed", "said"), [("yes", "approved your plan"), ("no", "Keep planning.")])
def test_a_plan_is_approved_or_sent_back(lab: Lab, typed: str, said: str) -> None:
    here = lab(PLANS)
    session = here.open(mode="live", permission_mode="plan")
    here.prompt(session, "Plan it.")
    approval = here.wait_for(session, "approval_requested", tool_name="ExitPlanMode")
    assert form_of(approval).plan == PLAN
    result = answered(here, session, typed)
    assert said in result["content"] and bool(result.get("is_error")) == (typed == "no")


SERVER = {"type": "stdio", "command": sys.executable, "args": [str(Path(__file__).with_name("mcp_server.py"))]}
TYPED = ("blue", "", "yes", "1,3", "")


def asking(lab: Lab, dialogue: str) -> tuple[ClaudeLab, str]:
    """A session of the real claude whose MCP server asks its user."""
    here = lab(DIALOGUES[dialogue])
    session = here.open(mode="live", mcp_config={"mcpServers": {"good": SERVER}}, permission_mode="bypassPermissions")
    here.prompt(session, "Ask.")
    return here, session


@pytest.mark.parametrize(
    ("dialogue", "typed", "result"),
    [
        ("live_elicitation_form", TYPED, {"action": "accept", "content": FILLED}),
        ("live_elicitation_url", ("yes",), {"action": "accept"}),
        ("live_elicitation_url", ("no",), {"action": "decline"}),
    ],
)
def test_the_form_of_an_mcp_server_reaches_it_filled(
    lab: Lab, dialogue: str, typed: tuple[str, ...], result: dict[str, Any]
) -> None:
    here, session = asking(lab, dialogue)
    approval = here.wait_for(session, "approval_requested")
    assert approval["tool_name"] == "mcp__good__elicitation"
    assert approval["input"].get("url") == (LOGIN["url"] if dialogue.endswith("url") else None)
    assert json.loads(answered(here, session, *typed)["content"]) == result


def test_a_form_that_is_open_while_the_daemon_is_killed_is_filled_afterwards(lab: Lab) -> None:
    here, session = asking(lab, "live_elicitation_form")
    here.wait_for(session, "approval_requested")
    here.kill()
    here.start()
    assert json.loads(answered(here, session, *TYPED)["content"]) == {"action": "accept", "content": FILLED}
    assert len(here.events(session, "approval_requested")) == len(here.events(session, "approval_resolved")) == 1
