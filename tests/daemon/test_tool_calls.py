"""Calls of a session's tools: from a bridge to the client that serves, and the answer back. Here the test is both of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from harness import Harness, until
from wire import Wire

from clisup.config.model import Config
from clisup.daemon.tools.calls import SessionTools
from clisup.errors import ClisupError
from clisup.policy.open_calls import MAX_OPEN_CALLS
from clisup.store.session_dir import BroughtTools

ADD = {"name": "add", "description": "Adds two numbers.", "input_schema": {"type": "object"}}
SLOW = {"name": "slow", "input_schema": {"type": "object"}, "timeout_s": 0.2}
OTHER = "0d9c1c1e-0000-4000-8000-000000000000"


class Session:
    """One with tools, opened by `client`, which serves it."""

    def __init__(self, daemon: Harness, *tools: dict[str, Any]) -> None:
        self.daemon, self.client = daemon, daemon.wire()
        params = {"backend": "demo", "cwd": str(daemon.cwd), "tools": list(tools) or [ADD, SLOW]}
        self.id: str = self.client.call("session/new", **params)["session_id"]

    @property
    def token(self) -> str:
        path = self.daemon.state / "sessions" / self.id / "private" / "tools.json"
        return str(json.loads(path.read_text())["token"])

    def bridge(self) -> Wire:
        wire = self.daemon.wire()
        wire.call("bridge/hello", token=self.token)
        return wire

    def close(self) -> None:
        with self.daemon.wire() as wire:
            wire.call("session/close", session_id=self.id)
        self.client.close()


@pytest.fixture(autouse=True)
def _hang_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every connection that a test makes is closed at its end."""
    opened: list[Wire] = []
    dial = Harness.wire
    monkeypatch.setattr(Harness, "wire", lambda self: opened.append(dial(self)) or opened[-1])
    yield
    for wire in opened:
        wire.close()


@pytest.fixture
def session(daemon: Harness) -> Iterator[Session]:
    made = Session(daemon)
    yield made
    made.close()


def told(client: Wire, method: str = "tool/call") -> dict[str, Any]:
    """The next request or notification of this method; its params, and the request's id."""
    while True:
        frame = client.pushed.popleft() if client.pushed else client.frame()
        if frame.get("method") == method:
            return {**frame["params"], "request": frame.get("id")}


def answer(client: Wire, call: dict[str, Any], **result: Any) -> None:
    client.send({"jsonrpc": "2.0", "id": call["request"], "result": result})


def refusal(wire: Wire, method: str, **params: Any) -> str:
    with pytest.raises(ClisupError) as refused:
        wire.call(method, **params)
    return refused.value.kind


# -- the way there and back


def test_a_call_goes_to_the_client_that_opened_the_session_and_its_answer_goes_back(session: Session) -> None:
    bridge = session.bridge()
    id_ = bridge.post("bridge/call", call_id="c1", name="add", input={"a": 2}, tool_use_id="toolu_1")
    call = told(session.client)
    request = call.pop("request")
    assert call == {
        "session_id": session.id, "turn_id": None, "call_id": "c1", "tool_use_id": "toolu_1", "name": "add", "input": {"a": 2},
    }  # fmt: skip
    answer(session.client, {"request": request}, content="4")
    assert bridge.answer(id_) == {"content": "4", "is_error": False}


def test_the_bridge_is_told_of_the_tools_as_the_client_described_them(session: Session) -> None:
    with session.daemon.wire() as wire:
        hello = wire.call("bridge/hello", token=session.token)
    assert hello["session_id"] == session.id
    assert hello["tools"] == [ADD, {"description": "", **SLOW}]


@pytest.mark.parametrize(
    ("said", "content", "is_error"),
    [
        ({"result": {"content": "no", "is_error": True}}, "no", True),
        ({"result": {"content": [{"type": "text", "text": "x"}]}}, [{"type": "text", "text": "x"}], False),
        ({"error": {"code": -1, "message": "it broke"}}, "The tool failed: it broke", True),
        ({"error": "odd"}, "The tool failed: the client gave no reason", True),
        ({"result": {"content": 3}}, "The tool's answer could not be used, because content.text is wrong", True),
        ({"result": None}, "The tool's answer could not be used, because all of it is wrong", True),
    ],
)
def test_whatever_the_client_answers_becomes_something_that_the_model_can_read(
    session: Session, said: dict[str, Any], content: Any, is_error: bool
) -> None:
    bridge = session.bridge()
    id_ = bridge.post("bridge/call", call_id="c1", name="add")
    session.client.send({"jsonrpc": "2.0", "id": told(session.client)["request"], **said})
    result = bridge.answer(id_)
    assert result["is_error"] is is_error
    assert result["content"] == content or result["content"].startswith(content)


