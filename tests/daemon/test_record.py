"""A turn of a real daemon becomes a recording, its secrets stay at home, and the recording tells the same when it is played."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness
from session_probe import SessionProbe

from clisup.config.model import BackendConfig, Config
from clisup.daemon.backends import Backends

IN_TABLE, INHERITED, BROUGHT = "canary-table-000001", "canary-inherited-2", "canary-brought-0003"
TABLES: dict[str, Any] = {
    "demo": {"env": {"MY_SECRET": IN_TABLE}, "pass_env": ["ANTHROPIC_API_KEY"], "request_env": ["BROUGHT_TOKEN"]},
    "env": {"ANTHROPIC_API_KEY": INHERITED},
}
LOCAL = ("session_id", "seq", "ts", "turn_id", "source", "native_session_id", "blob")


def clisup(daemon: Harness, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    variables = {**daemon.env, "CLISUP_SOCKET": daemon.socket, "CLISUP_CONFIG": str(daemon.config), **env}
    argv = [sys.executable, "-m", "clisup", *args]
    return subprocess.run(argv, env=variables, cwd=daemon.cwd, capture_output=True, text=True, timeout=40)


def record(daemon: Harness, session: SessionProbe, *args: str) -> Path:
    done = clisup(daemon, "record", session.id[:8], *args, "--force", "-o", "rec.jsonl")
    assert done.returncode == 0, done.stderr
    return daemon.cwd / "rec.jsonl"


def bare(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events of the CLI alone, without what differs from session to session."""
    return [
        {key: value for key, value in event.items() if key not in LOCAL}
        for event in events
        if event.get("source", "backend") == "backend" and event["type"] not in ("turn_completed", "stderr")
    ]


def events_of(recording: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in recording.with_suffix(".events.jsonl").read_text().splitlines()]


def everything(recording: Path) -> str:
    return "".join(path.read_text() for path in sorted(recording.parent.glob("rec.*")))


def test_no_secret_leaves_with_a_recording_and_all_else_stays(serve: Callable[..., Harness]) -> None:
    daemon = serve(**TABLES)
    session = daemon.new(env={"BROUGHT_TOKEN": BROUGHT})
    secrets = f"{IN_TABLE} {INHERITED} {BROUGHT} sk-ant-{'x' * 20}"
    session.ask(
        f"@text Look: {secrets} in {daemon.root}/home/notes\n@bash echo $MY_SECRET $BROUGHT_TOKEN\n@stderr {IN_TABLE}"
    )
    recording = record(daemon, session)
    text = everything(recording)
    for secret in (IN_TABLE, INHERITED, BROUGHT, "sk-ant-", str(daemon.root / "home"), str(daemon.state)):
        assert secret not in text
    assert "Look: [redacted] [redacted] [redacted] [redacted] in /home/user/notes" in text
    meta = json.loads(recording.with_suffix(".meta.json").read_text())
    assert {"MY_SECRET", "BROUGHT_TOKEN", "ANTHROPIC_API_KEY"} <= set(meta["environment"])
    assert (meta["outcome"], meta["exit_code"], meta["signal"], meta["stderr"]) == (
        "completed",
        0,
        None,
        "[redacted]\n",
    )
    live, kept = bare(session.events()), bare(events_of(recording))
    assert [event["type"] for event in kept] == [event["type"] for event in live]


def test_control_characters_of_a_file_name_reach_no_terminal(daemon: Harness) -> None:
    session, name = daemon.new(), "x\x1b]0;owned\x07\x9b31m\u202e.jsonl"
    session.ask("Hi.")
    done = clisup(daemon, "record", session.id[:8], "-o", name)
    assert done.returncode == 0 and (daemon.cwd / name).exists(), done.stderr
    again = clisup(daemon, "record", session.id[:8], "-o", name)
    checked = clisup(daemon, "replay", "--check", name)
    for shown in (done, again, checked):
        assert not set(shown.stdout + shown.stderr) & {"\x1b", "\x07", "\x9b", "\u202e"}, shown


def test_the_first_and_the_last_words_on_stderr_are_kept(daemon: Harness) -> None:
    session = daemon.new()
    session.ask("@stderr the first words\n@stderr-flood 20000\n@stderr the last words")
    words = json.loads(record(daemon, session).with_suffix(".meta.json").read_text())["stderr"]
    assert words.startswith("the first words\n") and words.endswith("the last words\n") and "bytes left out" in words


