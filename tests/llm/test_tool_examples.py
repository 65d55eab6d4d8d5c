"""docs/examples/llm_tools.py against a real daemon with the demo backend."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import ENVIRONMENT, PATIENCE_S, Harness

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(serve: Callable[..., Harness], tmp_path: Path) -> Run:
    daemon = serve()
    env = {**ENVIRONMENT, "PYTHONPATH": str(ROOT), "CLISUP_SOCKET": daemon.socket, "HOME": str(tmp_path)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-W", "error", *words]
        return subprocess.run(argv, env=env, cwd=tmp_path, text=True, capture_output=True, timeout=PATIENCE_S * 2)

    return run


def test_the_program_runs_its_tools_for_the_model(run: Run) -> None:
    done = run(str(ROOT / "docs" / "examples" / "llm_tools.py"), "demo")
    assert (done.returncode, done.stderr) == (0, "")
    *said, stock = done.stdout.splitlines()
    assert stock == "{'bolts': 35, 'nuts': 12}"
    assert sorted(said) == sorted(
        [
            "count {'item': 'bolts'}", "count {'item': 'nuts'}", "  40", "  12",
            "take {'item': 'bolts', 'number': 5}", "  35 bolts are left",
            "take {'item': 'nuts', 'number': 50}", "  error: " + said[-1].removeprefix("  error: "),
        ]
    )  # fmt: skip
    assert "there are only 12 nuts" in said[-1]
