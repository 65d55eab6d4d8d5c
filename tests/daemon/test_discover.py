"""`rpc.discover`: the document is the published one, and what a real daemon answers and tells is as it says."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness
from jsonschema import Draft202012Validator

from clisup.errors import ClisupError
from clisup.wire.methods import METHODS

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"
UNTRIED = {
    "account/report": "it takes a named account; tests/daemon/test_accounts.py has one",
    "backend/models": "it asks a provider; tests/daemon/test_api_backends.py has one on loopback",
    "daemon/shutdown": "it would end the daemon that the tests of this file share",
    "daemon/restart": "the same; its answer is tested in test_restart_in_place.py",
    "approval/respond": "a test of its own: it takes a CLI that asks",
    **dict.fromkeys(
        ("tool/serve", "tool/result", "bridge/hello", "bridge/call"), "a test of its own: it takes a session with tools"
    ),
}


@pytest.fixture(scope="module")
def told(daemon: Harness) -> dict[str, Any]:
    return dict(daemon.call("rpc.discover"))


def schema_of(told: dict[str, Any], name: str) -> dict[str, Any]:
    """The schema of a method's result, with all it refers to."""
    method = next(entry for entry in told["methods"] if entry["name"] == name)
    return {**method["result"]["schema"], "components": told["components"]}


def test_the_answer_is_the_published_document(told: dict[str, Any]) -> None:
    assert told == json.loads((SCHEMAS / "openrpc.json").read_text())


def test_it_is_made_once_and_given_to_all(daemon: Harness) -> None:
    with daemon.wire() as one, daemon.wire() as two:
        asked = [(wire, wire.post("rpc.discover")) for wire in (one, two) for _ in range(5)]
        answers = [wire.answer(id_) for wire, id_ in asked]
    assert all(answer == answers[0] for answer in answers)


def repository(daemon: Harness) -> str:
    """Return a directory with one commit."""
    place = str(daemon.root / "repository")
    subprocess.run(["git", "init", "-q", place], check=True)
    by = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", place, *by, "commit", "-q", "--allow-empty", "-m", "Begin"], check=True)
    return place


def asked_of(daemon: Harness) -> dict[str, dict[str, Any]]:
    """Params for each method, of a session that had a turn with a tool and one that failed."""
    session = daemon.new(mode="live")
    session.ask('@tool Bash {"command":"echo hi"}\nDone.', key="first")
    session.ask("@error server")
    other, id_ = daemon.new(), {"session_id": session.id}
    forked = {"session_id": daemon.call("session/fork", **id_, at_turn="t1")["session_id"]}
    treed = {"session_id": daemon.new(cwd=repository(daemon), worktree=True).id}
    closed = {"session_id": daemon.new().id}
    daemon.call("session/close", **closed)
    running = daemon.new()
    running.prompt("@stall")
    running.await_event("session_init")
    daemon.call("session/subscribe", session_id=other.id, name="kept")
    only_session = {name for name in METHODS if set(METHODS[name].params.model_fields) == {"session_id"}}
    return dict.fromkeys(only_session, id_) | {
        "session/new": {"backend": "demo", "cwd": str(daemon.cwd)},
        "backend/env": {"name": "demo"},
        "backend/check": {"name": "demo"},
        "backend/sessions": {"cwd": str(daemon.cwd)},
        "session/prompt": {**id_, "prompt": "again", "wait": True},
        "session/compact": {**id_, "wait": True},
        "session/set_model": {**id_, "model": "other"},
        "session/set_permission_mode": {**id_, "permission_mode": "plan"},
        "session/interrupt": {"session_id": running.id},
        "session/fork": id_,
        "session/subscribe": {"session_id": "*"},
        "session/unsubscribe": id_,
        "session/ack": {"session_id": other.id, "name": "kept", "seq": 0},
        "session/events": id_,
        "session/blob": {**id_, "blob": "raw-1-out-0-1"},
        "session/set_budget": {**id_, "budget": {"turns": 1000}},
        "session/note": {**id_, "code": "client.stage", "message": "thinking", "data": {"n": 1}},
        "session/set_title": {**id_, "title": "Nightly run"},
        "session/diff": treed,
        "session/land": treed,
        "session/discard": treed,
        "session/close": forked,
        "session/delete": closed,
    }


def test_every_answer_is_as_the_document_says(daemon: Harness, told: dict[str, Any]) -> None:
    params = asked_of(daemon)
    for name in METHODS:
        if name in UNTRIED:
            continue
        answer = daemon.call(name, **params.get(name, {}))
        schema = schema_of(told, name)
        if name == "rpc.discover":
            continue  # its schema is the meta-schema, to which tests/wire/test_openrpc.py holds it
        problems = [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(answer)]
        assert problems == [], f"{name}: {json.dumps(answer)[:2000]}"