def test_calls_run_side_by_side_and_are_answered_in_any_order(session: Session) -> None:
    bridge = session.bridge()
    ids = [bridge.post("bridge/call", call_id=f"c{n}", name="add", input={"n": n}) for n in range(5)]
    calls = [told(session.client) for _ in ids]
    for call in reversed(calls):
        answer(session.client, call, content=str(call["input"]["n"]))
    assert [bridge.answer(id_)["content"] for id_ in ids] == ["0", "1", "2", "3", "4"]


def test_an_answer_may_come_by_a_request_from_any_connection_and_the_first_one_wins(session: Session) -> None:
    bridge, other = session.bridge(), session.daemon.wire()
    id_ = bridge.post("bridge/call", call_id="c1", name="add")
    call = told(session.client)
    assert other.call("tool/result", session_id=session.id, call_id="c1", content="first") == {"ok": True}
    assert refusal(other, "tool/result", session_id=session.id, call_id="c1", content="second") == "tool_call_not_found"
    answer(session.client, call, content="third")
    assert bridge.answer(id_)["content"] == "first"
    assert session.client.call("ping")  # a late answer is no mistake


def test_an_unknown_tool_and_too_many_calls_are_told_to_the_model(session: Session) -> None:
    bridge = session.bridge()
    assert bridge.call("bridge/call", call_id="x", name="rm") == {
        "content": "There is no tool 'rm'; there are: add, slow.", "is_error": True,
    }  # fmt: skip
    for n in range(MAX_OPEN_CALLS):
        (session.bridge() if n % 50 == 0 else bridge).post("bridge/call", call_id=f"c{n}", name="add")
    until(lambda: len(described(session)["open"]) == MAX_OPEN_CALLS)
    last = session.bridge().call("bridge/call", call_id="one-more", name="add")
    assert last["is_error"] and f"{MAX_OPEN_CALLS} calls are open" in last["content"]


def described(session: Session) -> dict[str, Any]:
    return dict(session.daemon.call("session/get", session_id=session.id)["tools"])


def test_a_session_shows_its_tools_who_serves_and_what_is_open(session: Session) -> None:
    assert described(session) == {"names": ["add", "slow"], "served": True, "open": []}
    bridge = session.bridge()
    bridge.post("bridge/call", call_id="c1", name="add", tool_use_id="u1")
    told(session.client)
    assert described(session)["open"] == [{"call_id": "c1", "name": "add", "tool_use_id": "u1"}]
    assert session.daemon.call("session/get", session_id=session.daemon.new().id)["tools"] is None


# -- who serves


def test_the_last_one_that_serves_gets_the_calls_the_open_ones_first_and_by_the_same_id(session: Session) -> None:
    bridge = session.bridge()
    id_ = bridge.post("bridge/call", call_id="c1", name="add", input={"a": 1})
    before = told(session.client)
    second = session.daemon.wire()
    assert second.call("tool/serve", session_id=session.id) == {
        "session_id": session.id, "tools": ["add", "slow"], "open": 1,
    }  # fmt: skip
    again = told(second)
    assert {**again, "request": None} == {**before, "request": None}
    dropped = told(session.client, "tool/cancelled")
    assert (dropped["call_id"], dropped["reason"]) == ("c1", "taken_over")
    answer(second, again, content="from the second")
    assert bridge.answer(id_)["content"] == "from the second"
    bridge.post("bridge/call", call_id="c2", name="add")
    assert told(second)["call_id"] == "c2"


def test_to_serve_twice_on_one_connection_changes_nothing(session: Session) -> None:
    bridge = session.bridge()
    bridge.post("bridge/call", call_id="c1", name="add")
    told(session.client)
    assert session.client.call("tool/serve", session_id=session.id)["open"] == 1
    assert not session.client.pushed


def test_when_the_client_dies_in_the_middle_the_next_one_gets_the_call(session: Session) -> None:
    bridge = session.bridge()
    id_ = bridge.post("bridge/call", call_id="c1", name="add")
    told(session.client)
    session.client.close()
    until(lambda: not described(session)["served"])
    session.client = session.daemon.wire()
    session.client.call("tool/serve", session_id=session.id)
    answer(session.client, told(session.client), content="late")
    assert bridge.answer(id_)["content"] == "late"


