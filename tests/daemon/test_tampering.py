"""Files of a session that a tool of its CLI changes: after a `kill -9` the journal's values hold, and the change is told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness
from session_probe import SessionProbe

from clisup.errors import ClisupError

RULE = {"tool": "*", "decision": "allow"}
FIELDS: dict[str, Any] = {
    "approvals": {"rules": [RULE], "unattended": None},
    "permission_mode": "bypassPermissions",
    "budget": {"turns": 1000},
    "mode": "one-shot",
    "model": "other",
    "cwd": "/usr",
    "backend": "nowhere",
    "session_id": "0d9c1c1e-0000-4000-8000-000000000000",
    "digest": "0",
    "timeouts": {"idle": 100000.0},
    "cli_tools": ["Bash"],
    "tools": ["x"],
    "system_prompt_mode": "replace",
    "env_names": ["PATH"],
    "labels": {"owner": "tool"},
    "resume_native_id": "another",
    "has_mcp_config": True,
    "worktree": {"owner": "a", "repository": "/", "git_dir": "/", "path": "/", "branch": "b", "base": "c"},
    "version": 99,
}


def notices(session: SessionProbe) -> list[dict[str, Any]]:
    return [event for event in session.events("notice") if event["code"] == "state_refused"]


def log_of(daemon: Harness) -> str:
    return "\n".join(
        line for line in daemon.log.read_text(errors="replace").splitlines() if "session file refused" in line
    )


def amend(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_each_changed_field_of_a_session_file_is_refused_and_told(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    sessions = {name: daemon.new() for name in FIELDS}
    sessions["approvals"].ask("hello")
    before = {name: session.get() for name, session in sessions.items()}
    daemon.kill()
    for name, session in sessions.items():
        amend(session.dir / "session.json", **{name: FIELDS[name]})
    daemon.start()
    for name, session in sessions.items():
        (notice,) = notices(session)
        assert notice["data"] == {"kind": "storage_failed", "file": "session.json", "fields": [name]}
        assert f'"{name}"' in log_of(daemon)
        after = session.get()
        for key in ("cwd", "backend", "mode", "model", "permission_mode", "budget", "labels", "title"):
            assert after.get(key) == before[name].get(key), (name, key)
    assert sessions["approvals"].ask("again")["outcome"] == "completed"
    daemon.restart()
    assert [len(notices(session)) for session in sessions.values()] == [1] * len(FIELDS)  # the files were written again


def foreign(path: Path) -> None:
    path.write_text('{"session_id": 7, "backend": []}')


DAMAGE: list[Callable[[Path], object]] = [
    Path.unlink,
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(path.read_bytes()[:40]),
    lambda path: path.write_bytes(b"\0" * 4096),
    lambda path: path.write_text("[1]"),
    lambda path: path.write_text("{}"),
    foreign,
]


def test_a_damaged_session_file_costs_nothing_and_is_told(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    sessions = [daemon.new() for _ in DAMAGE]
    for session in sessions:
        session.ask("hello")
    daemon.kill()
    for session, damage in zip(sessions, DAMAGE, strict=True):
        damage(session.dir / "session.json")
    daemon.start()
    assert daemon.call("daemon/status")["damaged_sessions"] == {}
    for session in sessions:
        (notice,) = notices(session)
        assert notice["data"]["file"] == "session.json" and session.id in log_of(daemon)
        assert session.events("turn_completed")[0]["text"] == "You said: hello"
    assert sessions[0].ask("again")["outcome"] == "completed"


def test_a_session_without_its_journal_is_refused_and_the_others_are_served(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session, other = daemon.new(), daemon.new()
    session.ask("hello")
    daemon.kill()
    shutil.rmtree(session.dir / "journal")
    amend(session.dir / "session.json", approvals=FIELDS["approvals"])
    daemon.start()
    assert "its journal is missing" in daemon.call("daemon/status")["damaged_sessions"][session.id]
    with pytest.raises(ClisupError, match="cannot be used"):
        session.prompt("hello")
    assert other.ask("hello")["outcome"] == "completed"


def test_a_rule_of_a_tool_in_a_session_of_an_earlier_version_without_a_turn_is_not_used(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve()
    session = daemon.new(approvals={"rules": [{"tool": "Bash", "decision": "deny", "command": "rm *"}]})
    daemon.kill()
    shutil.rmtree(session.dir / "journal")
    rules = [RULE, {"tool": "Bash", "decision": "deny", "command": "rm *"}]
    amend(session.dir / "session.json", journaled=False, approvals={"rules": rules})
    daemon.start()
    assert [event["code"] for event in session.events("notice")] == ["state_refused", "opening_recorded"]
    stored = json.loads((session.dir / "session.json").read_text())
    assert [rule["decision"] for rule in stored["approvals"]["rules"]] == ["deny"]


def test_a_queued_prompt_that_a_tool_changed_is_not_sent(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt("@sleep 600")
    second = session.prompt("the second")
    daemon.kill()
    stored = session.dir / "prompts" / f"{second}.json"
    amend(stored, text="@run Bash {}", expand=True)
    daemon.start()
    session.call("interrupt")
    end = session.end_of(second)
    assert end["error"]["kind"] == "storage_failed" and "changed outside" in end["error"]["message"]
    assert notices(session)[-1]["data"]["file"] == f"prompts/{second}.json"


NAMES = ("system_prompt.txt", "mcp.json", "secrets.json", "tools.json", "salt")


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


def test_a_private_file_that_a_tool_changed_or_removed_reaches_no_cli(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo={"request_env": ["NAME"]})
    private: dict[str, Any] = {
        "system_prompt": "be brief",
        "mcp_config": {"mcpServers": {}},
        "env": {"NAME": "value"},
        "tools": [{"name": "add", "input_schema": {"type": "object"}}],
    }
    cases = [(daemon.new(**private), name, spoil) for name in NAMES for spoil in (change, Path.unlink)]
    untouched = daemon.new(**private)
    daemon.kill()
    for session, name, spoil in cases:
        spoil(session.dir / "private" / name)
    daemon.start()
    for session, name, _ in cases:
        told = {event["data"]["file"] for event in notices(session)}
        assert told == ({f"private/{name}"} if name != "salt" else {f"private/{other}" for other in NAMES[:4]})
        end = session.ask("hello")
        assert end["error"]["kind"] == "storage_failed" and "private/" in end["error"]["message"]
    assert not notices(untouched)
