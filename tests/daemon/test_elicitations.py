"""An MCP server asks its user: a real daemon and the demo, answered by a client, and by a person at a terminal."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import run
from harness import Harness, until
from pty_terminal import Terminal
from session_probe import SessionProbe

from clisup.client.answers import Answer, Decision
from clisup.client.events import ToolResult
from clisup.client.sync import Client
from clisup.errors import ClisupError

OVERHEARD = Path(__file__).with_name("overheard_demo.py")
TOOL = "mcp__good__elicitation"
SCHEMA = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "title": "Colour", "enum": ["r", "b"], "enumNames": ["Red", "Blue"]},
        "coats": {"type": "integer", "minimum": 1, "maximum": 3, "default": 2},
        "note": {"type": "string"},
    },
    "required": ["colour"],
}
ASK = f"@ask {TOOL} " + json.dumps({"message": "How?", "mode": "form", "requested_schema": SCHEMA})
URL = f"@ask {TOOL} " + json.dumps(
    {"message": "Log in.", "mode": "url", "url": "https://h/login", "elicitation_id": "e"}
)
SECRET = f"@ask {TOOL} " + json.dumps({
    "message": "Key?", "mode": "form",
    "requested_schema": {"properties": {"key": {"type": "string", "format": "password"}}, "required": ["key"]},
})  # fmt: skip


def asking(daemon: Harness, prompt: str = ASK, **params: Any) -> tuple[SessionProbe, str, str]:
    """A live session whose turn asks: the session, the turn and the approval."""
    session = daemon.new(mode="live", **params)
    turn = session.prompt(f"{prompt}\nThat is all.")
    return session, turn, str(session.await_event("approval_requested")["approval_id"])


def respond(session: SessionProbe, approval_id: str, decision: str, **more: Any) -> Any:
    return session.daemon.call(
        "approval/respond", session_id=session.id, approval_id=approval_id, decision=decision, **more
    )


def accept(session: SessionProbe, approval_id: str, **content: Any) -> Any:
    return respond(session, approval_id, "allow", updated_input={"content": content})


def told(session: SessionProbe) -> list[Any]:
    """What the server was told."""
    return [json.loads(event["content"]) for event in session.events("tool_result")]


def decisions(session: SessionProbe) -> list[tuple[str, str]]:
    return [(event["decision"], event["by"]) for event in session.events("approval_resolved")]


# A client answers


def test_the_values_of_a_client_reach_the_server(daemon: Harness) -> None:
    session, turn, approval = asking(daemon)
    (listed,) = daemon.call("approval/list", session_id=session.id)["approvals"]
    assert (listed["tool_name"], listed["input"]["requested_schema"]) == (TOOL, SCHEMA)
    accept(session, approval, colour="b", coats=3)
    assert session.end_of(turn)["outcome"] == "completed"
    assert told(session) == [{"action": "accept", "content": {"colour": "b", "coats": 3}}]
    assert decisions(session) == [("allow", "client")]


def test_an_answer_that_does_not_fit_is_refused_and_the_elicitation_stays_open(daemon: Harness) -> None:
    session, turn, approval = asking(daemon)
    for content, words in (({}, '"colour" is missing'), ({"colour": "green"}, '"colour" must be one of "r", "b"')):
        with pytest.raises(ClisupError, match=re.escape(words)) as refused:
            accept(session, approval, **content)
        assert refused.value.kind == "invalid_params"
    assert not session.events("approval_resolved")
    accept(session, approval, colour="r")
    session.end_of(turn)
    assert told(session) == [{"action": "accept", "content": {"colour": "r"}}]


def test_a_deny_declines_and_an_allow_accepts_a_url(daemon: Harness) -> None:
    session, turn, approval = asking(daemon, f"{ASK}\n{URL}")
    respond(session, approval, "deny", message="no")
    respond(session, str(session.await_event("approval_requested", 2)["approval_id"]), "allow")
    session.end_of(turn)
    assert told(session) == [{"action": "decline"}, {"action": "accept"}]


@pytest.mark.parametrize(
    ("decision", "result"),
    [
        ("allow", {"action": "decline"}),
        ("deny", {"action": "decline"}),
        (Answer("allow", updated_input={"content": {"colour": "b"}}), {"action": "accept", "content": {"colour": "b"}}),
    ],
)
def test_a_program_that_allows_every_tool_by_a_word_declines(daemon: Harness, decision: Decision, result: Any) -> None:
    with Client.connect(daemon.socket) as client, client.open("demo", str(daemon.cwd), mode="live") as session:
        turn = session.run(f"{ASK}\nThat is all.", on_approval=lambda approval: decision)
        results = [envelope.event for envelope in turn if isinstance(envelope.event, ToolResult)]
    assert [json.loads(event.content) for event in results] == [result]


# Nobody answers


def test_a_rule_that_allows_every_tool_declines(daemon: Harness) -> None:
    session, turn, _ = asking(daemon, approvals={"rules": [{"tool": "*", "decision": "allow"}]})
    session.end_of(turn)
    assert told(session) == [{"action": "decline"}]
    (resolved,) = session.events("approval_resolved")
    assert (resolved["decision"], resolved["by"]) == ("deny", "rule") and "has no values" in resolved["rule"]


def test_a_permission_mode_that_allows_every_tool_still_asks(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo={"env": {"IS_SANDBOX": "1"}})  # for root
    session, turn, approval = asking(daemon, URL, permission_mode="bypassPermissions")
    respond(session, approval, "allow")
    session.end_of(turn)
    assert told(session) == [{"action": "accept"}]


def test_without_a_follower_the_policy_may_decline(serve: Callable[..., Harness]) -> None:
    daemon = serve(raw='[backends.demo.approvals]\nunattended = "deny"\nunattended_after_s = 0.1')
    session = daemon.new(mode="live")
    session.ask(f"{ASK}\nThat is all.")
    assert told(session) == [{"action": "decline"}] and decisions(session) == [("deny", "unattended")]


def test_a_limit_of_approvals_ends_the_turn_and_cancels(daemon: Harness) -> None:
    session, turn, approval = asking(daemon, timeouts={"approval": 0.3})
    assert session.end_of(turn)["outcome"] == "timed_out"
    assert [decision for decision, _ in decisions(session)] == ["cancelled"]
    with pytest.raises(ClisupError) as late:
        accept(session, approval, colour="r")
    assert late.value.kind == "approval_already_resolved"


# A restart of the daemon


@pytest.mark.fault(1)
@pytest.mark.parametrize("point", [None, "approval.before", "approval.after"])
def test_an_elicitation_outlives_kill_9_and_is_answered_once(
    serve: Callable[..., Harness], tmp_path: Path, point: str | None
) -> None:
    heard = tmp_path / "heard"
    command = json.dumps([sys.executable, str(OVERHEARD), str(heard)])
    env = {"CLISUP_FAILPOINTS": f"{point}=kill@1"} if point else {}
    daemon = serve(raw=f'[backends.overheard]\nkind = "demo"\ncommand = {command}', env=env)
    session, turn, approval = asking(daemon, backend="overheard")
    if point:
        with daemon.wire() as wire:
            values = {"content": {"colour": "r"}}
            wire.post(
                "approval/respond", approval_id=approval, session_id=session.id, decision="allow", updated_input=values
            )
            assert daemon.process is not None
            daemon.process.wait(30)
        del daemon.env["CLISUP_FAILPOINTS"]
        daemon._hang_up()
        daemon.start()
    else:
        daemon.restart()
        with pytest.raises(ClisupError, match="is missing"):  # the schema is known to the next daemon, too
            accept(session, approval)
    if point == "approval.after":
        with pytest.raises(ClisupError) as late:
            accept(session, approval, colour="b")
        assert late.value.kind == "approval_already_resolved"
    else:
        accept(session, approval, colour="r")
    assert session.end_of(turn)["outcome"] == "completed"
    assert told(session) == [{"action": "accept", "content": {"colour": "r"}}]
    assert decisions(session) == [("allow", "client")]
    assert heard.read_text().count('"action": "accept"') == 1


# A person at a terminal


def opened(daemon: Harness, terminal: Callable[..., Terminal], command: str, prompt: str) -> Terminal:
    """The prompt in a live session, with `run`, `attach` or `approvals answer` at it."""
    prompt = f"{prompt}\nThat is all."
    if command == "run":
        return terminal("run", "-b", "demo", "--live", "-C", str(daemon.cwd), prompt)
    session = daemon.new(mode="live")
    session.prompt(prompt)
    session.await_event("approval_requested")
    return (
        terminal("attach", session.id[:8]) if command == "attach" else terminal("approvals", "answer", session.id[:8])
    )


def newest(daemon: Harness, kind: str) -> list[dict[str, Any]]:
    """The events of this type of the newest session."""
    session = max(daemon.call("session/list")["sessions"], key=lambda row: str(row["created_at"]))
    events = daemon.call("session/events", session_id=session["session_id"])["events"]
    return [event for event in events if event["type"] == kind]


def bare(one: Terminal) -> str:
    return re.sub(r"\r|\033\[[0-9;?]*[A-Za-z]", "", one.text)


@pytest.mark.parametrize("command", ["run", "attach", "approvals"])
def test_a_person_fills_the_form_at_a_terminal(
    daemon: Harness, terminal: Callable[..., Terminal], command: str
) -> None:
    one = opened(daemon, terminal, command, ASK)
    one.until("answer (1-2; /deny refuses): ")
    assert "good asks:\n  | How?\nquestion 1 of 3 (colour):\n  | Colour\n  1) Red\n  2) Blue\n" in bare(one)
    one.type("3\n")
    one.until("there is no choice 3")
    one.type("blue\n")
    one.until("an empty line takes the default, 2")
    one.type("\n")
    one.until("an empty line skips it")
    one.type("\n")
    until(lambda: newest(daemon, "turn_completed"))
    (result,) = newest(daemon, "tool_result")
    assert json.loads(result["content"]) == {"action": "accept", "content": {"colour": "b", "coats": 2}}


@pytest.mark.parametrize("command", ["run", "attach"])
def test_a_url_is_shown_and_declined(daemon: Harness, terminal: Callable[..., Terminal], command: str) -> None:
    one = opened(daemon, terminal, command, URL)
    one.until("accept it? [y]es, [n]o: ")
    assert "good asks:\n  | Log in.\n  and wants you to open this URL:\n  | https://h/login\n" in bare(one)
    one.type("n\n")
    until(lambda: newest(daemon, "turn_completed"))
    (result,) = newest(daemon, "tool_result")
    assert json.loads(result["content"]) == {"action": "decline"}


@pytest.mark.parametrize("command", ["run", "attach", "approvals"])
def test_a_secret_is_not_shown_while_it_is_typed(
    daemon: Harness, terminal: Callable[..., Terminal], command: str
) -> None:
    one = opened(daemon, terminal, command, SECRET)
    one.until("/deny refuses): ")
    one.type("hunter2\n")
    until(lambda: newest(daemon, "turn_completed"))
    if command == "approvals":
        one.until("(secret)")
        assert one.exit_code() == 0
    assert "hunter2" not in one.text.split("accept")[0]  # the result of the tool may show it
    (result,) = newest(daemon, "tool_result")
    assert json.loads(result["content"]) == {"action": "accept", "content": {"key": "hunter2"}}


def test_a_script_answers_with_one_argument_for_each_field(daemon: Harness) -> None:
    session, turn, approval = asking(daemon)
    name = f"{session.id}/{approval}"
    allowed = run(daemon, "approvals", "allow", name)
    assert allowed.returncode == 2 and "asks questions, so it needs answers" in allowed.stderr
    wrong = run(daemon, "approvals", "answer", name, "1", "9", "")
    assert wrong.returncode == 2 and "type a whole number, 1 to 3" in wrong.stderr
    right = run(daemon, "approvals", "answer", name, "1", "", "=2 lines")
    assert right.returncode == 0, right.stderr
    assert right.stdout.splitlines()[0] == "allow: good asks: How?"
    session.end_of(turn)
    assert told(session) == [{"action": "accept", "content": {"colour": "r", "coats": 2, "note": "2 lines"}}]


def test_a_large_form_is_read_from_its_blob(daemon: Harness) -> None:
    field = {"type": "string", "description": "x" * 300_000, "maxLength": 3}
    asked = {"message": "How?", "mode": "form", "requested_schema": {"properties": {"f": field}, "required": ["f"]}}
    session, turn, approval = asking(daemon, f"@ask {TOOL} {json.dumps(asked)}")
    (listed,) = daemon.call("approval/list", session_id=session.id)["approvals"]
    assert listed["blob"]
    wrong = run(daemon, "approvals", "answer", f"{session.id}/{approval}", "four")
    assert wrong.returncode == 2 and "at most 3 characters" in wrong.stderr
    assert run(daemon, "approvals", "answer", f"{session.id}/{approval}", "yes").returncode == 0
    session.end_of(turn)
    assert told(session) == [{"action": "accept", "content": {"f": "yes"}}]


def test_the_list_names_who_asks(daemon: Harness) -> None:
    session, turn, approval = asking(daemon)
    listed = run(daemon, "approvals", "--session", session.id)
    assert listed.stdout.splitlines()[1].rstrip().endswith("good asks: How?")
    respond(session, approval, "deny")
    session.end_of(turn)
