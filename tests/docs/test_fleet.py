"""docs/examples/fleet.py against a real daemon: a few at a time, each once, whatever is killed in the middle."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import ENVIRONMENT, PATIENCE_S, Harness, until

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "docs" / "examples" / "fleet.py"
TORN = '{"directory": "/so'


class Fleet:
    """Six directories, and the program over them."""

    def __init__(self, daemon: Harness, directory: Path) -> None:
        self.daemon, self.output = daemon, directory / "results.jsonl"
        self.directories = [directory / name for name in "abcdef"]
        for path in self.directories:
            path.mkdir()

    def launch(self, prompt: str, *words: str) -> subprocess.Popen[str]:
        env = {**ENVIRONMENT, "PYTHONPATH": str(ROOT), "CLISUP_SOCKET": self.daemon.socket}
        where = [str(path) for path in self.directories]
        argv = [sys.executable, str(PROGRAM), "job", prompt, *where, "-b", "demo", "-o", str(self.output), *words]
        return subprocess.Popen(argv, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, prompt: str, *words: str) -> tuple[int, str]:
        """Its exit code, and what it said."""
        program = self.launch(prompt, *words)
        try:
            _, err = program.communicate(timeout=PATIENCE_S * 2)
        finally:
            program.kill()
        return program.returncode, err

    def lines(self) -> dict[str, dict[str, Any]]:
        """By the directory's name; each may be there once."""
        found = [json.loads(line) for line in self.output.read_text().splitlines() if line != TORN]
        assert len({line["directory"] for line in found}) == len(found)
        return {Path(line["directory"]).name: line for line in found}

    def sessions(self, **fields: Any) -> list[dict[str, Any]]:
        return list(self.daemon.call("session/list", **fields)["sessions"])

    def prompts(self) -> int:
        """How many turns there were in all sessions."""
        return sum(session["turns"] for session in self.sessions(state="closed"))


@pytest.fixture
def fleet(serve: Callable[..., Harness], tmp_path: Path) -> Fleet:
    return Fleet(serve(), tmp_path)


def test_each_directory_gets_its_turn_and_its_line(fleet: Fleet) -> None:
    code, err = fleet.run("hello")
    assert (code, err.count("completed: "), len(err.splitlines())) == (0, 6, 6)  # and no warning of Python's
    for name, line in fleet.lines().items():
        assert (line["outcome"], line["text"]) == ("completed", "You said: hello")
        assert line["directory"] == str(fleet.output.parent / name)
    assert fleet.sessions() == []
    assert fleet.prompts() == 6


def test_no_more_than_asked_for_run_at_once(fleet: Fleet, tmp_path: Path) -> None:
    program = fleet.launch(f"@wait-file {tmp_path}/go\nDone.", "--at-once", "2")
    until(lambda: len([s for s in fleet.sessions() if s["state"] == "running"]) == 2, "two do not run")
    assert len(fleet.sessions()) == 2
    (tmp_path / "go").touch()
    assert program.communicate(timeout=PATIENCE_S * 2) is not None
    assert (program.returncode, len(fleet.lines())) == (0, 6)


def test_the_daemon_may_be_killed_in_the_middle(fleet: Fleet, tmp_path: Path) -> None:
    program = fleet.launch(f"@stream 5\n@wait-file {tmp_path}/go\n@stream 5", "--at-once", "3")
    until(lambda: len([s for s in fleet.sessions() if s["state"] == "running"]) == 3, "three do not run")
    fleet.daemon.restart()
    (tmp_path / "go").touch()
    program.communicate(timeout=PATIENCE_S * 2)
    assert program.returncode == 0
    assert {line["outcome"] for line in fleet.lines().values()} == {"completed"}
    assert fleet.prompts() == 6


def test_the_program_may_be_killed_in_the_middle_and_started_again(fleet: Fleet, tmp_path: Path) -> None:
    program = fleet.launch(f"@wait-file {tmp_path}/go\nDone.", "--at-once", "3")
    until(lambda: len([s for s in fleet.sessions() if s["state"] == "running"]) == 3, "three do not run")
    program.kill()
    program.communicate()
    with fleet.output.open("a") as file:  # and its last line was cut
        file.write(TORN)
    (tmp_path / "go").touch()
    code, _ = fleet.run(f"@wait-file {tmp_path}/go\nDone.", "--at-once", "3")
    assert (code, len(fleet.lines()), fleet.prompts()) == (0, 6, 6)


def test_a_third_start_asks_nothing(fleet: Fleet) -> None:
    for said in (6, 0):
        code, err = fleet.run("hello")
        assert (code, err.count("completed: ")) == (0, said)
    assert fleet.prompts() == 6


def test_a_turn_that_fails_and_a_directory_that_is_not_there_stop_nobody_else(fleet: Fleet) -> None:
    fleet.directories.append(fleet.output.parent / "gone")
    code, _ = fleet.run("@error server")
    lines = fleet.lines()
    assert code == 1
    assert {lines[name]["outcome"] for name in "abcdef"} == {"failed"}
    assert lines["a"]["error"]["kind"] == "server"
    assert (lines["gone"]["outcome"], lines["gone"]["error"]["kind"]) == ("refused", "invalid_params")
