"""Opening, finding and listing sessions, and what a request may not bring."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, until
from wire import Hangup

from clisup.errors import ClisupError


def _refusal(daemon: Harness, **params: Any) -> ClisupError:
    with pytest.raises(ClisupError) as refused:
        daemon.new(**params)
    return refused.value


def test_the_same_id_and_params_give_the_same_session(daemon: Harness) -> None:
    wanted = str(uuid.uuid4())
    params = {"session_id": wanted, "labels": {"a": "b"}}
    assert daemon.new(**params).id == daemon.new(**params).id == wanted
    refused = _refusal(daemon, session_id=wanted, labels={"a": "c"})
    assert refused.kind == "session_exists" and refused.code == -32014


def test_two_that_ask_for_one_id_at_once_get_one_session(daemon: Harness) -> None:
    wanted = str(uuid.uuid4())
    with daemon.wire() as wire:
        params = {"backend": "demo", "cwd": str(daemon.cwd), "session_id": wanted}
        requests = [wire.post("session/new", **params) for _ in range(10)]
        assert {wire.answer(request)["session_id"] for request in requests} == {wanted}


def test_a_session_that_is_not_there_is_said_so(daemon: Harness) -> None:
    for method in ("get", "close", "events", "subscribe", "interrupt"):
        with pytest.raises(ClisupError) as refused:
            daemon.call(f"session/{method}", session_id=str(uuid.uuid4()))
        assert refused.value.kind == "session_not_found"


@pytest.mark.parametrize(
    "wanted", ["", "x", "../../etc", "A" * 36, "0" * 36, "00000000-0000-4000-8000-000000000000\n", 7, None]
)
def test_an_id_is_a_uuid(daemon: Harness, wanted: object) -> None:
    if wanted is None:
        assert daemon.new(session_id=None).id
    else:
        assert _refusal(daemon, session_id=wanted).kind == "invalid_params"


@pytest.mark.fault(41)
def test_a_directory_that_is_not_there_is_refused(daemon: Harness, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for cwd, reason in ((tmp_path / "missing", "directory not found"), (tmp_path / "file", "not a directory")):
        refused = _refusal(daemon, cwd=str(cwd))
        assert refused.kind == "invalid_params" and str(cwd) in refused.message and reason in refused.message
    assert _refusal(daemon, cwd="relative").kind == "invalid_params"


@pytest.mark.fault(41)
def test_a_directory_that_went_away_fails_the_turn(daemon: Harness, tmp_path: Path) -> None:
    (tmp_path / "cwd").mkdir()
    session = daemon.new(cwd=str(tmp_path / "cwd"))
    (tmp_path / "cwd").rmdir()
    error = session.ask("hello")["error"]
    assert error["kind"] == "spawn_failed" and "make it again" in error["message"]


@pytest.mark.fault(77)
def test_a_request_may_set_only_what_the_configuration_lists(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo={"request_env": ["TICKET"]})
    for name in ("LD_PRELOAD", "ANTHROPIC_API_KEY", "ANYTHING", "NODE_OPTIONS"):
        refused = _refusal(daemon, env={name: "value-not-to-be-shown"})
        assert refused.kind == "permission_denied" and name in refused.message
        assert "value-not-to-be-shown" not in str(refused.to_wire())
    session = daemon.new(env={"TICKET": "ticket-value-1234"})
    assert "TICKET: present" in session.ask("@env TICKET")["text"]
    assert "ticket-value-1234" not in (session.dir / "session.json").read_text()
    private = session.dir / "private" / "secrets.json"
    assert private.stat().st_mode & 0o777 == 0o600
    session.call("close")
    assert not private.exists()


def test_an_unknown_backend_is_said_so(daemon: Harness) -> None:
    refused = _refusal(daemon, backend="nothing")
    assert refused.kind == "backend_not_found" and "demo" in refused.hint


@pytest.mark.fault(8)
def test_a_cli_that_cannot_be_used_is_named_with_its_path(serve: Callable[..., Harness], tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no program")
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho '0.9.0 (clisup demo)'\n")
    old.chmod(0o755)
    table = '[backends.{}]\nkind = "demo"\ncommand = ["{}"]\n'
    raw = "".join(table.format(name, tmp_path / name) for name in ("missing", "data", "old"))
    daemon = serve(raw=raw)
    for name in ("missing", "data"):
        refused = _refusal(daemon, backend=name)
        assert refused.kind == "backend_unavailable" and str(tmp_path / name) in str(refused)
    refused = _refusal(daemon, backend="old")
    assert refused.kind == "backend_version_unsupported"
    assert refused.data["installed"] == "0.9.0" and refused.data["supported"]
    rows = {row["name"]: row for row in daemon.call("backend/list")}
    assert rows["demo"]["supported"] and not rows["old"]["supported"] and rows["missing"]["unavailable_reason"]


@pytest.mark.fault(8)
def test_a_cli_that_went_away_fails_the_turn(serve: Callable[..., Harness], tmp_path: Path) -> None:
    cli = tmp_path / "cli"
    cli.write_text("#!/bin/sh\necho '1.0.0 (clisup demo)'\n")
    cli.chmod(0o755)
    session = serve(demo={"command": [str(cli)]}).new()
    cli.unlink()
    error = session.ask("hello")["error"]
    assert error["kind"] == "spawn_failed" and str(cli) in error["message"]


def test_a_cli_that_is_slow_to_tell_its_version_holds_up_nobody_else(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\nwhile [ ! -e {tmp_path}/go ]; do sleep 0.05; done\necho '1.0.0 (clisup demo)'\n")
    slow.chmod(0o755)
    daemon = serve(raw=f'[backends.slow]\nkind = "demo"\ncommand = ["{slow}"]\n')
    with daemon.wire() as wire:
        waiting = wire.post("session/new", backend="slow", cwd=str(tmp_path))
        assert daemon.new().ask("hello")["outcome"] == "completed"
        (tmp_path / "go").touch()
        assert wire.answer(waiting)["session_id"]


@pytest.mark.fault(62)
def test_a_native_session_has_one_writer(daemon: Harness) -> None:
    first = daemon.new()
    first.ask("hello")
    native = first.get()["native_session_id"]
    assert _refusal(daemon, resume_native_id=native).kind == "session_busy"
    other = str(uuid.uuid4())
    daemon.new(resume_native_id=other)
    assert _refusal(daemon, session_id=other).kind == "session_busy"
    assert _refusal(daemon, resume_native_id=other, labels={"x": "y"}).kind == "session_busy"
    first.call("close")
    assert "hello" in daemon.new(resume_native_id=native).ask("@recall")["text"]


def test_lists_go_by_page_label_and_state(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    ids = [daemon.new(labels={"n": str(n % 2)}).id for n in range(7)]
    seen: list[str] = []
    page: dict[str, Any] = {"next_cursor": None}
    while True:
        cursor = {"cursor": page["next_cursor"]} if page["next_cursor"] else {}
        page = daemon.call("session/list", limit=3, **cursor)
        seen += [row["session_id"] for row in page["sessions"]]
        if page["next_cursor"] is None:
            break
    assert seen == ids[::-1]
    odd = daemon.call("session/list", labels={"n": "1"})["sessions"]
    assert [row["session_id"] for row in odd] == ids[1::2][::-1]
    daemon.call("session/close", session_id=ids[0])
    assert len(daemon.call("session/list")["sessions"]) == 6
    assert [row["session_id"] for row in daemon.call("session/list", state="closed")["sessions"]] == [ids[0]]


def test_get_tells_phase_timers_and_last_events(daemon: Harness, tmp_path: Path) -> None:
    session = daemon.new(timeouts={"tool_idle": 123, "turn": 456})
    session.prompt(f"@bash while [ ! -e {tmp_path}/go ]; do sleep 0.05; done")
    session.await_event("tool_use")
    row = session.get()
    assert (row["state"], row["phase"], row["turn_id"]) == ("running", "tool", "t1")
    assert {timer["phase"]: timer["limit_s"] for timer in row["timers"]} == {"tool": 123, "turn": 456}
    assert row["next_timer"]["phase"] == "tool" and 0 < row["next_timer"]["fires_in_s"] <= 123
    assert row["last_events"][-1]["seq"] == row["next_seq"] - 1 and row["pid"] in session.processes()
    (tmp_path / "go").touch()
    session.end_of("t1")


def test_the_last_events_say_what_the_messages_said_long_texts_cut(daemon: Harness) -> None:
    session = daemon.new()
    session.ask("a" * 300)
    (message,) = [event for event in session.get()["last_events"] if event["type"] == "message"]
    assert message["blocks"] == [{"kind": "text", "text": f"You said: {'a' * 190}"}]


def test_get_is_of_one_moment_while_events_come(daemon: Harness) -> None:
    session = daemon.new()
    session.prompt("@stream 400 20 0.002")
    session.await_event("content_delta")
    looks = []
    while (row := session.get())["state"] == "running":
        looks.append((row["last_events"][-1]["seq"], row["next_seq"] - 1))
    session.end_of("t1")
    assert looks and all(last == newest for last, newest in looks)


@pytest.mark.fault(18)
def test_a_cli_that_crashes_again_and_again_makes_a_failed_session(daemon: Harness) -> None:
    session = daemon.new()
    for _ in range(5):
        session.ask("@exit 3")
    until(lambda: session.get()["state"] == "failed")
    assert session.ask("well again")["outcome"] == "completed"
    until(lambda: session.get()["state"] == "idle")


@pytest.mark.fault(2)
@pytest.mark.parametrize("point", ["file.write=kill@{}", "file.rename=kill@{}", "file.after=kill@{}"])
@pytest.mark.parametrize("number", [2, 3])
def test_a_kill_while_a_session_is_made_leaves_it_whole_or_not_at_all(
    serve: Callable[..., Harness], point: str, number: int
) -> None:
    daemon = serve(env={"CLISUP_FAILPOINTS": point.format(number)})
    wanted = {"session_id": "0d9c1c1e-0000-4000-8000-000000000000", "backend": "demo", "cwd": str(daemon.cwd)}
    with daemon.wire() as wire, pytest.raises(Hangup):
        wire.call("session/new", **wanted, system_prompt="Be brief.")
    assert daemon.process is not None and daemon.process.wait(40) == -signal.SIGKILL
    del daemon.env["CLISUP_FAILPOINTS"]
    daemon._hang_up()
    daemon.start()
    assert not daemon.call("daemon/status")["damaged_sessions"]
    assert daemon.call("session/new", **wanted, system_prompt="Be brief.")["session_id"] == wanted["session_id"]
