"""A workflow on a real daemon: its program is killed in the middle of a stage, and another one takes over."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import ENVIRONMENT, PATIENCE_S, Harness, until

from clisup.llm.workflow import read_trace

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("cycle_program.py")


class Cycle:
    def __init__(self, daemon: Harness, directory: Path) -> None:
        self.daemon, self.directory = daemon, directory
        self.trace = directory / "trace.jsonl"

    def launch(self) -> subprocess.Popen[str]:
        env = {**ENVIRONMENT, "PYTHONPATH": str(ROOT), "CLISUP_SOCKET": self.daemon.socket}
        command = [sys.executable, str(PROGRAM), str(self.directory)]
        return subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def finish(self, program: subprocess.Popen[str]) -> str:
        try:
            out, err = program.communicate(timeout=PATIENCE_S * 2)
        finally:
            program.kill()
        assert program.returncode == 0, err
        return out

    def sessions(self, state: str | None = None) -> list[dict[str, Any]]:
        params = {"state": state} if state else {}
        return list(self.daemon.call("session/list", **params)["sessions"])


@pytest.fixture
def cycle(serve: Callable[..., Harness], tmp_path: Path) -> Cycle:
    return Cycle(serve(), tmp_path)


def test_another_program_takes_over_and_the_dead_ones_turn_is_ended_first(cycle: Cycle) -> None:
    first = cycle.launch()
    try:
        until(lambda: (cycle.directory / "begun").exists() or first.poll() is not None)
        assert first.poll() is None, first.communicate()
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    (left,) = cycle.sessions()
    assert left["labels"] == {"clisup.workflow": read_trace(cycle.trace).started.run_id}
    (cycle.directory / "begun").unlink()

    second = cycle.launch()
    until(lambda: (cycle.directory / "begun").exists() or second.poll() is not None)
    assert second.poll() is None, second.communicate()
    (now,) = cycle.sessions()
    assert now["session_id"] != left["session_id"]  # the turn of the dead one is not running beside it
    (cycle.directory / "go").touch()
    assert cycle.finish(second) == "done a boat 1\n"

    progress = read_trace(cycle.trace)
    tries = [(one.stage, one.attempt, one.type) for one in progress.in_order()]
    assert tries == [
        ("think", 1, "stage_completed"),
        ("plan", 1, "stage_completed"),
        ("do", 1, "stage_failed"),
        ("do", 2, "stage_completed"),
        ("reflect", 1, "stage_completed"),
    ]
    assert progress.failed[0].error.kind == "crashed"
    assert "Think of the boat." in str(progress.completed[2].result)  # what was said to the dead session is known
    assert [one.session_id for one in progress.completed] == [left["session_id"]] * 2 + [now["session_id"]] * 2


def test_each_stage_is_noted_in_the_event_log(cycle: Cycle) -> None:
    (cycle.directory / "go").touch()
    assert cycle.finish(cycle.launch()) == "done a boat 1\n"
    (session,) = cycle.sessions("closed")
    events = cycle.daemon.call("session/events", session_id=session["session_id"], after_seq=0, limit=1000)["events"]
    notes = [event for event in events if event.get("code") == "client.workflow"]
    assert [note["data"]["stage"] for note in notes] == ["think", "plan", "do", "reflect"]
    assert notes[0]["message"] == "workflow think-plan-do-reflect: round 1, stage think is done"
    assert notes[0]["data"]["spent"]["cost_usd"] == 0.25
    assert notes[1]["data"]["result"] == {"steps": ["one", "two"]}