def test_neither_a_sessions_bridge_nor_its_mcp_servers_lose_their_secrets_to_a_recording(daemon: Harness) -> None:
    servers = {"mcpServers": {"notes": {"command": "/bin/true", "env": {"NOTES_KEY": BROUGHT}}}}
    session = daemon.new(tools=[{"name": "add", "input_schema": {"type": "object"}}], mcp_config=servers)
    token = json.loads((session.dir / "private" / "tools.json").read_text())["token"]
    session.ask(f"@text Look: {token} {BROUGHT}")
    text = everything(record(daemon, session))
    assert token not in text and BROUGHT not in text
    assert "Look: [redacted] [redacted]" in text


def test_a_recording_is_the_output_byte_for_byte_where_nothing_is_secret(daemon: Harness) -> None:
    session = daemon.new()
    session.ask('Hello.\n@unknown\n@tool Read {"file": "a"}\nBye.\n@stream 5 20')
    recording = record(daemon, session)
    assert recording.read_bytes() == (session.dir / "runs" / "1" / "out.spool").read_bytes()
    assert bare(events_of(recording)) == bare(session.events())
    done = clisup(daemon, "replay", "--check", str(recording))
    assert (done.returncode, "as saved" in done.stdout) == (0, True), done.stdout


def test_a_recording_is_taken_without_a_daemon_too(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new()
    session.ask("one")
    session.ask("two")
    daemon.stop()
    done = clisup(daemon, "record", session.id[:8], "t1", "--state-dir", str(daemon.state), "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["turn_id"], said["files"][0]) == ("t1", "demo-1.0.0-t1.jsonl")
    assert "You said: one" in (daemon.cwd / "demo-1.0.0-t1.jsonl").read_text()


def test_a_turn_that_waited_for_its_background_work_is_one_recording(daemon: Harness) -> None:
    session = daemon.new()
    assert session.ask("@background 0.1 It is over.\nI wait.")["text"] == "It is over."
    recording = record(daemon, session)
    assert bare(events_of(recording)) == bare(session.events())
    assert events_of(recording)[-1]["text"] == "It is over."


def test_a_recording_can_be_read_by_its_owner_alone_also_where_an_older_one_was_open_to_others(daemon: Harness) -> None:
    """A recording holds the words of a turn."""
    session = daemon.new()
    session.ask("hello")
    older = daemon.cwd / "rec.jsonl"
    older.write_text("")
    older.chmod(0o644)
    record(daemon, session)
    written = sorted(daemon.cwd.glob("rec.*"))
    assert len(written) == 3 and {path.stat().st_mode & 0o777 for path in written} == {0o600}


def test_a_turn_of_a_live_session_is_recorded_though_its_cli_gets_variables_of_its_own(daemon: Harness) -> None:
    session = daemon.new(mode="live")
    texts = [session.ask(prompt)["text"] for prompt in ("Hello.\n@bash echo hi\nBye.", "again")]
    assert [events_of(record(daemon, session, turn))[-1]["text"] for turn in ("t1", "t2")] == texts


def test_a_turn_ended_by_the_watchdog_replays_as_one(serve: Callable[..., Harness]) -> None:
    daemon = serve(timeouts={"model_idle": 0.3, "int_grace": 0.1, "term_grace": 0.1})
    session = daemon.new()
    end = session.ask("Some text.\n@ignore-int\n@ignore-term\n@stall")
    assert end["outcome"] == "timed_out"
    recording = record(daemon, session)
    assert events_of(recording)[-1]["error"] == end["error"]
    meta = json.loads(recording.with_suffix(".meta.json").read_text())
    assert meta["signal"] == "SIGKILL"


def test_the_demo_plays_a_recording_with_the_same_events_in_a_session_of_another_id(daemon: Harness) -> None:
    first, second = daemon.new(), daemon.new()
    first.ask("Hello.\n@think Hm.\n@bash echo hi; exit 3\nBye.")
    recording = record(daemon, first)
    end = second.ask(f"@play {recording} 0")
    assert (end["outcome"], end["text"]) == ("completed", "Bye.")
    assert bare(second.events()) == bare(first.events())
    assert second.events("session_init")[0]["native_session_id"] == second.id
    assert second.ask("@count")["text"] == "turn 2"


def test_a_recording_is_played_at_its_own_pace(daemon: Harness) -> None:
    """Seen from its own recording: the pauses are there again, as long at least. Half speed makes them twice as long."""
    first = daemon.new()
    first.ask("Now.\n@sleep 0.3\nLater.")
    for speed, least in (("1", 0.25), ("0.5", 0.5)):
        played = daemon.new()
        played.ask(f"@play {record(daemon, first)} {speed}")
        meta = json.loads(record(daemon, played).with_suffix(".meta.json").read_text())
        times = [at for _, at in meta["timing"]]
        assert max(later - at for at, later in itertools.pairwise(times)) >= least
        assert times == sorted(times)


def test_a_value_that_nobody_knows_any_more_is_asked_for(serve: Callable[..., Harness]) -> None:
    daemon = serve(**TABLES)
    session = daemon.new(env={"BROUGHT_TOKEN": BROUGHT})
    session.ask(f"{INHERITED} and {BROUGHT}")
    session.call("close")
    done = clisup(daemon, "record", session.id, "-o", "rec.jsonl")
    assert (done.returncode, "the value of BROUGHT_TOKEN," in done.stderr) == (2, True), done.stderr
    assert "--hide" in done.stderr
    assert not list(daemon.cwd.iterdir())
    (daemon.root / "values").write_text(f"{BROUGHT}\n{INHERITED}\n")
    recording = record(daemon, session, "--hide", str(daemon.root / "values"))
    assert BROUGHT not in everything(recording)


def test_an_environment_or_configuration_that_is_not_the_daemons_is_noticed(serve: Callable[..., Harness]) -> None:
    daemon = serve(**TABLES)
    session = daemon.new()
    session.ask("hello")
    del daemon.env["ANTHROPIC_API_KEY"]
    (daemon.root / "other.toml").write_text("")
    done = clisup(daemon, "record", session.id, "-o", "rec.jsonl", "--config", str(daemon.root / "other.toml"))
    assert done.returncode == 2
    assert "the value of ANTHROPIC_API_KEY, MY_SECRET," in done.stderr


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("claude", "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"),
        ("gemini", "GEMINI_SYSTEM_MD"),
        ("qwen", "QWEN_SYSTEM_IDENTITY_MD"),
    ],
)
def test_what_an_adapter_sets_in_some_launches_is_no_secret(kind: str, name: str) -> None:
    config = Config(backends={kind: BackendConfig(kind=kind)})
    backend = Backends(config, {"HOME": "/home/user", "PATH": "/bin"}).get(kind)
    assert backend.unexplained([name, "BROUGHT_TOKEN"]) == ["BROUGHT_TOKEN"]


