"""docs/examples/llm_conversation.py and llm_memory.py against a real daemon with the demo backend."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import ENVIRONMENT, PATIENCE_S, Harness

ROOT = Path(__file__).resolve().parents[2]


def run(daemon: Harness, program: str, *words: str) -> str:
    env = {**ENVIRONMENT, "PYTHONPATH": str(ROOT), "CLISUP_SOCKET": daemon.socket}
    argv = [sys.executable, str(ROOT / "docs" / "examples" / program), *words]
    done = subprocess.run(
        argv, env=env, cwd=daemon.cwd, text=True, capture_output=True, timeout=PATIENCE_S * 2, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def daemon(serve: Callable[..., Harness]) -> Harness:
    return serve()


def test_the_conversation_forgets_its_tool_and_keeps_it_in_its_file(daemon: Harness, tmp_path: Path) -> None:
    said = run(daemon, "llm_conversation.py", "demo", str(tmp_path / "chat.json"))
    _, before, after = said.split("\n> ")[1:]
    called = '"type": "tool_use"'  # what an earlier answer quotes of it is escaped
    assert called in before and "chat 1)" in before
    assert called not in after and "chat 2)" in after
    assert "Read {'path': 'app.log'}: no longer in the context" in said
    assert len(json.loads((tmp_path / "chat.json").read_text())["turns"]) == 3


def test_the_memory_outlives_what_was_forgotten(daemon: Harness, tmp_path: Path) -> None:
    said = run(daemon, "llm_memory.py", "demo", str(tmp_path / "memory.json"))
    assert "still open: plan/2: free the disk" in said
    assert '{"plan/2": {"do": "free the disk", "done": false}}' in said
