"""Real ACP agents as live backends through the whole daemon: many turns of one process, tools, settings, kills.

The agents in `PINNED` are always there. The others run where they are installed (tests/e2e/acp/agents.py says how).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.acp.agent import Agent, Run
from tests.e2e.acp.agents import AGENTS, PINNED, SYSTEM
from tests.e2e.acp.lab import AgentLab
from tests.e2e.lab import ROOT, marked, poll, running

pytestmark = pytest.mark.e2e
Start = Callable[..., AgentLab]
MODES = {
    "opencode": "plan",
    "copilot": "Plan",
    "cline": "plan",
    "codex-acp": "read-only",
    "claude-agent-acp": "acceptEdits",
}
ASKS = {"codex-acp": "read-only", "claude-agent-acp": "default"}
"""Modes in which an agent asks for its commands, where it does not do so by itself."""
ALLOWED = {"rules": [{"tool": "*", "decision": "allow"}]}
BY_NAME = {agent.name: agent for agent in AGENTS}


@pytest.fixture(params=AGENTS, ids=lambda agent: agent.name)
def agent(request: pytest.FixtureRequest) -> Agent:
    made: Agent = request.param
    program = next(word for word in reversed(made.command(ROOT / ".e2e")) if "/" in word)
    if not Path(program).exists():
        (pytest.fail if made.name in PINNED else pytest.skip)(f"{made.name} is not installed")
    return made


@pytest.fixture
def lab() -> Iterator[Start]:
    """Starts a lab: `lab(agent, "memory")`."""
    with ExitStack() as stack:

        def start(agent: Agent, scenario: str, *, key: bool = True, config: str = "") -> AgentLab:
            return stack.enter_context(running(AgentLab(agent, Run(scenario, scenario, key=key), config=config)))

        yield start


def test_one_process_has_many_turns_takes_another_mode_and_after_a_kill_another_has_its_session(
    lab: Start, agent: Agent
) -> None:
    here = lab(agent, "memory")
    session = here.open()
    first = here.turn("My name is Ada.", session=session)
    assert (first["outcome"], first["text"]) == ("completed", "You first said: My name is Ada.")
    with here.client() as client:
        mode = {"session_id": session, "permission_mode": MODES[agent.name]}
        assert client.call("session/set_permission_mode", **mode) == {"applied": "now", "value": MODES[agent.name]}
    assert here.turn("What did I say?", session=session)["text"] == first["text"]
    assert len(here.pids(session)) == 1
    os.kill(here.pids(session)[0], signal.SIGKILL)
    here.wait_for(session, "process_exited")
    assert here.turn("And now?", session=session)["text"] == first["text"]
    assert len(here.pids(session)) == 2 and not here.events(session, "unparsed")
    one, two = here.events(session, "session_init")
    assert one["native_session_id"] == two["native_session_id"]
    assert one["permission_mode"] != two["permission_mode"]


def test_a_tool_is_asked_for_and_told_with_its_input_and_output(lab: Start, agent: Agent) -> None:
    here = lab(agent, "tool_ok")
    turn = here.turn("Use your tools.", approvals=ALLOWED, permission_mode=ASKS.get(agent.name))
    events = here.events(turn["session_id"])
    uses, results = ([e for e in events if e["type"] == kind] for kind in ("tool_use", "tool_result"))
    assert (turn["outcome"], turn["text"]) == ("completed", "Done.")
    assert all("echo" in str(use["input"]) for use in uses)
    assert [use["tool_use_id"] for use in uses] == [result["tool_use_id"] for result in results]
    assert all(any(word in result["content"] for word in "abc") for result in results)
    assert agent.name == "cline" or turn["usage"]["output_tokens"]


def test_an_interrupt_ends_the_tool_and_keeps_the_process(lab: Start, agent: Agent) -> None:
    here = lab(agent, "slow_tool")
    session = here.open(approvals=ALLOWED, permission_mode=ASKS.get(agent.name))
    here.prompt(session, "Use your tools.")
    here.wait_for(session, "tool_use")
    poll(lambda: "sleep" in marked(session), "the tool's start")
    with here.client() as client:
        assert client.call("session/interrupt", session_id=session)["outcome"] == "interrupted"
    poll(lambda: "sleep" not in marked(session), "the tool's end")
    turn = here.turn("Go on.", session=session)
    assert (turn["outcome"], turn["text"]) == ("completed", "done")
    assert len(here.pids(session)) == 1 and not here.events(session, "unparsed")


@pytest.mark.parametrize("name", ["claude-agent-acp", "codex-acp"])
def test_a_system_prompt_reaches_the_model_also_in_another_process(lab: Start, name: str) -> None:
    here = lab(BY_NAME[name], "system_prompt")
    session = here.open(**SYSTEM)
    assert here.turn(session=session)["text"] == "I was told to be brief."
    os.kill(here.pids(session)[0], signal.SIGKILL)
    here.wait_for(session, "process_exited")
    assert here.turn(session=session)["text"] == "I was told to be brief."


def test_codex_acp_is_logged_in_by_its_method_and_names_its_methods_without_one(lab: Start) -> None:
    config = 'auth_method = "api-key"\n'
    assert lab(BY_NAME["codex-acp"], "memory", key=False, config=config).turn("Hi.")["text"] == "You first said: Hi."
    error = lab(BY_NAME["codex-acp"], "memory", key=False).turn("Hi.")["error"]
    assert error["kind"] == "authentication"
    assert "set the backend's auth_method: api-key (Use an API key to authenticate)" in error["message"]
