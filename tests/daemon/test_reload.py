"""`daemon/reload` and SIGHUP: the configuration is read anew, all of it or nothing, while turns run."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, until
from wire import Wire

from clisup.errors import ClisupError
from clisup.host.config_file import ConfigFile
from tests.fakecli import COMMAND

SECRET = "canary-7f3a-9b1d"


def reload(daemon: Harness, /, **tables: Any) -> list[tuple[str, str, str]]:
    """Write the configuration anew and have it read; what has changed."""
    daemon.configure(**tables)
    answer = daemon.call("daemon/reload")
    assert answer["file"] == str(daemon.config)
    return [(change["key"], change["what"], change["effect"]) for change in answer["changed"]]


def refusal(daemon: Harness, /, **tables: Any) -> ClisupError:
    with pytest.raises(ClisupError) as refused:
        reload(daemon, **tables)
    return refused.value


def log_of(daemon: Harness, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in daemon.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


def pids(session: Any) -> list[int]:
    return [event["pid"] for event in session.events("process_started")]


def another_demo() -> str:
    return f'[backends.other]\nkind = "demo"\ncommand = {json.dumps(COMMAND)}\n'


# -- each class of key


def test_what_has_not_changed_is_no_change(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    assert daemon.call("daemon/reload")["changed"] == []


def test_a_timeout_holds_for_the_next_turn_and_not_for_the_one_that_runs(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt(f"@wait-file {tmp_path}/go\ndone")
    session.cli()
    before = session.get()["watch"]["timers"]
    assert reload(daemon, timeouts={"model_idle": 0.5}) == [
        ("backends.demo.timeouts.model_idle", "changed", "next_turn")
    ]
    assert [timer["limit_s"] for timer in session.get()["watch"]["timers"]] == [timer["limit_s"] for timer in before]
    (tmp_path / "go").touch()
    assert session.end_of("t1")["outcome"] == "completed"
    end = session.ask("then nothing\n@stall")
    assert (end["outcome"], end["error"]["kind"]) == ("timed_out", "idle_timeout")


def test_a_higher_cap_lets_a_waiting_turn_start_at_once(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve(daemon={"max_running": 1})
    first, second = daemon.new(), daemon.new()
    first.prompt(f"@wait-file {tmp_path}/go")
    first.cli()
    second.prompt(f"@wait-file {tmp_path}/go")
    until(lambda: daemon.call("daemon/status")["daemon"]["waiting"] == 1)
    assert reload(daemon, daemon={"max_running": 2}) == [("daemon.max_running", "changed", "at_once")]
    second.cli()
    status = daemon.call("daemon/status")["daemon"]
    assert (status["running"], status["max_running"], status["waiting"]) == (2, 2, 0)
    (tmp_path / "go").touch()
    assert {first.end_of("t1")["outcome"], second.end_of("t1")["outcome"]} == {"completed"}


def test_a_lower_cap_ends_no_turn_and_holds_for_the_next(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve(daemon={"max_running": 2})
    sessions = [daemon.new() for _ in range(3)]
    for session in sessions[:2]:
        session.prompt(f"@wait-file {tmp_path}/{session.id}")
        session.cli()
    reload(daemon, daemon={"max_running": 1})
    sessions[2].prompt("waits")
    (tmp_path / sessions[0].id).touch()
    sessions[0].end_of("t1")
    until(lambda: daemon.call("daemon/status")["daemon"]["running"] == 1)
    assert daemon.call("daemon/status")["daemon"]["waiting"] == 1
    (tmp_path / sessions[1].id).touch()
    sessions[2].end_of("t1")


def test_a_backend_that_is_added_can_be_used_and_one_that_is_removed_can_not(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    assert reload(daemon, raw=another_demo()) == [("backends.other", "added", "at_once")]
    session = daemon.new(backend="other")
    assert session.ask("hello")["outcome"] == "completed"
    assert "other" in daemon.call("initialize")["backends"]
    session.call("close")
    assert reload(daemon) == [("backends.other", "removed", "at_once")]
    with pytest.raises(ClisupError, match="not configured"):
        daemon.new(backend="other")
    assert session.get()["backend"] == "other"  # a closed session's record stays


@pytest.mark.parametrize("change", ["removed", "another kind"])
def test_a_backend_with_open_sessions_stays(serve: Callable[..., Harness], change: str) -> None:
    daemon = serve(raw=another_demo())
    session = daemon.new(backend="other")
    raw = "" if change == "removed" else another_demo().replace('"demo"', '"claude"')
    error = refusal(daemon, raw=raw, daemon={"max_queue": 1})
    assert (error.kind, error.data["key"], error.data["sessions"]) == ("session_busy", "backends.other", [session.id])
    assert f"and 1 open session uses it: {session.id}; nothing has changed" in error.message
    assert session.ask("goes on")["outcome"] == "completed"
    session.call("close")
    assert daemon.call("daemon/reload")["changed"]


def test_a_refused_reload_names_the_first_of_many_sessions(serve: Callable[..., Harness]) -> None:
    daemon = serve(raw=another_demo())
    ids = [daemon.new(backend="other").id for _ in range(4)]
    said = refusal(daemon, raw="", daemon={"max_queue": 1}).message
    assert "and 4 open sessions use it: " in said and said.endswith(", ...; nothing has changed")
    assert sum(id_ in said for id_ in ids) == 3


def test_the_log_level_changes_for_loggers_in_use(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    sessions = [daemon.new() for _ in range(3)]
    for session, level in zip(sessions, ("info", "error", "info"), strict=True):
        reload(daemon, daemon={"log_level": level})
        session.ask("hello")
    until(lambda: len(log_of(daemon, "turn ended")) == 2)
    assert [line["session"] for line in log_of(daemon, "turn ended")] == [sessions[0].id, sessions[2].id]


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({"demo": {"env": {"ADDED": "by the reload"}}}, "the environment"),
        ({"demo": {"env": {"MY_API_KEY": SECRET}}}, "a credential"),
        ({"limits": {"line_bytes": 1_000_000}}, "its limits"),
    ],
)
def test_a_live_process_is_renewed_at_the_next_prompt_where_it_has_to_be(
    serve: Callable[..., Harness], table: dict[str, Any], word: str
) -> None:
    daemon = serve(demo={"mode": "live"})
    session = daemon.new()
    session.ask("hello")
    reload(daemon, **{**table, "demo": {"mode": "live", **table.get("demo", {})}})
    assert not session.events("process_exited")  # it rests as it is
    assert session.ask("@env ADDED\n@count")["outcome"] == "completed"
    assert len(pids(session)) == 2
    (notice,) = session.events("notice", code="process_restarted")
    assert word in notice["message"] and SECRET not in notice["message"]
    if word == "the environment":
        assert "ADDED: present" in "".join(e["text"] for e in session.events("content_delta"))


def test_a_live_process_keeps_going_with_other_timeouts(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo={"mode": "live"})
    session = daemon.new()
    session.ask("hello")
    reload(daemon, demo={"mode": "live"}, timeouts={"model_idle": 0.5})
    assert session.ask("then nothing\n@stall")["error"]["kind"] == "idle_timeout"
    assert len(pids(session)) == 1


def test_a_resting_process_is_let_go_by_its_new_limit(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo={"mode": "live"})
    session = daemon.new()
    session.ask("hello")
    assert session.get()["next_timer"]["limit_s"] == 600
    reload(daemon, demo={"mode": "live"}, live={"idle_s": 0.1})
    assert session.await_event("process_exited")["exit_code"] == 0
    assert session.ask("again")["outcome"] == "completed"


def test_a_session_with_another_credential_waits_no_longer_for_the_account_of_before(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve()
    assert daemon.new().ask("@limit 3600")["error"]["kind"] == "quota_exceeded"
    session = daemon.new()
    session.prompt("hello")
    until(lambda: session.get()["held"])
    reload(daemon, demo={"env": {"MY_API_KEY": SECRET}})
    assert session.end_of("t1")["outcome"] == "completed"
    accounts = daemon.call("daemon/status")["accounts"]
    assert not [row for row in accounts if row["account"] == "demo" or row["waiting"]]  # no session uses that one now


def test_turns_that_wait_for_an_account_go_on_where_none_is_to_wait(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    assert daemon.new().ask("@limit 3600")["error"]["kind"] == "quota_exceeded"
    session = daemon.new()
    session.prompt("hello")
    until(lambda: session.get()["held"])
    reload(daemon, daemon={"limit_hold_s": 0})
    assert session.end_of("t1")["outcome"] == "completed"


def test_fewer_live_processes_are_kept(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo={"mode": "live"})
    sessions = [daemon.new() for _ in range(2)]
    for session in sessions:
        session.ask("hello")
    reload(daemon, demo={"mode": "live"}, daemon={"max_live": 1})
    assert sessions[0].await_event("process_exited")["exit_code"] == 0
    assert not sessions[1].events("process_exited")


def test_a_session_whose_mode_becomes_one_shot_gets_a_process_for_each_turn(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo={"mode": "live"})
    session = daemon.new()
    session.ask("hello")
    reload(daemon, demo={"mode": "one-shot"})
    assert [session.ask("@count")["text"] for _ in range(2)] == ["turn 2", "turn 3"]
    assert len(set(pids(session))) == 3 and len(session.events("process_exited")) == 3


def test_the_scrub_lists_are_read_anew(serve: Callable[..., Harness], tmp_path: Path) -> None:
    lists = Path(__file__).resolve().parents[2] / "scrub_lists"
    shutil.copytree(lists, tmp_path / "lists")
    daemon = serve(env={"RELOAD_FACT": "x"}, daemon={"scrub_lists": str(tmp_path / "lists")})
    session = daemon.new()
    assert session.ask("@env RELOAD_FACT")["text"] == "RELOAD_FACT: absent"
    with (tmp_path / "lists" / "common.allow").open("a") as file:
        file.write("RELOAD_FACT | it is asked for | this test\n")
    assert [c["key"] for c in daemon.call("daemon/reload")["changed"]] == ["daemon.scrub_lists"]
    assert session.ask("@env RELOAD_FACT")["text"] == "RELOAD_FACT: present"
    assert daemon.call("daemon/reload")["changed"] == []


def test_a_file_with_another_value_is_a_change(serve: Callable[..., Harness], tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(SECRET)
    key.chmod(0o600)
    demo = {"mode": "live", "env_files": {"MY_API_KEY": str(key)}}
    daemon = serve(demo=demo)
    session = daemon.new()
    session.ask("hello")
    assert reload(daemon, demo=demo) == []
    key.write_text("another-canary-1")
    assert reload(daemon, demo=demo) == [("backends.demo.env.MY_API_KEY", "changed", "next_turn")]
    session.ask("hello")
    assert len(pids(session)) == 2
    key.unlink()
    assert refusal(daemon, demo=demo).kind == "configuration"


def test_pass_env_holds_for_the_next_turn(serve: Callable[..., Harness]) -> None:
    daemon = serve(env={"RELOAD_FACT": "x"})
    session = daemon.new()
    assert session.ask("@env RELOAD_FACT")["text"] == "RELOAD_FACT: absent"
    reload(daemon, demo={"pass_env": ["RELOAD_FACT"]})
    assert session.ask("@env RELOAD_FACT")["text"] == "RELOAD_FACT: present"


def test_a_secret_of_before_stays_a_secret(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo={"mode": "live", "env": {"MY_API_KEY": SECRET}})
    session = daemon.new()
    session.ask("hello")
    reload(daemon, demo={"mode": "live", "env": {"MY_API_KEY": "another-canary-1"}})
    session.ask(f"@stderr {SECRET} another-canary-1")
    session.await_event("stderr")
    (line,) = session.events("stderr")
    assert "canary" not in line["text"]


def test_limits_of_requests_hold_at_once_and_those_of_frames_for_new_connections(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    with daemon.wire() as old:
        assert old.call("initialize")["limits"]["max_frame_bytes"] == 16 * 1024 * 1024
        reload(daemon, daemon={"max_frame_bytes": 4096, "max_queue": 1, "max_connections": 2})
        assert old.call("session/list", labels={"x": "y" * 200})["sessions"] == []
        session = daemon.new()
        assert (
            old.call("session/prompt", session_id=session.id, prompt="x" * 10_000, wait=True)["outcome"] == "completed"
        )
        assert old.call("initialize")["limits"]["max_frame_bytes"] == 4096
        with daemon.wire() as third:
            assert b"too many connections: 2 is the limit" in third.line()


def test_retention_looks_at_once(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new()
    session.ask("hello")
    session.call("close")
    os.utime(next((session.dir / "journal").iterdir()), (1, 1))
    reload(daemon, daemon={}, raw="[daemon.retention]\ndays = 1\n")
    until(lambda: not session.dir.exists())


# -- what cannot change


def test_the_socket_and_the_state_directory_stay_and_are_told_each_time(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve()
    wanted = {"socket": str(tmp_path / "s"), "state_dir": str(tmp_path / "state"), "max_queue": 1}
    stays = [("daemon.socket", "changed", "start"), ("daemon.state_dir", "changed", "start")]
    assert reload(daemon, daemon=wanted) == [*stays, ("daemon.max_queue", "changed", "at_once")]
    assert reload(daemon, daemon=wanted) == stays
    assert daemon.call("daemon/status")["daemon"]["socket"] == daemon.socket
    until(lambda: len(log_of(daemon, "configuration reloaded")) == 2)
    last = log_of(daemon, "configuration reloaded")[-1]
    assert (last["changed"], last["needs_stop_and_start"]) == ([], ["daemon.socket", "daemon.state_dir"])
    assert not (tmp_path / "s").exists() and not (tmp_path / "state").exists()


def test_a_hangup_that_changes_what_a_cli_may_do_is_a_warning_in_the_log(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    reload(daemon, daemon={"max_queue": 1})
    rule = '[backends.demo.env]\nA = "1"\n[[backends.demo.approvals.rules]]\ntool = "*"\ndecision = "allow"\n'
    daemon.configure(daemon={"max_queue": 2}, raw=rule)
    daemon.signal(signal.SIGHUP)
    until(lambda: log_of(daemon, "trust changed"))
    (warned,) = log_of(daemon, "trust changed")
    assert (warned["level"], warned["changed"]) == ("warning", ["backends.demo.env.A", "backends.demo.approvals.rules"])


def test_a_dry_run_tells_and_changes_nothing(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"max_running": 1})
    daemon.configure(daemon={"max_running": 2})
    for _ in range(2):
        (change,) = daemon.call("daemon/reload", dry_run=True)["changed"]
        assert change == {"key": "daemon.max_running", "what": "changed", "effect": "at_once"}
    assert daemon.call("daemon/status")["daemon"]["max_running"] == 1


# -- what cannot be used


@pytest.mark.parametrize(
    ("raw", "fields"),
    [
        ("[backends.other]\nkind = 'demo'\ncomand = ['x']", {"key": "backends.other.comand", "nearest": "command"}),
        ("[backends.other]\nkind = 'demo'\nmode = 'sometimes'", {"key": "backends.other.mode"}),
    ],
)
def test_a_wrong_key_changes_nothing_and_is_named_with_its_line(
    serve: Callable[..., Harness], raw: str, fields: dict[str, Any]
) -> None:
    daemon = serve(daemon={"max_running": 1})
    error = refusal(daemon, daemon={"max_running": 2}, raw=raw)
    (problem,) = error.data["problems"]
    line = daemon.config.read_text().splitlines().index(raw.splitlines()[-1]) + 1
    assert error.kind == "configuration" and error.exit_code == 78 and error.hint
    assert {name: problem.get(name) for name in fields} == fields and problem["line"] == line
    assert f"(line {line})" in error.message
    assert daemon.call("daemon/status")["daemon"]["max_running"] == 1


@pytest.mark.parametrize(
    "raw",
    [
        "this is no TOML",
        "[backends.other]\nkind = 'no such kind'",
        "[backends.other]\nkind = 'demo'\nenv = { LD_PRELOAD = 'x' }",
        "[backends.other]\nkind = 'acp'",
    ],
)
def test_a_configuration_that_no_daemon_would_start_with_changes_nothing(
    serve: Callable[..., Harness], raw: str
) -> None:
    daemon = serve(daemon={"max_running": 1})
    assert refusal(daemon, daemon={"max_running": 2}, raw=raw).kind == "configuration"
    assert daemon.call("daemon/status")["daemon"]["max_running"] == 1
    assert daemon.new().ask("hello")["outcome"] == "completed"


def test_a_file_that_is_gone_changes_nothing(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    daemon.config.unlink()
    with pytest.raises(ClisupError, match="no such file"):
        daemon.call("daemon/reload")


# -- at the same time as other things


def test_sighup_does_the_same_and_the_log_says_what(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"max_running": 1})
    daemon.configure(daemon={"max_running": 3})
    daemon.signal(signal.SIGHUP)
    until(lambda: daemon.call("daemon/status")["daemon"]["max_running"] == 3)
    until(lambda: log_of(daemon, "configuration reloaded"))
    assert log_of(daemon, "configuration reloaded")[-1]["changed"] == ["daemon.max_running"]
    daemon.configure(daemon={"max_runing": 3})
    daemon.signal(signal.SIGHUP)
    until(lambda: log_of(daemon, "configuration not reloaded"))
    (line,) = log_of(daemon, "configuration not reloaded")
    assert "the nearest known key is 'max_running'" in line["error"] and line["level"] == "error"
    assert daemon.call("daemon/status")["daemon"]["max_running"] == 3


def test_reloads_at_the_same_time_come_one_after_the_other(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"max_queue": 1})
    daemon.configure(daemon={"max_queue": 2})
    wires = [Wire(daemon.socket) for _ in range(8)]
    asked = [wire.post("daemon/reload") for wire in wires]
    daemon.signal(signal.SIGHUP)
    told = [wire.answer(id_)["changed"] for wire, id_ in zip(wires, asked, strict=True)]
    until(lambda: len(log_of(daemon, "configuration reloaded")) == 9)
    seen = [line["changed"] for line in log_of(daemon, "configuration reloaded")]
    assert seen == [["daemon.max_queue"], *([[]] * 8)]
    assert sum(map(len, told)) <= 1
    for wire in wires:
        wire.close()


def test_a_reload_while_the_daemon_drains_is_refused(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt(f"@wait-file {tmp_path}/go")
    session.cli()
    with daemon.wire() as wire:
        daemon.call("daemon/shutdown", mode="drain")
        daemon.configure(daemon={"max_queue": 1})
        with pytest.raises(ClisupError) as refused:
            wire.call("daemon/reload")
    assert refused.value.kind == "shutting_down"
    daemon._hang_up()
    (tmp_path / "go").touch()
    assert daemon.process is not None and daemon.process.wait(60) == 0


@pytest.mark.parametrize("mode", ["one-shot", "live"])
def test_turns_that_run_while_everything_changes_lose_nothing(
    serve: Callable[..., Harness], tmp_path: Path, mode: str
) -> None:
    daemon = serve()
    sessions = [daemon.new(mode=mode) for _ in range(3)]
    for session in sessions:
        session.prompt("@stream 300 40 0.002\nend")
        session.prompt("@count")
        session.cli()
    for n in range(10):
        assert reload(
            daemon,
            daemon={"max_running": 10 + n, "segment_bytes": 65536 + n, "fsync": ("none", "turn")[n % 2]},
            timeouts={"model_idle": 30 + n},
            limits={"inline_bytes": 2048 + n},
            demo={"env": {f"N{n}": "x"}},
        )
    for session in sessions:
        assert session.end_of("t1")["text"].endswith("\nend")
        assert session.end_of("t2")["text"] == "turn 2"
        assert session.chunks() == list(range(300))
        assert all(e["exit_code"] == 0 for e in session.events("process_exited"))
    daemon.restart()
    assert all(session.ask("@count")["text"] == "turn 3" for session in sessions)


def test_a_daemon_that_restarts_in_place_has_what_was_reloaded(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"max_running": 1})
    reload(daemon, daemon={"max_running": 4})
    before = daemon.identity()["instance_id"]
    daemon.call("daemon/restart")
    daemon.await_successor(before)
    assert daemon.call("daemon/status")["daemon"]["max_running"] == 4


def test_doctor_says_when_the_configuration_was_read(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    first = [f for f in daemon.call("backend/check", name="demo") if "as the daemon read it" in f["detail"]]
    daemon.call("daemon/reload")
    second = [f for f in daemon.call("backend/check", name="demo") if "as the daemon read it" in f["detail"]]
    assert len(first) == len(second) == 1 and first != second


@pytest.mark.parametrize("what", ["fifo", "directory", "huge"])
def test_what_is_no_configuration_file_is_refused_at_once_and_bounded(serve: Callable[..., Harness], what: str) -> None:
    """A FIFO without a writer would hold a thread for ever; a file of a terabyte, all memory."""
    daemon = serve()
    text = daemon.config.read_text()
    daemon.config.unlink()
    if what == "fifo":
        os.mkfifo(daemon.config)
    elif what == "directory":
        daemon.config.mkdir()
    else:
        daemon.config.touch()
        os.truncate(daemon.config, 1 << 40)
    with pytest.raises(ClisupError) as refused:
        daemon.call("daemon/reload")
    assert refused.value.kind == "configuration" and str(daemon.config) in refused.value.message
    assert daemon.new().ask("hello")["outcome"] == "completed"
    daemon.config.rmdir() if what == "directory" else daemon.config.unlink()
    daemon.config.write_text(text)
    assert daemon.call("daemon/reload")["changed"] == []


def test_no_configuration_at_all_may_be_said_by_the_null_device(tmp_path: Path) -> None:
    assert ConfigFile("/dev/null", required=True).read() == ConfigFile(str(tmp_path / "none"), required=False).read()


def test_a_flood_of_hangups_is_one_reload_after_the_other_and_the_last_word_counts(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve(daemon={"max_running": 1})
    for n in range(500):
        daemon.signal(signal.SIGHUP)
        if n % 50 == 0:
            daemon.call("ping")
    daemon.configure(daemon={"max_running": 7})
    daemon.signal(signal.SIGHUP)
    until(lambda: daemon.call("daemon/status")["daemon"]["max_running"] == 7)
    assert len(log_of(daemon, "configuration reloaded")) < 500


def test_a_list_of_backends_that_is_being_made_survives_a_reload(serve: Callable[..., Harness], tmp_path: Path) -> None:
    """A CLI is asked for its version meanwhile, and may take its time."""
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\nsleep 1\necho 'demo 1.0.0'\n")
    slow.chmod(0o700)
    raw = f'[backends.slow]\nkind = "demo"\ncommand = ["{slow}"]\n'
    daemon = serve(raw=raw)
    with daemon.wire() as wire:
        first = wire.post("daemon/status")
        second = wire.post("backend/list")
        until(lambda: (tmp_path / "asked").exists())
        reload(daemon, raw=raw + another_demo())
        rows = [wire.answer(first)["backends"], wire.answer(second)]
    assert all("slow" in [row["name"] for row in each] for each in rows)


# -- what is said of it


def configuration_check(daemon: Harness) -> dict[str, Any]:
    return next(found for found in daemon.call("backend/check") if found["check"] == "configuration")


def test_the_doctor_says_what_a_reload_would_find(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    found = configuration_check(daemon)
    assert found["status"] == "ok" and "says otherwise" not in found["detail"]
    daemon.configure(daemon={"max_running": 7})
    found = configuration_check(daemon)
    assert found["status"] == "ok" and "by now it says otherwise of daemon.max_running" in found["detail"]
    daemon.configure(daemon={"max_runing": 1})
    found = configuration_check(daemon)
    assert found["status"] == "fail" and "cannot be taken up as it is now" in found["detail"]
    assert "max_runing" in found["detail"] and found["fix"]


def test_sessions_of_a_backend_that_was_missing_are_there_again_once_it_is_back(serve: Callable[..., Harness]) -> None:
    daemon = serve(raw=another_demo())
    session, closed = daemon.new(backend="other"), daemon.new(backend="other")
    for each in (session, closed):
        each.ask("hello")
    closed.call("close")
    daemon.stop()
    daemon.configure()
    daemon.start()
    with pytest.raises(ClisupError) as refused:
        session.get()
    assert refused.value.kind == "session_not_found" and "'other'" in refused.value.message
    assert "clisup daemon reload" in refused.value.hint
    assert daemon.call("daemon/status")["damaged_sessions"].keys() == {session.id, closed.id}
    reload(daemon, daemon={"max_running": 7})
    assert daemon.call("daemon/status")["damaged_sessions"].keys() == {session.id, closed.id}
    reload(daemon, raw=another_demo())
    until(lambda: not daemon.call("daemon/status")["damaged_sessions"])
    assert session.ask("again")["outcome"] == "completed" and closed.get()["state"] == "closed"
