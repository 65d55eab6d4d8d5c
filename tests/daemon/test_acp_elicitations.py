"""An ACP agent that asks its user by an elicitation: a client answers it, or nobody does, also across a kill of the daemon."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness
from session_probe import SessionProbe

from clisup.errors import ClisupError

AGENT = [sys.executable, str(Path(__file__).with_name("acp_agent.py"))]
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}, "coats": {"type": "integer", "minimum": 1}},
    "required": ["colour"],
}
ASK = f"elicit {json.dumps(SCHEMA)}"
RED = {"content": {"colour": "red", "coats": 2}}


@pytest.fixture
def agent(serve: Callable[..., Harness]) -> Callable[..., Harness]:
    """A daemon with the agent as its backend `agent`; `approvals` is the TOML of its table."""

    def start(approvals: str = "") -> Harness:
        table = f'[backends.agent]\nkind = "acp"\ncommand = {json.dumps(AGENT)}\n'
        return serve(raw=f"{table}[backends.agent.approvals]\n{approvals}")

    return start


def waiting(session: SessionProbe) -> dict[str, Any]:
    return session.await_event("approval_requested")


def respond(session: SessionProbe, decision: str, **more: Any) -> Any:
    return session.daemon.call(
        "approval/respond",
        session_id=session.id,
        approval_id=waiting(session)["approval_id"],
        decision=decision,
        **more,
    )


def said(end: dict[str, Any]) -> Any:
    return json.loads(end["text"])


def test_a_form_waits_for_values_that_fit_and_the_agent_gets_them(agent: Callable[..., Harness]) -> None:
    session = agent().new(backend="agent")
    turn = session.prompt(ASK)
    asked = waiting(session)
    assert asked["tool_name"] == "elicitation"
    assert (asked["input"]["message"], asked["input"]["mode"]) == ("Please.", "form")
    assert asked["input"]["requested_schema"]["properties"] == SCHEMA["properties"]
    for wrong in ({"content": {"colour": "green"}}, {"content": {}}, {}):
        with pytest.raises(ClisupError) as refused:
            respond(session, "allow", updated_input=wrong)
        assert refused.value.kind == "invalid_params" and "colour" in refused.value.message
    assert len(session.daemon.call("approval/list")["approvals"]) == 1
    respond(session, "allow", updated_input=RED)
    end = session.end_of(turn)
    assert (end["outcome"], end["denied"], said(end)) == ("completed", [], {"action": "accept", **RED})
    (resolved,) = session.events("approval_resolved")
    assert (resolved["decision"], resolved["by"], resolved["input_changed"]) == ("allow", "client", True)


def test_an_address_is_told_and_accepted(agent: Callable[..., Harness]) -> None:
    session = agent().new(backend="agent")
    turn = session.prompt("visit https://example.com/login?id=1")
    assert waiting(session)["input"] == {"message": "Please.", "mode": "url", "url": "https://example.com/login?id=1"}
    respond(session, "allow")
    assert said(session.end_of(turn)) == {"action": "accept"}


def test_a_denied_elicitation_is_declined_and_the_turn_goes_on(agent: Callable[..., Harness]) -> None:
    session = agent().new(backend="agent")
    turn = session.prompt(ASK)
    respond(session, "deny")
    end = session.end_of(turn)
    assert (end["outcome"], end["denied"], said(end)) == ("completed", ["elicitation"], {"action": "decline"})


@pytest.mark.parametrize(
    ("approvals", "by"),
    [
        ('unattended = "deny"\nunattended_after_s = 0.1', "unattended"),
        ('[[backends.agent.approvals.rules]]\ntool = "*"\ndecision = "allow"', "rule"),
        ('[[backends.agent.approvals.rules]]\ntool = "elicitation"\ndecision = "deny"', "rule"),
    ],
)
@pytest.mark.parametrize("asks", [ASK, 'elicit {"type": "object", "properties": {}}', "visit https://example.com/"])
def test_without_a_person_an_elicitation_is_declined(
    agent: Callable[..., Harness], approvals: str, by: str, asks: str
) -> None:
    session = agent(approvals).new(backend="agent")
    end = session.ask(asks)
    assert (end["outcome"], end["denied"], said(end)) == ("completed", ["elicitation"], {"action": "decline"})
    assert [(e["decision"], e["by"]) for e in session.events("approval_resolved")] == [("deny", by)]


def test_an_interrupt_cancels_an_open_elicitation_with_its_turn(agent: Callable[..., Harness]) -> None:
    session = agent().new(backend="agent")
    turn = session.prompt(f"{ASK}\nsay never")
    waiting(session)
    session.call("interrupt")
    end = session.end_of(turn)
    assert (end["outcome"], end["stop_reason"]) == ("interrupted", "cancelled")
    assert [e["text"] for e in session.events("content_delta")] == ['{"action":"cancel"}']
    assert [(e["decision"], e["by"]) for e in session.events("approval_resolved")] == [("cancelled", "end")]
    assert session.daemon.call("approval/list") == {"approvals": []}


@pytest.mark.fault(1)
@pytest.mark.parametrize(
    ("point", "decided"),
    [("", False), ("approval.before", False), ("say.journaled", True), ("keeper.stdin.after@3", True)],
)
def test_kill_9_with_an_open_elicitation_loses_no_answer_and_doubles_none(
    agent: Callable[..., Harness], point: str, decided: bool
) -> None:
    daemon = agent()
    session = daemon.new(backend="agent")
    if point:
        name, _, nth = point.partition("@")
        daemon.kill()
        daemon.env["CLISUP_FAILPOINTS"] = f"{name}=kill@{nth or 1}"
        daemon.start()
    turn = session.prompt(f"{ASK}\nsay !")
    approval = waiting(session)["approval_id"]
    if point:
        with daemon.wire() as wire:
            wire.post(
                "approval/respond", approval_id=approval, session_id=session.id, decision="allow", updated_input=RED
            )
            assert daemon.process is not None
            daemon.process.wait(30)
        del daemon.env["CLISUP_FAILPOINTS"]
        daemon._hang_up()
    else:
        daemon.kill()
    daemon.start()
    if not decided:
        respond(session, "allow", updated_input=RED)
    end = session.end_of(turn)
    assert end["outcome"] == "completed" and end["text"].endswith("!")
    assert json.loads(end["text"][:-1]) == {"action": "accept", **RED}
    assert [e["decision"] for e in session.events("approval_resolved")] == ["allow"]