def test_a_session_without_tools_and_a_closed_one_are_not_served(daemon: Harness) -> None:
    assert refusal(daemon.wire(), "tool/serve", session_id=daemon.new().id) == "unsupported"
    made = Session(daemon)
    made.close()
    assert refusal(daemon.wire(), "tool/serve", session_id=made.id) == "session_closed"
    assert refusal(daemon.wire(), "tool/serve", session_id=OTHER) == "session_not_found"


def test_a_fork_has_the_tools_with_a_token_of_its_own_and_is_served_by_who_made_it(session: Session) -> None:
    client = session.client
    client.call("session/prompt", session_id=session.id, prompt="hello", wait=True)
    fork = client.call("session/fork", session_id=session.id)["session_id"]
    path = session.daemon.state / "sessions" / fork / "private" / "tools.json"
    token = json.loads(path.read_text())["token"]
    assert token != session.token
    bridge = session.daemon.wire()
    assert [tool["name"] for tool in bridge.call("bridge/hello", token=token)["tools"]] == ["add", "slow"]
    bridge.post("bridge/call", call_id="c1", name="add")
    assert told(client)["session_id"] == fork
    client.call("session/close", session_id=fork)


# -- the end of a call without an answer


def events(session: Session, type_: str) -> list[dict[str, Any]]:
    page = session.daemon.call("session/events", session_id=session.id, types=[type_])
    return list(page["events"])


def test_after_the_tools_own_time_the_model_gets_an_error_and_the_client_is_told_to_drop_the_call(
    session: Session,
) -> None:
    bridge = session.bridge()
    result = bridge.call("bridge/call", call_id="c1", name="slow")
    text = "The tool did not answer within 0.2 s and was given up; it may still have had an effect."
    assert result == {"content": text, "is_error": True}
    dropped = told(session.client, "tool/cancelled")
    assert (dropped["call_id"], dropped["reason"]) == ("c1", "timeout")
    notices = [event for event in events(session, "notice") if event["code"] == "tool_timeout"]
    assert [event["message"] for event in notices] == [f"slow: {text}"]


def test_where_nobody_serves_a_call_waits_for_a_while_and_then_says_so(serve: Callable[..., Harness]) -> None:
    session = Session(serve(daemon={"tool_wait_s": 0.2}))
    session.client.close()
    until(lambda: not described(session)["served"])
    result = session.bridge().call("bridge/call", call_id="c1", name="add")
    assert result == {
        "content": "The tool was not run to its end: for 0.2 s there was no client to run it.", "is_error": True,
    }  # fmt: skip
    assert [event["code"] for event in events(session, "notice")] == ["tool_unserved"]


def test_the_time_of_a_tool_without_its_own_is_the_configurations(serve: Callable[..., Harness]) -> None:
    session = Session(serve(daemon={"tool_timeout_s": 0.2}), ADD)
    assert "within 0.2 s" in session.bridge().call("bridge/call", call_id="c1", name="add")["content"]


def test_a_call_that_its_cli_gives_up_is_dropped(session: Session) -> None:
    bridge = session.bridge()
    id_ = bridge.post("bridge/call", call_id="c1", name="add")
    told(session.client)
    bridge.send({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"id": id_}})
    assert told(session.client, "tool/cancelled")["reason"] == "gone"
    assert described(session)["open"] == []


def test_a_bridge_that_dies_drops_its_calls_unless_another_one_waits_for_the_same(session: Session) -> None:
    first, second = session.bridge(), session.bridge()
    first.post("bridge/call", call_id="c1", name="add")
    call = told(session.client)
    id_ = second.post("bridge/call", call_id="c1", name="add")
    second.call("bridge/hello", token=session.token)  # the call before it is known by now
    first.close()
    answer(session.client, call, content="once")
    assert second.answer(id_)["content"] == "once"
    second.post("bridge/call", call_id="c2", name="add")
    assert told(session.client)["call_id"] == "c2"  # c1 was told once
    second.close()
    assert told(session.client, "tool/cancelled")["call_id"] == "c2"


# -- across a kill of the daemon


