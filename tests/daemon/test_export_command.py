"""`clisup export` of sessions of a real daemon, with the daemon and without."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import commands
from harness import Harness

PROMPT = """@think Which <b>file</b>?
@text I change it.
@tool Edit {"file_path": "/srv/a.py", "old_string": "x = 1", "new_string": "x = 2"} => done
@text Changed."""


def exported(daemon: Harness, *args: str, code: int = 0) -> Any:
    done = commands.run(daemon, "export", *args, "--format", "json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def without_time(shown: Any) -> Any:
    return {name: value for name, value in shown.items() if name != "exported_at"}


def test_a_session_is_exported_in_each_format(daemon: Harness, tmp_path: Path) -> None:
    session = daemon.new(title="Rename x")
    session.ask(PROMPT)
    [turn] = exported(daemon, session.id[:8])["turns"]
    assert turn["prompt"]["text"] == PROMPT and turn["end"]["outcome"] == "completed"
    assert [item["type"] for item in turn["items"]] == ["thinking", "answer", "tool_use", "tool_result", "answer"]
    markdown = commands.run(daemon, "export", session.id).stdout
    assert markdown.startswith("# Rename x\n") and "```diff" in markdown
    page = tmp_path / "session.html"
    done = commands.run(daemon, "export", session.id, "-o", str(page))
    assert (done.returncode, done.stdout) == (0, "")
    assert page.read_text().startswith("<!doctype html>") and "<ins>+x = 2</ins>" in page.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["session.html"], "nothing else is left"


def test_without_a_daemon_the_files_give_the_same_document(serve: Callable[..., Harness]) -> None:
    daemon = serve(limits={"inline_bytes": 1024})
    session = daemon.new()
    session.ask(PROMPT)
    session.ask("@bash seq 1 5000\n" + "long prompt " * 3000)
    before = exported(daemon, session.id, "--max-output", "100000")
    output = next(item for item in before["turns"][1]["items"] if item["type"] == "tool_result")
    assert output["text"].split()[-1] == "5000", "the whole output comes from its blob"
    assert (
        before["turns"][1]["prompt"]["text"].endswith("long prompt ") and before["turns"][1]["prompt"]["cut_bytes"] == 0
    )
    daemon.stop()
    after = exported(daemon, session.id[:8], "--max-output", "100000", code=3)
    assert after["turns"] == before["turns"]
    for name in ("session_id", "title", "cwd", "cost_usd", "turns"):
        assert after["session"][name] == before["session"][name], name
    cut = exported(daemon, session.id, "--max-output", "10", code=3)
    assert next(item for item in cut["turns"][1]["items"] if item["type"] == "tool_result")["text"] == "1\n2\n3\n4\n5\n"
    daemon.start()


def test_closed_and_interrupted_sessions_are_exported(daemon: Harness) -> None:
    session = daemon.new()
    turn = session.prompt("@text So far\n@stall")
    session.await_event("content_delta")
    session.call("interrupt", turn_id=turn, mode="kill")
    session.call("close")
    turn = exported(daemon, session.id)["turns"][0]
    assert turn["end"]["outcome"] == "interrupted"
    assert [item["text"] for item in turn["items"] if item["type"] in ("answer", "unfinished")] == ["So far"]


def test_a_failure_leaves_the_old_file_as_it_was(daemon: Harness, tmp_path: Path) -> None:
    old = tmp_path / "old.md"
    old.write_text("old")
    assert commands.run(daemon, "export", "ffffffff", "-o", str(old)).returncode == 4
    assert old.read_text() == "old"
    session = daemon.new()
    assert commands.run(daemon, "export", session.id, "-o", str(tmp_path / "none" / "x.md")).returncode == 2
    done = commands.run(daemon, "export", session.id, "-o", str(tmp_path / "x.pdf"))
    assert done.returncode == 2 and "--format md, html or json" in done.stderr
    assert commands.run(daemon, "export", session.id, "--format", "md", "-o", "/dev/null").returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["old.md"]
