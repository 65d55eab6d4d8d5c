"""Every method of the protocol, and every param of it, can be said by a named method of either client."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, get_args, get_origin

import pytest
import trio
from fake_daemon import OTHER, SESSION, FakeDaemon
from pydantic import BaseModel

from clisup.client.aio import AsyncClient, open_client
from clisup.client.answers import Answer, Approval
from clisup.client.events import Envelope, Notice, UnknownEvent
from clisup.client.sync import Client
from clisup.errors import ClisupError, WorldError
from clisup.model.usage import Usage
from clisup.wire import params, results
from clisup.wire.methods import METHODS

BOUND_S = 20.0
ENVELOPE = Envelope(SESSION, 7, "2026-01-01T00:00:00Z", None, "daemon", Notice(code="a", message="b"))
APPROVAL: dict[str, Any] = {
    "approval_id": "1:r1", "session_id": SESSION, "turn_id": "t1", "tool_name": "Bash", "input": {"command": "ls"},
    "suggestions": [], "requested_at": "2026-01-01T00:00:00Z", "seq": 4,
}  # fmt: skip


def sample(model: type[BaseModel], **given: Any) -> dict[str, Any]:
    """An answer of this shape: what is not given is null where it may be, else empty."""
    empty = {str: "", int: 0, bool: False, dict: {}, list: [], Usage: {}}
    required = {name: field.annotation for name, field in model.model_fields.items() if field.is_required()}
    filled = {
        name: None if type(None) in get_args(type_) else empty[get_origin(type_) or type_]
        for name, type_ in required.items()
    }
    return filled | given


SUMMARY = sample(results.SessionSummary, session_id=SESSION, created_at="2026-01-01T00:00:00Z")
SHARED: dict[str, Any] = {
    "account": "team", "limit": {"state": "limited", "until": 9.5, "said_at": 1.5}, "waiting": [SESSION], "probe": None,
}  # fmt: skip
NOTIFY: dict[str, Any] = {
    "name": "hook", "on": ["turn_failed"], "kind": "url", "target": "h", "format": "json", "signed": True, "labels": {}, "backends": [],
    "state": "ok", "failing_since": None, "error": None, "delivered": 1, "failed": 0, "given_up": 0,
}  # fmt: skip
TESTED: dict[str, Any] = {
    "name": "hook",
    "target": "h",
    "ok": True,
    "detail": "HTTP 200",
    "output": "",
    "duration_s": 0.1,
}
BACKEND = sample(results.BackendInfo, name="demo")
NATIVE = {"backend": "demo", "native_session_id": "n1", "title": "A title", "prompt": None, "branch": None, "started_at": None,
          "updated_at": "2026-11-22T10:15:02Z", "session_id": None}  # fmt: skip
FINDING = {"check": "uid", "status": "ok", "detail": "", "fix": "", "backend": None}
RESULT = {"turn_id": "t1", "outcome": "completed", "text": "Hello.", "usage": {"input_tokens": 3}}
EVENT = {"session_id": SESSION, "seq": 1, "ts": "2026-01-01T00:00:00Z", "turn_id": None, "source": "daemon"}
NEW: dict[str, Any] = {
    "session_id": OTHER, "model": "m", "system_prompt": "s", "permission_mode": "plan", "env": {"A": "b"},
    "mcp_config": {"mcpServers": {}}, "timeouts": {"turn": 5.0}, "labels": {"a": "b"}, "resume_native_id": "n1",
    "mode": "live", "approvals": {"unattended": "deny"}, "budget": {"turns": 3},
    "tools": [{"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}],
    "cli_tools": "none", "system_prompt_mode": "replace", "title": "Nightly run", "worktree": {"name": "fix"},
    "history": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
}  # fmt: skip
NEW = {name: value for name, value in NEW.items() if name in params.SessionNewParams.model_fields}
SUBSCRIBE: dict[str, Any] = {"types": ["notice"], "deltas": False, "raw": True, "name": "mine"}


class Case(NamedTuple):
    """`use` is the same code for both clients; `gives` looks at what came of it; `unsaid` are params that a client knows best."""

    use: Callable[[Any], Any]
    answer: Any = None
    gives: Callable[[Any], Any] = lambda result: result is None
    unsaid: frozenset[str] = frozenset()


def session(client: Any) -> Any:
    return client.attach(SESSION)


def opened(result: Any) -> bool:
    return (result.id, result.native_session_id) == (OTHER, "n1")


# fmt: off
CASES: dict[str, Case] = {
    "initialize": Case(lambda c: c.server, gives=lambda server: server["backends"] == ["demo"]),
    "ping": Case(lambda c: c.ping(), {"time": "now"}, lambda time: time == "now"),
    "rpc.discover": Case(lambda c: c.discover(), {"openrpc": "1"}, lambda document: document == {"openrpc": "1"}),
    "daemon/status": Case(lambda c: c.status(), {"daemon": {}}, lambda status: status == {"daemon": {}}),
    "daemon/log": Case(lambda c: c.daemon_log(5, session_id=SESSION), {"lines": [{"event": "ready"}], "dropped": 0, "held_back": {}},
                       lambda log: log["lines"] == [{"event": "ready"}]),
    "daemon/metrics": Case(lambda c: c.metrics("openmetrics"), {"text": "# EOF\n", "content_type": ""}, lambda text: text == "# EOF\n"),
    "daemon/shutdown": Case(lambda c: c.stop_daemon("detach"), {"ok": True}),
    "daemon/reload": Case(lambda c: c.reload_daemon(dry_run=True),
                          {"file": "/f", "changed": [{"key": "daemon.fsync", "what": "changed", "effect": "at_once"}]},
                          lambda result: (result.file, result.changed[0].effect) == ("/f", "at_once")),
    "daemon/restart": Case(lambda c: c.restart_daemon(), {"running": 2, "instance_id": "x"}, lambda result: result.running == 2),
    "daemon/gc": Case(lambda c: c.clear(dry_run=True, older_than_s=5.0, foreign=True),
                      {"dry_run": True, "items": [], "bytes": 0, "failed": [], "more": 3}, lambda result: result.more == 3),
    "notify/list": Case(lambda c: c.notify_targets(), {"targets": [NOTIFY]}, lambda rows: rows == [results.NotifyRow(**NOTIFY)]),
    "notify/test": Case(lambda c: c.test_notify("hook"), {"results": [TESTED]}, lambda found: found == [results.NotifyTest(**TESTED)]),
    "account/list": Case(lambda c: c.accounts(), {"accounts": [SHARED], "limit_hold_s": 9.0},
                         lambda found: found.accounts == [results.SharedAccount(**SHARED)]),
    "account/report": Case(lambda c: c.report_account("team", SHARED["limit"], probe="elsewhere"), {"ok": True}),
    "backend/list": Case(lambda c: c.backends(), [BACKEND], lambda found: found == [results.BackendInfo(**BACKEND)]),
    "backend/env": Case(lambda c: c.backend_env("demo", {"A": "b"}), {"kept": [{"name": "HOME", "rule": "keep"}], "dropped": [], "set": []},
                        lambda result: result.kept[0].name == "HOME"),
    "backend/models": Case(lambda c: c.models("groq"), {"models": ["a", "b"]}, lambda found: found == ["a", "b"]),
    "backend/check": Case(lambda c: c.check("demo", cwd="/tmp"), [FINDING], lambda found: found[0].status == "ok"),
    "backend/sessions": Case(lambda c: c.native_sessions("/tmp", "demo"), {"sessions": [NATIVE], "skipped": []},
                             lambda found: found == [results.NativeSessionInfo(**NATIVE)]),
    "session/new": Case(lambda c: c.open("demo", "/tmp", **NEW), {"session_id": OTHER, "native_session_id": "n1"}, opened),
    "session/list": Case(lambda c: c.sessions(labels={"a": "b"}, state="closed"), {"sessions": [SUMMARY]},
                         lambda found: found[0].created_at == SUMMARY["created_at"], frozenset({"cursor"})),
    "session/get": Case(lambda c: session(c).info(), sample(results.SessionDetail),
                        lambda info: isinstance(info, results.SessionDetail)),
    "session/prompt": Case(lambda c: session(c).prompt("Hi", key="k", when_busy="steer", when_limited="refuse", expand=True,
                                                         output_schema={"type": "object"}, sampling={"seed": 1}, timeout_s=60.0,
                                                         tools=[{"name": "a", "input_schema": {"type": "object"}}]), RESULT,
                           lambda result: (result.text, result.usage.input_tokens) == ("Hello.", 3)),
    "session/interrupt": Case(lambda c: session(c).interrupt("t1", mode="kill"), {"turn_id": "t1", "outcome": "interrupted"},
                              lambda result: result.outcome == "interrupted"),
    "session/diff": Case(lambda c: session(c).diff(patch=False, max_bytes=9), sample(results.DiffResult),
                         lambda diff: isinstance(diff, results.DiffResult)),
    "session/land": Case(lambda c: session(c).land(commit="Done."),
                         {"branch": "main", "before": "a", "after": "b", "commits": 1, "committed": None},
                         lambda done: (done.branch, done.commits) == ("main", 1)),
    "session/discard": Case(lambda c: session(c).discard(),
                            {"path": "/w", "branch": "clisup/a", "commit": "c", "commits": 1, "uncommitted": 0},
                            lambda done: done.commit == "c"),
    "session/close": Case(lambda c: session(c).close(), {"ok": True}),
    "session/delete": Case(lambda c: session(c).delete(), {"ok": True}),
    "session/subscribe": Case(lambda c: c.events(SESSION, 3, **SUBSCRIBE), {"next_seq": 1, "first_seq": 1, "after_seq": 3},
                              lambda events: events.cursor == 3),
    "session/unsubscribe": Case(lambda c: c.forget("mine"), {"ok": True}),
    "session/ack": Case(lambda c: c.events(SESSION, 3, name="mine").ack(ENVELOPE), {"seq": 7}),
    "session/events": Case(lambda c: session(c).history(3, types=["notice"], raw=True),
                           {"events": [EVENT | {"type": "new", "a": 1}], "next_seq": 2, "eof": True},
                           lambda found: [envelope.event for envelope in found] == [UnknownEvent("new", {"a": 1})]),
    "session/blob": Case(lambda c: session(c).blob("blob-1-out-1"), {"data_base64": "aGk=", "size": 2, "eof": True},
                         lambda data: data == b"hi", frozenset({"limit"})),
    "session/fork": Case(lambda c: session(c).fork(session_id_new=OTHER, at_turn="t2"),
                         {"session_id": OTHER, "native_session_id": "n1"}, opened),
    "session/set_model": Case(lambda c: session(c).set_model("m"), {"ok": True}),
    "session/set_title": Case(lambda c: session(c).set_title("Nightly run"), {"ok": True}),
    "session/set_permission_mode": Case(lambda c: session(c).set_permission_mode("plan"), {"ok": True}),
    "session/context_usage": Case(lambda c: session(c).context_usage(), {"total": 5}, lambda usage: usage == {"total": 5}),
    "session/compact": Case(lambda c: session(c).compact("be short", key="k"), RESULT, lambda result: result.turn_id == "t1"),
    "session/set_budget": Case(lambda c: session(c).set_budget(usd=1.5, turns=3), {"budget": {"limit": {"usd": 1.5}}},
                               lambda budget: budget == {"limit": {"usd": 1.5}}),
    "session/note": Case(lambda c: session(c).note("client.stage", "thinking", data={"n": 1}), {"seq": 9}, lambda seq: seq == 9),
    "approval/list": Case(lambda c: c.open_approvals(SESSION), {"approvals": [APPROVAL | {"later": 1}]},
                          lambda found: found == [Approval(**APPROVAL)]),
    "approval/respond": Case(lambda c: c.respond(Approval(**APPROVAL), Answer("allow", "why", {"command": "ls -l"}, True, "once")),
                             {"decision": "allow"}),
}
CASES |= {
    "tool/serve": Case(lambda c: c.serve_tool_calls(SESSION), {"session_id": SESSION, "tools": ["add"], "open": 0},
                       lambda result: result.tools == ["add"]),
    "tool/result": Case(lambda c: c.answer_tool(SESSION, "c1", "4", is_error=True), {"ok": True}),
}
# fmt: on
BY_CONNECTING = {"initialize"}


def test_no_method_is_forgotten() -> None:
    theirs = {name for name, method in METHODS.items() if method.role == "bridge"}
    assert set(METHODS) - theirs <= set(CASES)


@pytest.fixture(params=CASES)
def asked(request: pytest.FixtureRequest, daemon: FakeDaemon) -> str:
    """A method, and the daemon has an answer to it."""
    method = str(request.param)
    for name, case in CASES.items():
        if name not in BY_CONNECTING:
            daemon.handlers[name] = lambda peer, params, case=case: case.answer  # type: ignore[misc]
    return method


def check(daemon: FakeDaemon, method: str, result: Any) -> None:
    case = CASES[method]
    assert case.gives(result)
    sent = daemon.calls(method)[-1]
    if method in METHODS and method not in BY_CONNECTING:
        params: type[BaseModel] = METHODS[method].params
        assert set(sent) | case.unsaid == set(params.model_fields) | case.unsaid, "a param that cannot be said"
        params.model_validate(sent)


def test_the_blocking_client_has_a_name_for_it(daemon: FakeDaemon, asked: str) -> None:
    with Client.connect(daemon.path) as client:
        result = CASES[asked].use(client)
        if asked == "session/events":
            result = list(result)
        check(daemon, asked, result)
        if asked == "session/subscribe":
            result.close()


async def test_the_trio_client_has_a_name_for_it(daemon: FakeDaemon, asked: str) -> None:
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.path) as client:
            result = CASES[asked].use(client)
            if inspect.isawaitable(result):
                result = await result
            if asked == "session/events":
                result = [envelope async for envelope in result]
            if asked == "session/subscribe":
                await result.open()
            check(daemon, asked, result)


@pytest.mark.parametrize("name", sorted(name for name in dir(AsyncClient) if not name.startswith("_")))
def test_what_one_client_is_called_the_other_is_called_too(name: str) -> None:
    assert hasattr(Client, name)


def test_both_kinds_of_session_have_the_same_methods_with_the_same_params() -> None:
    from clisup.client.aio_session import AsyncSession
    from clisup.client.sync_session import BlockingSession

    def signatures(of: type) -> dict[str, list[str]]:
        found = inspect.getmembers(of, inspect.isfunction)
        return {name: list(inspect.signature(f).parameters) for name, f in found if not name.startswith("_")}

    assert signatures(BlockingSession) == signatures(AsyncSession)


def test_an_answer_of_another_shape_is_told_with_the_field(daemon: FakeDaemon) -> None:
    daemon.handlers["session/interrupt"] = lambda peer, params: {"turn_id": "t1"}
    with Client.connect(daemon.path) as client, pytest.raises(WorldError, match="because outcome is not") as caught:
        client.attach(SESSION).interrupt()
    assert "another version" in caught.value.hint


def test_a_list_of_sessions_is_fetched_page_by_page(daemon: FakeDaemon) -> None:
    def page(peer: Any, params: dict[str, Any]) -> Any:
        return {"sessions": [SUMMARY], "next_cursor": None if params.get("cursor") else OTHER}

    daemon.handlers["session/list"] = page
    with Client.connect(daemon.path) as client:
        assert len(client.sessions()) == 2
    assert [params.get("cursor") for params in daemon.calls("session/list")] == [None, OTHER]


def test_a_session_that_was_not_named_gets_an_id_here(daemon: FakeDaemon) -> None:
    with Client.connect(daemon.path) as client:
        assert client.open("demo", "/tmp").id == daemon.calls("session/new")[0]["session_id"]


def test_nothing_is_answered_where_the_decision_is_left_to_others(daemon: FakeDaemon) -> None:
    with Client.connect(daemon.path) as client:
        client.respond(Approval(**APPROVAL), None)
    assert not daemon.calls("approval/respond")


def test_an_approval_that_is_none_is_refused_to_who_asks_and_passed_over_by_who_settles(daemon: FakeDaemon) -> None:
    refusal = {"code": -32033, "message": "cannot answer", "data": {"kind": "approval_already_resolved"}}

    def refuse(peer: Any, params: dict[str, Any]) -> Any:
        peer.send({"jsonrpc": "2.0", "id": peer.asked, "error": refusal})
        from fake_daemon import SILENCE

        return SILENCE

    daemon.handlers["approval/respond"] = refuse
    with Client.connect(daemon.path) as client:
        client.settle(Approval(**APPROVAL), "allow")
        with pytest.raises(ClisupError, match="cannot answer"):
            client.respond("1:r1", "deny", session_id=SESSION)
    assert daemon.calls("approval/respond")[1] == {"approval_id": "1:r1", "session_id": SESSION, "decision": "deny"}
