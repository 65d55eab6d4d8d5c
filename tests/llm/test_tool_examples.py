"""docs/examples/llm_tools.py and the program of docs/llm/tools.md against a real daemon with the demo backend."""

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


def test_the_program_of_the_page_works(run: Run, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "llm" / "tools.md").read_text()
    program = page.split("```python\n")[1].split("```")[0]
    for shown, ours in (
        ('"claude", "/srv/app"', f'"demo", {str(tmp_path)!r}'),
        ('"What is 2 + 3? Use the tool."', repr('@mcp add {"a": 2, "b": 3}\nIt is five.')),
    ):
        assert shown in program
        program = program.replace(shown, ours)
    done = run("-c", program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "It is five.\n", "")
