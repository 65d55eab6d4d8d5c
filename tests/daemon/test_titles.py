"""Titles, branches and kept prompts of sessions: what people see in lists and read in logs."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, until
from test_dialogue import AGENT

from clisup.errors import ClisupError
from clisup.model.sessions.ledger import Ledger

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 16).decode()
SECRET = "canary-7f3a-9b1d"


def row(daemon: Harness, session: Any) -> dict[str, Any]:
    return next(row for row in daemon.call("session/list")["sessions"] if row["session_id"] == session.id)


def prompts(session: Any) -> list[tuple[Any, ...]]:
    found = session.events("prompt_accepted")
    return [(event.get("text"), event.get("images", 0), event.get("blob")) for event in found]


def test_the_first_words_of_the_first_prompt_are_the_title_also_after_a_kill(daemon: Harness) -> None:
    session = daemon.new()
    assert row(daemon, session)["title"] is None
    session.ask("Tidy  up\nthe tests.")
    session.ask("and now another thing")
    assert row(daemon, session)["title"] == "Tidy up the tests."
    daemon.restart()
    assert row(daemon, session)["title"] == "Tidy up the tests."
    status = {row["session_id"]: row for row in daemon.call("daemon/status")["sessions"]}
    assert status[session.id]["title"] == "Tidy up the tests."


def test_a_title_of_the_opening_stays_and_a_client_may_change_it(daemon: Harness) -> None:
    session = daemon.new(title="Nightly run")
    session.ask("hello")
    assert row(daemon, session)["title"] == "Nightly run"
    session.call("set_title", title="Weekly run")
    daemon.restart()
    assert row(daemon, session)["title"] == "Weekly run"
    assert session.events("notice", code="title_set")[0]["message"] == "the title is now 'Weekly run'"
    session.call("close")
    with pytest.raises(ClisupError) as refused:
        session.call("set_title", title="Too late")
    assert refused.value.kind == "session_closed"


def test_a_title_of_the_cli_goes_before_the_first_words_and_after_a_clients() -> None:
    ledger = Ledger()
    status = {"seq": 1, "ts": "2026-01-01T00:00:00Z", "status": "title", "detail": "Tidy\x1b[31m tests"}
    ledger.fold("status", status, src=None, memo={"first_words": "tidy up, please"})
    assert (ledger.title_of(None), ledger.title_of("Nightly run")) == ("Tidy [31m tests", "Nightly run")
    ledger.fold("notice", status | {"code": "title_set"}, src=None, memo={"title": "Mine"})
    assert ledger.title_of("Nightly run") == "Mine"
    again = Ledger()
    again.restore(ledger.snapshot())
    assert (again.title_of(None), again.cli_title, again.first_words) == ("Mine", "Tidy [31m tests", "tidy up, please")


@pytest.mark.parametrize("title", ["", "   ", "two\nlines", "\x1b[31mred", "x" * 201])
def test_a_title_is_one_visible_line(daemon: Harness, title: str) -> None:
    with pytest.raises(ClisupError) as refused:
        daemon.new(title=title)
    assert refused.value.kind == "invalid_params"


def test_sessions_are_listed_newest_first_also_after_a_restart(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    ids = [daemon.new(title=f"session {number}").id for number in range(5)]
    daemon.restart()
    assert [row["session_id"] for row in daemon.call("session/list")["sessions"]] == ids[::-1]
    assert [row["session_id"] for row in daemon.call("daemon/status")["sessions"]] == ids[::-1]


def test_the_branch_of_the_directory_is_in_each_row(daemon: Harness) -> None:
    git = daemon.cwd / ".git"
    (daemon.cwd / "deep").mkdir()
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/feature/lists\n")
    session = daemon.new(cwd=str(daemon.cwd / "deep"))
    assert row(daemon, session)["branch"] == "feature/lists"
    (git / "HEAD").write_text("0123456789abcdef0123456789abcdef01234567\n")
    until(lambda: row(daemon, session)["branch"] == "0123456789ab")


def test_a_prompt_stands_in_its_event_without_secrets(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo={"env": {"DEMO_KEY": SECRET}})
    session = daemon.new()
    session.ask(f"use {SECRET} here")
    assert prompts(session) == [("use [redacted] here", 0, None)]
    assert row(daemon, session)["title"] == "use [redacted] here"


def test_a_long_prompt_and_its_images_are_in_a_blob(daemon: Harness) -> None:
    session = daemon.new()
    words = "word " * 10_000
    session.ask([{"type": "image", "media_type": "image/png", "data": PNG}, {"type": "text", "text": words}])
    ((text, images, blob),) = prompts(session)
    assert (text, images, blob) == (words[: 16 * 1024], 1, "prompt-t1")
    daemon.restart()
    page = session.call("blob", blob=blob)
    blocks = json.loads(base64.b64decode(page["data_base64"]))
    assert [block["type"] for block in blocks] == ["image", "text"]
    assert (blocks[0]["data"], blocks[1]["text"]) == (PNG, words)
    session.call("close")
    assert session.call("blob", blob=blob)["size"] == page["size"]
    session.call("delete")
    assert not (daemon.state / "sessions" / session.id).exists()


def test_a_blob_of_no_prompt_is_refused(daemon: Harness) -> None:
    session = daemon.new()
    for name in ("prompt-t1", "prompt-../session.json"):
        with pytest.raises(ClisupError) as refused:
            session.call("blob", blob=name)
        assert refused.value.kind == "invalid_params"


def test_a_steered_prompt_shows_its_words_once(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo={"mode": "live"})
    session = daemon.new()
    turn = session.prompt("working\n@wait-file go")
    session.await_event("session_init")
    session.call("prompt", prompt="leave the tests alone", when_busy="steer")
    (daemon.cwd / "go").touch()
    session.end_of(turn)
    told = [(event["delivery"], event.get("text")) for event in session.events("prompt_accepted")]
    assert told[:2] == [("delivered", "working\n@wait-file go"), ("steered", "leave the tests alone")]


def test_a_prompt_that_is_not_kept_leaves_its_first_words_only(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"keep_prompts": "off"})
    session = daemon.new()
    text = "first words " * 20 + "the secret plan\n@text done"
    session.ask([{"type": "image", "media_type": "image/png", "data": PNG}, {"type": "text", "text": text}])
    assert prompts(session) == [(None, 0, None)]
    assert row(daemon, session)["title"].startswith("first words")
    ours = [event for event in session.events() if event["type"] in ("prompt_accepted", "turn_started", "notice")]
    assert "first words" in json.dumps(ours) and "secret plan" not in json.dumps(ours)
    assert not (daemon.state / "sessions" / session.id / "asked").exists()


def test_an_approval_names_its_session(serve: Callable[..., Harness], tmp_path: Path) -> None:
    command = json.dumps([sys.executable, str(AGENT), str(tmp_path / "told")])
    daemon = serve(raw=f'[backends.agent]\nkind = "acp"\ncommand = {command}')
    session = daemon.new(backend="agent", title="Needs me")
    session.prompt('ask Bash {"command": "git status"}')
    session.await_event("approval_requested")
    (approval,) = daemon.call("approval/list", session_id=session.id)["approvals"]
    assert (approval["title"], approval["backend"], approval["cwd"]) == ("Needs me", "agent", str(daemon.cwd))
    session.call("interrupt")


def test_a_prompt_has_a_limit_of_its_own(daemon: Harness) -> None:
    for mode in ("one-shot", "live"):
        session = daemon.new(mode=mode)
        turn = session.call("prompt", prompt="@stall", timeout_s=0.2)["turn_id"]
        assert session.end_of(turn)["outcome"] == "timed_out"
        assert session.ask("hello")["outcome"] == "completed"


def test_a_prompts_limit_holds_also_for_the_next_daemon(daemon: Harness) -> None:
    session = daemon.new()
    turn = session.call("prompt", prompt="@stall", timeout_s=1.5)["turn_id"]
    session.await_event("session_init")
    daemon.restart()
    assert session.end_of(turn)["outcome"] == "timed_out"


def test_a_session_without_a_backend_gets_the_configured_one(serve: Callable[..., Harness]) -> None:
    daemon = serve(raw='[defaults]\nbackend = "demo"\nmode = "live"\ntimeout = 0.5')
    opened = daemon.call("session/new", cwd=str(daemon.cwd), title="by default")
    assert opened["backend"] == "demo"
    done = daemon.call("session/prompt", session_id=opened["session_id"], prompt="@stall", wait=True)
    assert done["outcome"] == "timed_out"
    done = daemon.call("session/prompt", session_id=opened["session_id"], prompt="hello", wait=True)
    assert done["outcome"] == "completed"
    (found,) = daemon.call("session/list")["sessions"]
    assert found["live"]


def test_without_a_default_the_only_installed_cli_is_taken_and_several_are_listed(
    serve: Callable[..., Harness], tmp_path: Any
) -> None:
    for name in ("claude", "codex"):
        (tmp_path / name).write_text('#!/bin/sh\necho "2.1.330 (Claude Code)"\n')
    (tmp_path / "claude").chmod(0o755)
    daemon = serve(env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert daemon.call("session/new", cwd=str(daemon.cwd))["backend"] == "claude"
    (tmp_path / "codex").chmod(0o755)
    with pytest.raises(ClisupError) as refused:
        daemon.call("session/new", cwd=str(daemon.cwd))
    assert (refused.value.kind, refused.value.data["installed"]) == ("invalid_params", ["claude", "codex"])


def test_a_default_backend_that_is_not_configured_is_refused_at_the_start(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    daemon.configure(raw='[defaults]\nbackend = "clod"')
    with pytest.raises(ClisupError) as refused:
        daemon.call("daemon/reload")
    assert "defaults.backend" in str(refused.value)


def test_a_session_that_rests_too_long_is_closed_and_says_why(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"retention": {"idle_close": 0.5, "every_s": 0.1}})
    busy, idle = daemon.new(), daemon.new(mode="live")
    busy.prompt("@stall")
    busy.await_event("session_init")
    idle.ask("hello")
    notice = idle.await_event("notice", code="closed")
    assert notice["data"] == {"by": "idle"} and "daemon.retention.idle_close" in notice["message"]
    until(lambda: [r["closed_by"] for r in daemon.call("session/list", state="closed")["sessions"]] == ["idle"])
    assert row(daemon, busy)["state"] == "running"
    with pytest.raises(ClisupError) as refused:
        idle.ask("still there?")
    assert refused.value.kind == "session_closed"
    assert "resume_native_id" in (refused.value.hint or "")
    busy.call("interrupt")


def test_git_itself_agrees_about_a_worktree(daemon: Harness) -> None:
    def git(*args: str) -> None:
        subprocess.run(["git", "-C", str(main), *args], check=True, capture_output=True)

    main = daemon.root / "main"
    main.mkdir()
    git("init", "-q", "-b", "trunk")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first")
    git("worktree", "add", "-q", "-b", "side", str(daemon.root / "side"))
    assert row(daemon, daemon.new(cwd=str(main)))["branch"] == "trunk"
    assert row(daemon, daemon.new(cwd=str(daemon.root / "side")))["branch"] == "side"