def test_after_a_kill_of_the_daemon_the_same_call_is_told_by_the_same_id(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = Session(daemon)
    session.bridge().post("bridge/call", call_id="c1", name="add", input={"a": 1})
    told(session.client)
    daemon.restart()
    bridge, client = session.bridge(), daemon.wire()
    id_ = bridge.post("bridge/call", call_id="c1", name="add", input={"a": 1})
    until(lambda: described(session)["open"])
    assert client.call("tool/serve", session_id=session.id)["open"] == 1
    call = told(client)
    assert (call["call_id"], call["input"]) == ("c1", {"a": 1})
    answer(client, call, content="done")
    assert bridge.answer(id_)["content"] == "done"


def test_a_restart_in_place_tells_no_client_to_drop_its_calls(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = Session(daemon)
    session.bridge().post("bridge/call", call_id="c1", name="add")
    told(session.client)
    before = daemon.identity()["instance_id"]
    daemon.call("daemon/restart")
    daemon.await_successor(before)
    heard = rest_of(session.client)
    assert "tool/cancelled" not in [frame.get("method") for frame in heard]


def rest_of(client: Wire) -> list[dict[str, Any]]:
    frames = []
    try:
        while True:
            frames.append(client.frame())
    except Exception:  # it has hung up
        return frames


# -- the token, and what the model's side may do


@pytest.mark.parametrize("token", ["", "x", OTHER, f"{OTHER}.x"])
def test_a_wrong_token_says_nothing_about_sessions(daemon: Harness, session: Session, token: str) -> None:
    assert refusal(daemon.wire(), "bridge/hello", token=token) == "permission_denied"
    assert refusal(daemon.wire(), "bridge/hello", token=f"{session.id}.{'x' * 43}") == "permission_denied"


def test_without_a_token_nothing_is_called(daemon: Harness, session: Session) -> None:
    assert refusal(daemon.wire(), "bridge/call", call_id="c1", name="add") == "permission_denied"


def test_the_token_is_in_private_files_alone_and_ends_with_the_session(daemon: Harness) -> None:
    session = Session(daemon)
    token, directory = session.token, daemon.state / "sessions" / session.id
    session.bridge()
    holding = {
        path.relative_to(directory) for path in directory.rglob("*") if path.is_file() and token in path.read_text()
    }
    assert holding == {Path("private/tools.json")}
    assert (directory / "private" / "tools.json").stat().st_mode & 0o777 == 0o600
    assert token not in daemon.log.read_text()
    session.close()
    assert not (directory / "private").exists()
    assert refusal(daemon.wire(), "bridge/hello", token=token) == "permission_denied"


def test_a_closed_session_ends_its_calls_and_takes_none_from_a_bridge_that_is_still_there(daemon: Harness) -> None:
    session = Session(daemon)
    bridge, client = session.bridge(), session.client
    id_ = bridge.post("bridge/call", call_id="c1", name="add")
    call = told(client)
    client.call("session/close", session_id=session.id)
    assert told(client, "tool/cancelled") == {
        "session_id": session.id, "call_id": "c1", "reason": "gone", "request": None,
    }  # fmt: skip
    answer(client, call, content="late")
    assert bridge.answer(id_)["is_error"] is True
    later = bridge.call("bridge/call", call_id="c2", name="add")
    assert later["is_error"] is True and "closed" in later["content"]


def test_a_client_holds_nothing_of_the_sessions_that_it_has_closed() -> None:
    class Client:
        def __init__(self) -> None:
            self.serves: set[SessionTools] = set()

    closed = SimpleNamespace(dir=SimpleNamespace(read_tools=lambda: BroughtTools([ADD], "token")))
    closed.services = SimpleNamespace(config=Config())
    client: Any = Client()

    async def main() -> None:
        desk = SessionTools(cast("Any", closed))
        desk.serve(client)
        assert client.serves == {desk}
        desk.close()

    trio.run(main)
    assert client.serves == set()


def test_a_session_of_the_same_params_is_served_by_who_asked_last(daemon: Harness) -> None:
    made = Session(daemon)
    with daemon.wire() as again:
        params = {"backend": "demo", "cwd": str(daemon.cwd), "tools": [ADD, SLOW], "session_id": OTHER}
        first = daemon.wire()
        first.call("session/new", **params)
        again.call("session/new", **params)
        bridge = daemon.wire()
        path = daemon.state / "sessions" / OTHER / "private" / "tools.json"
        bridge.call("bridge/hello", token=json.loads(path.read_text())["token"])
        bridge.post("bridge/call", call_id="c1", name="add")
        assert told(again)["call_id"] == "c1"
        again.call("session/close", session_id=OTHER)
    made.close()


# -- what is refused at session/new


@pytest.mark.parametrize("servers", [{"clisup": {"command": "x"}}, []])
def test_a_server_of_the_clients_may_not_have_the_name_of_ours(daemon: Harness, servers: Any) -> None:
    params = {"backend": "demo", "cwd": str(daemon.cwd), "tools": [ADD], "mcp_config": {"mcpServers": servers}}
    assert refusal(daemon.wire(), "session/new", **params) == "invalid_params"
