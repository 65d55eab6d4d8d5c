"""A CLI as a plain model: without its own tools, and with the caller's system prompt alone."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.e2e.lab import ClaudeLab
from tests.e2e.scenarios import Body, Reply, Scenario, message, text

pytestmark = pytest.mark.e2e
Start = Callable[..., ClaudeLab]
LONG = (
    "You are a pirate. " * 120
)  # the fake tells requests of the conversation by their tools, or by a long system prompt


def _answer(body: Body, n: int) -> Reply:
    return [*message(body, n, text("Aye."))]


@pytest.mark.parametrize("mode", ["one-shot", "live"])
def test_claude_has_no_tools_and_no_prompt_of_its_own_where_that_is_asked_for(lab: Start, mode: str) -> None:
    here = lab(Scenario("plain", _answer))
    session = here.open(system_prompt=LONG, system_prompt_mode="replace", cli_tools="none", mode=mode)
    for _ in range(2):
        assert here.turn(session=session)["text"] == "Aye."
    for request in here.api.main_requests:
        system = json.dumps(request.body["system"])
        assert "You are a pirate." in system and "software engineering" not in system
        assert not request.body.get("tools")
    assert here.events(session, "session_init")[0]["tools"] == []


def test_claude_has_the_named_tools_alone(lab: Start) -> None:
    here = lab(Scenario("plain", _answer))
    done = here.turn(cli_tools=["Read", "Grep"])
    assert here.events(done["session_id"], "session_init")[0]["tools"] == ["Grep", "Read"]
    names = {tool["name"] for tool in here.api.main_requests[0].body["tools"]}
    assert names >= {"Grep", "Read"} and not names & {"Bash", "Edit", "Write", "Agent"}