def test_the_sessions_of_a_backend_that_has_no_list_are_refused_and_of_all_backends_left_out(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve(raw='[backends.bare]\nkind = "ollama"\n')
    with pytest.raises(ClisupError) as refused:
        daemon.call("backend/sessions", backend="bare", cwd=str(daemon.cwd))
    assert (refused.value.kind, refused.value.data["param"]) == ("unsupported", "backend")
    assert daemon.call("backend/sessions", cwd=str(daemon.cwd))["sessions"] == []


def test_every_prompt_that_is_not_waited_for_is_answered_as_the_document_says(
    daemon: Harness, told: dict[str, Any]
) -> None:
    validator = Draft202012Validator(schema_of(told, "session/prompt"))
    session = daemon.new()
    for delivery in ("delivered", "duplicate"):
        answer = session.call("prompt", prompt="hello", key="once")
        assert answer["delivery"] == delivery
        validator.validate(answer)


def test_the_way_of_a_tools_call_is_as_the_document_says(daemon: Harness, told: dict[str, Any]) -> None:
    tool = {"name": "add", "description": "Adds.", "input_schema": {"type": "object"}, "timeout_s": 9.0}
    with daemon.wire() as client, daemon.wire() as bridge:
        params = {"backend": "demo", "cwd": str(daemon.cwd), "tools": [tool]}
        session_id = client.call("session/new", **params)["session_id"]
        kept = daemon.state / "sessions" / session_id / "private" / "tools.json"
        answers = {
            "tool/serve": client.call("tool/serve", session_id=session_id),
            "bridge/hello": bridge.call("bridge/hello", token=json.loads(kept.read_text())["token"]),
        }
        asked = bridge.post("bridge/call", call_id="c1", name="add", tool_use_id="u1")
        notified = client.frame()
        answers["session/get"] = client.call("session/get", session_id=session_id)
        answers["tool/result"] = client.call("tool/result", session_id=session_id, call_id="c1", content="4")
        answers["bridge/call"] = bridge.answer(asked)
        client.call("session/close", session_id=session_id)
    for name, answer in answers.items():
        Draft202012Validator(schema_of(told, name)).validate(answer)
    entry = next(entry for entry in told["x-notifications"] if entry["name"] == "tool/call")
    assert {param["name"] for param in entry["params"]} == set(notified["params"])


def test_approvals_are_listed_and_answered_as_the_document_says(daemon: Harness, told: dict[str, Any]) -> None:
    session = daemon.new(mode="live")
    turn = session.prompt('@ask Bash {"command":"echo hi"}\nDone.')
    asked = session.await_event("approval_requested")["approval_id"]
    listed = daemon.call("approval/list")
    assert [approval["approval_id"] for approval in listed["approvals"]] == [asked]
    Draft202012Validator(schema_of(told, "approval/list")).validate(listed)
    answer = daemon.call("approval/respond", approval_id=asked, session_id=session.id, decision="allow")
    Draft202012Validator(schema_of(told, "approval/respond")).validate(answer)
    assert session.end_of(turn)["outcome"] == "completed"


def test_every_event_is_as_its_schema_says(daemon: Harness) -> None:
    validator = Draft202012Validator(json.loads((SCHEMAS / "events.json").read_text()))
    session = daemon.new()
    for prompt in ('@tool Bash {"command":"echo hi"}\nDone.', "@error server", "@think hm\nhello"):
        session.ask(prompt)
    with daemon.wire() as wire:
        wire.call("session/subscribe", session_id=session.id, after_seq=0, raw=True)
        events = wire.events_until("turn_completed", turns=3)
    assert {"tool_use", "tool_result", "content_delta", "process_exited"} <= {event["type"] for event in events}
    for event in events:
        validator.validate(event)


NOBODY = {
    "session_id": "0d9c1c1e-0000-4000-8000-000000000000",
    "backend": "none",
    "name": "none",
    "cwd": "/",
    "limit": -1,
}


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"daemon/shutdown", "daemon/restart"}))
def test_an_error_is_one_that_the_document_names(daemon: Harness, told: dict[str, Any], name: str) -> None:
    """Asked for what is not there, one wrong param after the other, and all at once."""
    method = next(entry for entry in told["methods"] if entry["name"] == name)
    named = {ref["$ref"].split("/")[-1] for ref in method["errors"]}
    known = {param["name"] for param in method["params"]}
    wrong = {param: value for param, value in NOBODY.items() if param in known}
    for params in ({"no_such_param": 1}, wrong, *({param: value} for param, value in wrong.items())):
        try:
            daemon.call(name, **params)
        except ClisupError as error:
            assert error.kind in named, params