def test_recordings_are_not_written_over_and_turns_that_are_not_there_are_said(daemon: Harness) -> None:
    session = daemon.new()
    assert "no turn of the session has run to its end" in clisup(daemon, "record", session.id).stderr
    session.ask("hello")
    record(daemon, session)
    again = clisup(daemon, "record", session.id, "-o", "rec.jsonl")
    assert (again.returncode, "--force" in again.stderr) == (2, True)
    assert clisup(daemon, "record", session.id, "t9").returncode == 2
    assert clisup(daemon, "record", "ffff").returncode == 4
    assert clisup(daemon, "record", session.id, "-o", "x.txt").returncode == 2
    assert clisup(daemon, "record", session.id, "-o", "none/x.jsonl").returncode == 69


def test_a_turn_whose_output_was_removed_is_an_error_with_a_way_out(daemon: Harness) -> None:
    session = daemon.new()
    session.ask("hello")
    (session.dir / "runs" / "1" / "out.spool").unlink()
    done = clisup(daemon, "record", session.id, "-o", "gone.jsonl")
    assert (done.returncode, "was removed by retention" in done.stderr) == (69, True), done.stderr
    assert not (daemon.cwd / "gone.jsonl").exists()


def test_a_long_prompt_is_known_by_its_beginning_unless_it_is_given(daemon: Harness) -> None:
    session = daemon.new()
    prompt = "word " * 100
    session.ask(prompt)
    done = clisup(daemon, "record", session.id, "-o", "rec.jsonl", "--force")
    assert "give the whole with --prompt TEXT" in done.stderr
    recording = record(daemon, session, "--prompt", prompt)
    meta = json.loads(recording.with_suffix(".meta.json").read_text())
    assert (meta["prompt"], meta["launch"]["prompt"], meta["prompt_bytes"]) == (prompt, prompt, 500)


@pytest.mark.parametrize("kind", ["codex", "claude"])
def test_the_demo_refuses_a_recording_that_is_not_its_own_in_words(daemon: Harness, tmp_path: Path, kind: str) -> None:
    (tmp_path / "x.jsonl").write_text("")
    if kind == "codex":
        (tmp_path / "x.meta.json").write_text(json.dumps({"kind": kind}))
    end = daemon.new().ask(f"@play {tmp_path}/x.jsonl")
    wanted = "cannot play a recording of codex" if kind == "codex" else "No such file"
    assert (end["outcome"], wanted in end["error"]["message"]) == ("failed", True), end
