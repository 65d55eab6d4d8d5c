"""`clisup resume`: sessions that began outside clisup, with the demo CLI as a person starts it by hand."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import commands
import pytest
import trio
from harness import Harness
from pty_terminal import Terminal

from clisup.cli.commands import resume as command
from clisup.daemon.sessions import native_sessions as listing
from clisup.store import native_sessions as store
from tests.fakecli import COMMAND


def by_hand(daemon: Harness, prompt: str, cwd: Path | None = None) -> str:
    """Ask the demo CLI, without clisup; the id of its session."""
    argv = [*COMMAND, "-p", "--output-format", "stream-json", "--verbose"]
    env = {**daemon.env, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        argv, input=prompt, env=env, cwd=cwd or daemon.cwd, capture_output=True, text=True, check=True
    )
    return str(json.loads(done.stdout.splitlines()[0])["session_id"])


def listed(daemon: Harness, *args: str) -> list[dict[str, Any]]:
    done = commands.run(daemon, "resume", "--list", "--json", "-C", str(daemon.cwd), *args)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_sessions_of_this_directory_are_listed_newest_first_and_taken_up(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    own = daemon.new()
    own.ask("mine")
    first = by_hand(daemon, "first \x1b[31mprompt")
    second = by_hand(daemon, "second prompt")
    (daemon.root / "other").mkdir()
    by_hand(daemon, "elsewhere", daemon.root / "other")
    for age, native in enumerate((second, first, own.id)):
        [path] = (daemon.root / "home").rglob(f"{native}.jsonl")
        os.utime(path, (2e9 - age, 2e9 - age))
    found = listed(daemon)
    assert [item["native_session_id"] for item in found] == [second, first, own.id]
    assert [item["title"] for item in found] == ["second prompt", "first [31mprompt", "mine"]
    assert [item["session_id"] for item in found] == [None, None, own.id]
    table = commands.run(daemon, "resume", "--list", "-C", str(daemon.cwd)).stdout
    assert first[:8] in table and own.id[:8] not in table and "\x1b" not in table
    done = commands.run(daemon, "resume", first[:8], "-C", str(daemon.cwd))
    assert done.returncode == 0 and "continue with: clisup run --session" in done.stderr
    session_id = done.stdout.strip()
    assert next(item for item in listed(daemon) if item["native_session_id"] == first)["session_id"] == session_id
    daemon.call("session/prompt", session_id=session_id, prompt="go on", wait=True)
    assert daemon.call("session/get", session_id=session_id)["native_session_id"] == first
    again = commands.run(daemon, "resume", first, "-C", str(daemon.cwd))
    assert again.returncode != 0 and "session_busy" not in again.stdout and session_id in again.stderr


def test_wrong_ids_are_refused_with_the_next_step(daemon: Harness) -> None:
    assert "too short" in commands.run(daemon, "resume", "abc").stderr
    missing = commands.run(daemon, "resume", "abcdef12")
    assert missing.returncode == 4 and "clisup resume --list" in missing.stderr
    nobody = commands.run(daemon, "resume")
    assert nobody.returncode == 2 and "stdin is no terminal" in nobody.stderr
    both = commands.run(daemon, "resume", "--list", "abcdef12")
    assert both.returncode == 2
    assert commands.run(daemon, "resume", "--list", "-b", "nope").returncode == 69


def test_a_person_chooses_by_number(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    by_hand(daemon, "one")
    native = by_hand(daemon, "two")
    for age, name in enumerate(("one", "two")):
        [path] = [path for path in (daemon.root / "home").rglob("*.jsonl") if f'"{name}"' in path.read_text()]
        os.utime(path, (2e9 - age, 2e9 - age))
    terminal = Terminal(daemon, "resume", "-C", str(daemon.cwd))
    terminal.until("Number (1-2)")
    terminal.type("2\n")
    terminal.until("continue with")
    assert terminal.exit_code() == 0
    os.close(terminal.ours)
    rows = daemon.call("session/list")["sessions"]
    daemon.call("session/prompt", session_id=rows[0]["session_id"], prompt="go on", wait=True)
    assert [row["native_session_id"] for row in daemon.call("session/list")["sessions"]] == [native]


def test_a_directory_without_sessions_says_so(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    assert listed(daemon) == []
    done = commands.run(daemon, "resume", "--list", "-C", str(daemon.cwd))
    assert (done.returncode, done.stdout) == (0, "") and "no CLI has a session" in done.stderr


# -- bounds -------------------------------------------------------------------------------------------------------------


def test_only_the_newest_files_are_read_and_of_each_only_the_edges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "EDGE_BYTES", 10)
    monkeypatch.setattr(store, "MAX_READ", 3)
    for number in range(6):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(f"head{number}....." + "x" * 100 + f".....tail{number}")
        os.utime(path, (1e9 + number, 1e9 + number))
    (tmp_path / "9.jsonl").mkdir()
    os.mkfifo(tmp_path / "8.jsonl")
    seen: list[store.TranscriptEdges] = []
    store.newest_transcripts(f"{tmp_path}/*.jsonl", seen.append, 50)
    assert [edges.name for edges in seen if edges.head] == ["5.jsonl", "4.jsonl"], "a pipe does not hang"
    assert (seen[1].head, seen[1].tail) == (b"head5.....", b".....tail5")
    found = store.newest_transcripts(f"{tmp_path}/[0-5].jsonl", lambda edges: edges.name, 2)
    assert found == ["5.jsonl", "4.jsonl"]


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_a_row_fits_into_every_width(columns: int) -> None:
    item = {
        "native_session_id": "0ee63b03-fe69-46aa-9d95-e67659a69ea3", "updated_at": "2020-01-01T00:00:00Z", "backend": "claude",
        "branch": "feature/a-long-branch", "title": "\x1b[31m" + "word " * 60,
    }  # fmt: skip
    head, [row] = command._rows([item], columns, numbered=True)
    width = sum(max(len(name), len(cell)) for name, cell in zip(head, row, strict=True)) + 2 * (len(head) - 1)
    assert width <= columns and head[-1] == "TITLE" and "\x1b" not in row[-1]
    assert ("BRANCH" in head) == (columns > 60)


def test_a_file_system_that_hangs_leaves_one_backend_out(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()

    class Hanging:
        name = "stuck"

        @property
        def adapter(self) -> None:
            let_go.wait(60)

    monkeypatch.setattr(listing, "LOOK_LIMIT_S", 0.05)
    services: Any = SimpleNamespace(writer_checks=trio.CapacityLimiter(4))
    backends: Any = [Hanging()]
    try:
        found = trio.run(listing.native_sessions, services, backends, "/", {}, 10)
    finally:
        let_go.set()
    assert (found.sessions, found.skipped) == ([], ["stuck"])
