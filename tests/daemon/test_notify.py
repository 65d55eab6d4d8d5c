"""Messages of a real daemon: each event once for each table, again after a kill, and never at the cost of a turn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, until
from prometheus_client.parser import text_string_to_metric_families
from toml_text import toml
from webhook_server import WebhookServer

from clisup.errors import ClisupError
from clisup.policy.notify import signature, signing_key

Serve = Callable[..., Harness]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
FAILS = "@error server"


@pytest.fixture
def server() -> Iterator[WebhookServer]:
    with WebhookServer() as made:
        yield made


def table(**keys: Any) -> str:
    return f"[[notify]]\n{toml(keys)}\n"


def hook(server: WebhookServer, **keys: Any) -> str:
    return table(**{"name": "hook", "url": server.url, "on": ["turn_failed"], **keys})


def told(server: WebhookServer) -> list[tuple[str, str]]:
    return [(taken.data["type"], taken.data["id"]) for taken in server.taken]


def row(daemon: Harness, name: str = "hook") -> dict[str, Any]:
    rows: list[dict[str, Any]] = daemon.call("notify/list")["targets"]
    return next(row for row in rows if row["name"] == name)


def counts(daemon: Harness) -> dict[str, int]:
    families = text_string_to_metric_families(daemon.call("daemon/metrics")["text"])
    samples = [s for f in families for s in f.samples if s.name == "clisup_notifications_total"]
    return {s.labels["result"]: int(s.value) for s in samples}


def failed_id(session: Any, at: int = -1) -> str:
    return f"{session.id}_{session.events('turn_completed')[at]['seq']}"


def test_a_failed_turn_is_told_once_signed_and_with_its_event(serve: Serve, server: WebhookServer) -> None:
    daemon = serve(raw=hook(server, secret=SECRET, headers={"Authorization": "Bearer for-the-hook"}))
    session = daemon.new(labels={"team": "web"})
    session.ask("Fine.")
    session.ask(FAILS)
    until(lambda: row(daemon)["delivered"] == 1)
    (taken,) = server.taken
    assert (taken.path, taken.data["type"], taken.data["id"]) == ("/hook", "turn_failed", failed_id(session))
    assert taken.data["data"]["event"]["error"]["kind"] == "server"
    assert taken.data["data"]["labels"] == {"team": "web"} and taken.data["data"]["session_id"] == session.id
    assert taken.headers["authorization"] == "Bearer for-the-hook"
    stamp = int(taken.headers["webhook-timestamp"])
    assert signature(signing_key(SECRET), failed_id(session), stamp, taken.body).items() <= taken.headers.items()
    assert counts(daemon) == {"delivered": 1, "failed": 0, "given_up": 0}


def test_each_kind_of_event_goes_where_it_is_wanted(serve: Serve, server: WebhookServer) -> None:
    every = ["approval_requested", "turn_failed", "turn_completed", "limit"]
    raw = hook(server, name="all", on=every, labels={"team": "web"})
    raw += hook(server, name="others", on=every, url=f"{server.url}/others", backends=["claude"])
    raw += hook(server, name="limits", on=["limit"], url=f"{server.url}/limits", format="slack")
    daemon = serve(raw=raw)
    session, other = daemon.new(mode="live", labels={"team": "web"}), daemon.new()
    other.ask(FAILS)
    turn = session.prompt('@ask Bash {"command": "git push"}')
    asked = session.await_event("approval_requested")
    until(lambda: told(server))
    assert told(server) == [("approval_requested", f"{session.id}_{asked['seq']}")]
    session.call("interrupt", turn_id=turn)
    session.end_of(turn)
    session.ask(FAILS)
    other.ask("@error rate_limit")
    until(lambda: row(daemon, "all")["delivered"] == 3 and row(daemon, "limits")["delivered"] == 1)
    assert [kind for kind, _ in _json(server)] == ["approval_requested", "turn_completed", "turn_failed"]
    assert {taken.path for taken in server.taken} == {"/hook", "/hook/limits"}
    (limit,) = [taken for taken in server.taken if taken.path == "/hook/limits"]
    assert "turn failed (rate_limit)" in limit.data["text"]


def _json(server: WebhookServer) -> list[tuple[str, str]]:
    return [(taken.data["type"], taken.data["id"]) for taken in server.taken if "type" in taken.data]


def test_an_approval_that_a_rule_answers_is_not_told(serve: Serve, server: WebhookServer) -> None:
    rule = '[[backends.demo.approvals.rules]]\ntool = "Bash"\ndecision = "allow"\n'
    daemon = serve(raw=rule + hook(server, on=["approval_requested", "turn_completed"]))
    session = daemon.new(mode="live")
    session.ask('@ask Bash {"command": "ls"}')
    until(lambda: server.taken)
    assert session.events("approval_requested") and [kind for kind, _ in told(server)] == ["turn_completed"]


@pytest.mark.parametrize("point", ["notify.before", "notify.after", "end.after"])
def test_a_kill_between_the_event_and_the_confirmation_loses_no_message(
    serve: Serve, server: WebhookServer, point: str
) -> None:
    daemon = serve(raw=hook(server))
    daemon.new().ask("a cursor")  # which the next daemon goes on from
    session = daemon.new()
    daemon.kill()
    daemon.env["CLISUP_FAILPOINTS"] = f"{point}=kill"
    daemon.start()
    session.prompt(FAILS)
    until(lambda: daemon.process is not None and daemon.process.poll() is not None)
    del daemon.env["CLISUP_FAILPOINTS"]
    daemon.restart()
    session.end_of("t1")
    until(lambda: row(daemon)["delivered"] == 1)
    wanted = ("turn_failed", failed_id(session))
    assert told(server) == [wanted] * (2 if point == "notify.after" else 1), "again with the same id, or once"
    daemon.restart()
    session.ask("a turn after it")
    assert told(server)[-1] == wanted and row(daemon)["delivered"] == 0


def test_a_server_that_is_silent_delays_no_turn_and_gets_all_later(serve: Serve, server: WebhookServer) -> None:
    daemon = serve(raw=hook(server, timeout_s=0.5) + table(name="well", command=["true"], on=["turn_failed"]))
    server.silent.set()
    session = daemon.new()
    for _ in range(3):
        session.ask(FAILS)
    until(lambda: row(daemon)["state"] == "failing" and row(daemon, "well")["delivered"] == 3)
    assert "no answer within 0.5 s" in row(daemon)["error"]
    assert [target["state"] for target in daemon.call("daemon/status")["notify"]] == ["failing", "ok"]
    server.silent.clear()
    until(lambda: row(daemon)["delivered"] == 3)
    assert list(dict.fromkeys(told(server))) == [("turn_failed", failed_id(session, at)) for at in range(3)]
    assert (row(daemon)["state"], row(daemon)["error"]) == ("ok", None)


def test_what_is_given_up_is_counted_logged_and_shown(serve: Serve, server: WebhookServer) -> None:
    daemon = serve(raw=hook(server, retries=1))
    server.answer = 503
    session = daemon.new()
    session.ask(FAILS)
    until(lambda: row(daemon)["given_up"] == 1)
    assert len(server.taken) == 2
    session.ask(FAILS)  # while it is down, one try is enough
    until(lambda: row(daemon)["given_up"] == 2)
    assert len(server.taken) == 3 and counts(daemon) == {"delivered": 0, "failed": 3, "given_up": 2}
    lines = [json.loads(line) for line in daemon.log.read_text().splitlines()]
    lost = [line for line in lines if line["event"] == "message given up"]
    assert [(line["notify"], line["tries"], line["error"]) for line in lost] == [
        ("hook", 2, "HTTP 503"),
        ("hook", 1, "HTTP 503"),
    ]
    assert lost[0]["session"] == session.id
    (finding,) = [found for found in daemon.call("backend/check", name="demo") if found["check"] == "notify"]
    assert finding["status"] == "warn" and "HTTP 503" in finding["detail"]
    server.answer = 204
    session.ask(FAILS)
    until(lambda: row(daemon)["delivered"] == 1)
    assert told(server)[-1] == ("turn_failed", failed_id(session))


@pytest.mark.parametrize("answer", [301, 404])
def test_a_redirect_is_not_followed_and_a_refusal_is_final(serve: Serve, server: WebhookServer, answer: int) -> None:
    daemon = serve(raw=hook(server, retries=0 if answer == 301 else 5))
    server.answer, server.extra = answer, {"Location": f"{server.url}/elsewhere"}
    daemon.new().ask(FAILS)
    until(lambda: row(daemon)["given_up"] == 1)
    assert [taken.path for taken in server.taken] == ["/hook"]


def test_an_event_that_is_too_old_is_given_up_without_a_try(serve: Serve, server: WebhookServer) -> None:
    daemon = serve(raw=hook(server, max_age_s=0.000001))
    daemon.new().ask(FAILS)
    until(lambda: row(daemon)["given_up"] == 1)
    assert server.taken == []


def test_a_command_gets_the_message_and_no_variable_of_the_daemon(serve: Serve, tmp_path: Path) -> None:
    script = f"cat > {tmp_path}/message.tmp; env > {tmp_path}/env; mv {tmp_path}/message.tmp {tmp_path}/message"
    daemon = serve(
        env={"ANTHROPIC_API_KEY": "sk-secret-of-the-daemon", "DISPLAY": ":7"},
        raw=table(name="mine", command=["sh", "-c", script], on=["turn_failed"]),
    )
    session = daemon.new()
    session.ask(FAILS)
    until((tmp_path / "message").exists)
    message = json.loads((tmp_path / "message").read_text())
    assert (message["type"], message["id"]) == ("turn_failed", failed_id(session))
    env = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert env["DISPLAY"] == ":7" and "ANTHROPIC_API_KEY" not in env
    assert (env["CLISUP_NOTIFY"], env["CLISUP_NOTIFY_TYPE"]) == ("mine", "turn_failed")
    assert (env["CLISUP_NOTIFY_SESSION"], env["CLISUP_NOTIFY_TURN"]) == (session.id, "t1")
    assert env["CLISUP_NOTIFY_MESSAGE"] == message["message"] and env["CLISUP_SOCKET"] == daemon.socket
    assert not any(name in env for name in ("CLISUP_SESSION", "CLISUP_RUN"))


def test_a_command_that_fails_is_tried_again(serve: Serve, tmp_path: Path) -> None:
    script = f"echo x >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) -ge 2"
    daemon = serve(raw=table(name="mine", command=["sh", "-c", script], on=["turn_failed"]))
    daemon.new().ask(FAILS)
    until(lambda: row(daemon, "mine")["delivered"] == 1)
    assert row(daemon, "mine")["failed"] == 1


def test_a_reload_starts_replaces_and_ends_receivers(serve: Serve, server: WebhookServer) -> None:
    daemon = serve()
    session = daemon.new()
    session.ask(FAILS)
    daemon.configure(raw=hook(server))
    assert [change["key"] for change in daemon.call("daemon/reload")["changed"]] == ["notify"]
    session.ask(FAILS)
    until(lambda: row(daemon)["delivered"] == 1)
    assert told(server) == [("turn_failed", failed_id(session))], "a new receiver begins with the events from then on"
    daemon.configure(raw=hook(server, on=["turn_completed"]))
    daemon.call("daemon/reload")
    session.ask("Fine.")
    until(lambda: len(server.taken) == 2)
    assert told(server)[1] == ("turn_completed", failed_id(session))
    daemon.configure()
    daemon.call("daemon/reload")
    assert daemon.call("notify/list")["targets"] == [] and list((daemon.state / "cursors").iterdir()) == []
    session.ask(FAILS)
    assert len(server.taken) == 2


def test_a_deleted_session_leaves_no_cursor_behind(serve: Serve, server: WebhookServer) -> None:
    daemon = serve(raw=hook(server))
    session, again = daemon.new(), daemon.new()
    session.ask(FAILS)
    until(lambda: row(daemon)["delivered"] == 1)
    session.call("close")
    session.call("delete")
    again.ask(FAILS)
    until(lambda: row(daemon)["delivered"] == 2)
    assert session.id not in (daemon.state / "cursors" / "notify~hook.jsonl").read_text()


def test_a_test_message_tells_what_came_back(serve: Serve, server: WebhookServer) -> None:
    daemon = serve(raw=hook(server) + table(name="bad", command=["sh", "-c", "echo nobody home; exit 4"]))
    good, bad = daemon.call("notify/test")["results"]
    assert (good["ok"], good["detail"], good["output"]) == (True, "HTTP 200", "ok")
    assert (bad["ok"], bad["detail"], bad["output"]) == (False, "the command ended with exit code 4", "nobody home\n")
    (taken,) = server.taken
    assert taken.data["type"] == "test" and taken.headers["webhook-id"].startswith("test_")
    assert [result["name"] for result in daemon.call("notify/test", name="bad")["results"]] == ["bad"]
    with pytest.raises(ClisupError, match="'nope' not found \\(there: hook, bad\\)"):
        daemon.call("notify/test", name="nope")
