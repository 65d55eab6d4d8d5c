"""Sub-agents of the real claude, which work in the background: how their turns end, and which tokens those tell.

`running` compares the tokens of completed turns with what the fake served. Tokens of other turns are compared here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from clisup.llm.conversation.conversation import Conversation
from clisup.llm.conversation.nodes import SubAgentDelegation
from tests.e2e.lab import ClaudeLab, marked, poll, tokens_of
from tests.e2e.scenarios import (
    Body,
    Reply,
    Scenario,
    error,
    message,
    prompts,
    text,
    with_async_agents,
    with_nested_agents,
)
from tests.e2e.test_conversation import BOUND_S, claude

BYPASS = {"permission_mode": "bypassPermissions"}
MODES = pytest.mark.parametrize("mode", ["one-shot", "live"])
LONG = 60  # seconds of an agent that works until something ends it
HANGS = "touch began.$$; mkfifo pipe 2>/dev/null; read words < pipe"  # the same in its command, without processor time
pytestmark = pytest.mark.e2e
Agents = Callable[..., ClaudeLab]


@pytest.fixture
def agents(lab: Callable[..., ClaudeLab]) -> Agents:
    """A lab for a model that starts sub-agents in the background, each for so many seconds."""

    def start(*seconds: float, tool: str = "echo inner", **options: Any) -> ClaudeLab:
        return lab(Scenario("agents", with_async_agents(*seconds, tool=tool)), **options)

    return start


def wait_until_all_work(here: ClaudeLab, session: str, agents: int, *, in_tool: bool = False) -> None:
    """Wait until the main agent waits, and every sub-agent is in its command, or in its request after the command."""
    here.wait_for(session, "message", blocks=[{"kind": "text", "text": f"I wait; 0 of {agents} reported."}])
    calls = agents + 2 + (0 if in_tool else agents)
    poll(lambda: len(here.api.main_requests) == calls, "the requests of all agents")
    if in_tool:
        poll(lambda: len(list(here.cwd.glob("began.*"))) == agents, "the start of the agents' commands")


def interrupt(here: ClaudeLab, session: str) -> str:
    with here.client() as client:
        return str(client.call("session/interrupt", session_id=session)["outcome"])


def once(here: ClaudeLab, session: str) -> None:
    """Assert that the journal has no event twice. claude splits a message by its blocks."""
    events = here.events(session)
    for kind, *names in (
        ("tool_use", "tool_use_id"),
        ("tool_result", "tool_use_id"),
        ("message", "message_id", "blocks"),
    ):
        found = Counter(str([event[name] for name in names]) for event in events if event["type"] == kind)
        assert max(found.values()) == 1, found
    for kind in ("turn_started", "turn_completed", "process_started"):
        assert sum(event["type"] == kind for event in events) == 1, kind
    states = Counter(
        (e["task_id"], e["state"], e.get("tool_use_id"), e.get("description")) for e in events if e["type"] == "task"
    )
    assert max(states.values()) == 1, states


# -- how they end by themselves ---------------------------------------------------------------------------------------


@MODES
async def test_an_agent_that_an_agent_starts_is_nested_in_it_and_the_turn_tells_the_tokens_of_both(
    lab: Callable[..., ClaudeLab], mode: str
) -> None:
    here = lab(Scenario("nested", with_nested_agents))
    with trio.fail_after(BOUND_S):
        async with Conversation(claude(here, mode=mode), policies=[]) as conversation:
            turn = await conversation.send("Delegate.")
            session = conversation.session_id
    assert (turn.outcome, turn.text) == ("completed", "Both reported.")
    [outer] = turn.calls
    assert isinstance(outer, SubAgentDelegation)
    assert (outer.id, outer.state, outer.report) == ("toolu_outer0", "completed", "agent 0 reports, too")
    [inner] = [call for step in outer.steps for call in step.calls]
    assert isinstance(inner, SubAgentDelegation)
    assert (inner.id, inner.state, inner.report) == ("toolu_outer1", "completed", "agent 1 reports 42")
    [end] = here.events(str(session), "turn_completed")
    assert tokens_of(end) == here.api.served.tokens()


def test_a_live_turn_lasts_until_its_sub_agents_have_reported(agents: Agents) -> None:
    here = agents(1, 3)
    session = here.open(mode="live", **BYPASS)
    turn = here.turn("Delegate.", session=session)
    assert (turn["turn_id"], turn["text"]) == ("t1", "All agents reported.")
    assert {event.get("turn_id") for event in here.events(session, "task", "message")} == {"t1"}
    assert [event["report"] for event in here.events(session, "task") if "report" in event] == [
        "agent 0 reports 42",
        "agent 1 reports 42",
    ]
    here.turn("Next.", session=session)
    assert [event["origin"] for event in here.events(session, "turn_started")] == ["prompt", "prompt"]


@MODES
def test_the_tokens_of_agents_that_report_at_once_are_told_once_and_in_their_turn(agents: Agents, mode: str) -> None:
    here = agents(0.5, 0.5, 0.5, 0.5)
    session = here.open(mode=mode, **BYPASS)
    turn = here.turn("Delegate.", session=session)
    served = here.api.served.so_far()
    assert (turn["outcome"], turn["text"]) == ("completed", "All agents reported.")
    assert tokens_of(turn) == here.api.served.tokens()
    following = here.turn("Next.", session=session)
    assert tokens_of(following) == here.api.served.tokens(served)
    assert turn["cost_usd"] > 5 * following["cost_usd"]


def one_fails(body: Body, n: int) -> Reply:
    """The API refuses a request of the first of two agents. The second one reports later."""
    told = json.dumps(body.get("messages", []))
    if any(words.startswith("SUBTASK 0") for words in prompts(body)) and "tool_result" in told:
        return error(400, "invalid_request_error", "no such thing")
    if "<status>failed" in told and "<result>agent 1 reports" in told:
        return [*message(body, n, text("One of two reported."))]
    return with_async_agents(0, 1)(body, n)


@MODES
async def test_an_agent_that_fails_beside_one_that_works_fails_its_delegation_and_not_the_turn(
    lab: Callable[..., ClaudeLab], mode: str
) -> None:
    here = lab(Scenario("one fails", one_fails))
    with trio.fail_after(BOUND_S):
        async with Conversation(claude(here, mode=mode), policies=[]) as conversation:
            turn = await conversation.send("Delegate.")
            session = conversation.session_id
    assert (turn.outcome, turn.text) == ("completed", "One of two reported.")
    failed, worked = (call for call in turn.calls if isinstance(call, SubAgentDelegation))
    assert (failed.state, worked.state, worked.report) == ("failed", "completed", "agent 1 reports 42")
    [told] = [
        event["description"]
        for event in here.events(str(session), "task")
        if event["state"] == "failed" and event.get("tool_use_id") == failed.id
    ]
    assert "no such thing" in told
    [end] = here.events(str(session), "turn_completed")
    assert tokens_of(end) == here.api.served.tokens()


def test_a_prompt_that_is_steered_while_sub_agents_work_has_a_turn_of_its_own(agents: Agents) -> None:
    here = agents(4)
    session = here.open(mode="live", **BYPASS)
    here.prompt(session, "Delegate.")
    here.wait_for(session, "message", blocks=[{"kind": "text", "text": "I wait; 0 of 1 reported."}])
    with here.client() as client:
        said = client.call("session/prompt", session_id=session, prompt="Second.", when_busy="steer")
    started = here.wait_for(session, "turn_started", prompt_ids=[said["prompt_id"]])
    assert here.wait_for(session, "turn_completed", turn_id="t1")["text"] == "I wait; 0 of 1 reported."
    here.wait_for(session, "turn_completed", turn_id=started["turn_id"])
    own = here.wait_for(session, "turn_started", origin="backend")
    assert here.wait_for(session, "turn_completed", turn_id=own["turn_id"])["text"] == "All agents reported."


# -- how they are ended -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_tool", [True, False], ids=["in a tool", "in a request"])
@MODES
def test_an_interrupt_ends_the_turn_and_its_agents_and_no_token_is_told_twice(
    agents: Agents, mode: str, in_tool: bool
) -> None:
    here = agents(LONG, LONG, tool=HANGS if in_tool else "echo inner")
    session = here.open(mode=mode, **BYPASS)
    here.prompt(session, "Delegate.")
    wait_until_all_work(here, session, 2, in_tool=in_tool)
    assert interrupt(here, session) == "interrupted"
    end = here.wait_for(session, "turn_completed", turn_id="t1")
    assert (end["outcome"], end["error"]["kind"]) == ("interrupted", "cancelled")
    left = {"claude"} if mode == "live" else set()
    poll(lambda: set(marked(session)) == left, "the end of all but a live process")
    served = here.api.served.so_far()
    whole = tokens_of(end) == here.api.served.tokens()
    following = here.turn("Next.", session=session)
    assert following["outcome"] == "completed"
    if mode == "live":  # claude counts what agents got after its own last word with its next word
        assert tokens_of(end, following) == here.api.served.tokens()
    else:  # claude may leave without a last word: then only the answers to the main agent are known
        assert whole or end["usage"]["source"] == "estimated"
        assert tokens_of(following) == here.api.served.tokens(served)
        assert following["cost_usd"] < end["cost_usd"]
    assert len(here.pids(session)) == (1 if mode == "live" else 2)
    tasks = here.events(session, "task")  # a command of two seconds and more is a task, too
    agents_of = {event["task_id"] for event in tasks if event.get("tool_use_id", "").startswith("toolu_outer")}
    ends = {event["task_id"]: event["state"] for event in tasks if event["task_id"] in agents_of}
    assert list(ends.values()) == ["stopped", "stopped"]


@pytest.mark.parametrize(
    ("timeouts", "phase", "kind"),
    [("turn = 4", "turn", "turn_timeout"), ("background = 1", "background", "idle_timeout")],
)
def test_a_limit_that_passes_while_an_agent_works_ends_the_turn_as_timed_out(
    agents: Agents, timeouts: str, phase: str, kind: str
) -> None:
    here = agents(LONG, tool=HANGS, config=f"[backends.claude.timeouts]\n{timeouts}")
    done = here.command("run", "--permission-mode", "bypassPermissions", "Delegate.")
    [session] = here.sessions()
    [end] = here.events(session, "turn_completed")
    assert (end["outcome"], end["error"]["kind"]) == ("timed_out", kind)
    assert [event["phase"] for event in here.events(session, "watchdog") if event["action"] == "fired"] == [phase]
    assert done.returncode == 124, done.stderr
    poll(lambda: not marked(session), "the end of the agent's command")
    assert tokens_of(end) == here.api.served.tokens() or end["usage"]["source"] == "estimated"


# -- kill -9 of the daemon --------------------------------------------------------------------------------------------


@pytest.mark.fault(1)
@MODES
def test_a_turn_whose_agents_work_while_the_daemon_is_killed_is_taken_over_whole(agents: Agents, mode: str) -> None:
    here = agents(2, 4)
    session = here.open(mode=mode, **BYPASS)
    here.prompt(session, "Delegate.")
    wait_until_all_work(here, session, 2)
    here.kill()
    here.start()
    end = here.wait_for(session, "turn_completed", turn_id="t1")
    assert (end["outcome"], end["text"]) == ("completed", "All agents reported.")
    assert tokens_of(end) == here.api.served.tokens()
    once(here, session)


@pytest.mark.fault(1)
def test_an_agent_that_reports_while_no_daemon_runs_is_heard_by_the_next_one(agents: Agents) -> None:
    here = agents(1)
    session = here.open(**BYPASS)
    here.prompt(session, "Delegate.")
    wait_until_all_work(here, session, 1)
    [pid] = here.pids(session)
    here.kill()
    poll(lambda: not Path(f"/proc/{pid}").exists(), "the CLI's own end")
    assert len(here.api.main_requests) == 5
    here.start()
    end = here.wait_for(session, "turn_completed", turn_id="t1")
    assert (end["outcome"], end["text"]) == ("completed", "All agents reported.")
    assert tokens_of(end) == here.api.served.tokens()
    once(here, session)
