"""docs/examples/ci_job.sh: what it exits with, what it keeps, and that it leaves nothing running."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.scene import Scene, until

PROGRAM = Path(__file__).resolve().parents[2] / "docs" / "examples" / "ci_job.sh"


@pytest.fixture
def scene() -> Iterator[Scene]:
    if shutil.which("jq") is None:
        pytest.fail("jq is missing") if os.environ.get("CLISUP_CI") else pytest.skip("there is no jq on this machine")
    with Scene() as scene:
        del scene.env["CLISUP_SOCKET"]
        yield scene


def launch(scene: Scene, prompt: str, backend: str = "claude", **env: str) -> subprocess.Popen[str]:
    """The job, as CI starts it."""
    return subprocess.Popen(
        ["bash", str(PROGRAM), backend, prompt],
        cwd=scene.work,
        env={**scene.env, **env, "TMPDIR": str(scene.root)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def end(scene: Scene, job: subprocess.Popen[str]) -> int:
    """Its exit code; by then nothing of it runs, and its scratch directory is gone."""
    _, err = job.communicate(timeout=120)
    assert scene.mine() == {scene.bash_pid}, err
    assert not list(scene.root.glob("tmp.*"))
    return job.returncode


def test_a_good_turn_leaves_its_answer_and_its_events(scene: Scene) -> None:
    assert end(scene, launch(scene, "hello")) == 0
    artefacts = scene.work / "artefacts"
    assert (artefacts / "answer.txt").read_text() == "You said: hello\n"
    types = [json.loads(line)["type"] for line in (artefacts / "events.jsonl").read_text().splitlines()]
    assert types[-1] == "turn_completed"
    assert json.loads((artefacts / "status.json").read_text())["totals"]
    assert "Traceback" not in (artefacts / "clisup.log").read_text()


@pytest.mark.parametrize(
    ("prompt", "backend", "env", "code"),
    [
        ("@error server", "claude", {}, 1),
        ("hello", "nonsense", {}, 69),
        ("@stall", "claude", {"CI_TIMEOUT": "3s"}, 124),
        ("hello", "claude", {"CLISUP_CONFIG": "/nowhere/else.toml"}, 3),
    ],
    ids=["failed", "no such backend", "timed out", "no daemon"],
)
def test_the_exit_code_says_what_went_wrong(
    scene: Scene, prompt: str, backend: str, env: dict[str, str], code: int
) -> None:
    assert end(scene, launch(scene, prompt, backend, **env)) == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_job_that_is_cancelled_leaves_nothing_running(scene: Scene, number: int) -> None:
    job = launch(scene, '@tool Bash {"command":"sleep 1000"}')
    events = scene.work / "artefacts" / "events.jsonl"
    until(lambda: events.exists() and "tool_use" in events.read_text(), "no tool runs")
    job.send_signal(number)
    assert end(scene, job) == 128 + number
