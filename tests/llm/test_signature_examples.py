"""The examples of tools, signatures, budgets and workflows, whole, against a real daemon with the demo backend."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

import pytest
from harness import ENVIRONMENT, PATIENCE_S, Harness

from tests.docs.blocks import Block, blocks

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture
def run(serve: Callable[..., Harness], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`run("llm_budget.py", "demo", ...)` in a directory of its own."""
    daemon = serve()
    env = {**ENVIRONMENT, "PYTHONPATH": str(ROOT), "CLISUP_SOCKET": daemon.socket}

    def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(EXAMPLES / program), *words]
        return subprocess.run(
            command, env=env, cwd=tmp_path, text=True, capture_output=True, timeout=PATIENCE_S * 2, check=False
        )

    return run


def test_a_ticket_is_sorted_and_answered(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    said = '{"reasoning": "Fire.", "kind": "bug", "urgency": 5, "reply": "Step back."}'
    ran = run("llm_signatures.py", "demo", f"It burns.\n@structured {said}")
    assert ran.stdout == "because: Fire.\nbug, urgency 5\nStep back.\n", ran.stderr


def test_files_are_asked_about_until_the_budget_is_used_up(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    for name in "abc":
        (tmp_path / name).write_text(f'A text.\n@cost 0.2\n@structured {{"answer": "{name * 3}"}}\n')
    ran = run("llm_budget.py", "demo", "1.0", "Sum it up:", "a", "b", "c")
    assert (ran.returncode, sorted(ran.stdout.splitlines())) == (0, ["a: aaa", "b: bbb", "c: ccc"]), ran.stderr
    assert "used: $0.6000" in ran.stderr
    (tmp_path / "d").write_text('@cost 5\n@structured {"answer": "d"}\n')
    ran = run("llm_budget.py", "demo", "1.0", "Sum it up:", *["d"] * 6)
    assert ran.returncode == 1
    assert "the budget of the files is used up" in ran.stderr


def test_a_workflow_ends_and_is_not_asked_twice(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    words = ("llm_workflow.py", "demo", "t.jsonl", "40", "@text A daemon waits, and does what it is asked to.")
    ran = run(*words)
    assert ran.returncode == 0, ran.stderr
    assert "round 1, write: answers of the model: 1\nround 1, check: answers of the model: 0\ndone ($" in ran.stdout
    again = run(*words)
    assert "round 1, write: from the trace\nround 1, check: from the trace\ndone ($" in again.stdout
    never = run("llm_workflow.py", "demo", "u.jsonl", "1", "@text Too many words.")
    assert (never.returncode, "max_rounds ($" in never.stdout) == (1, True), never.stderr


# what stands around a page's program, and what it says with the demo backend in the place of the others
BEFORE_AND_AFTER: dict[str, list[tuple[str, str, str]]] = {
    "llm/tools.md": [
        ("", "", "3\n"),
        (
            "rates = {'EUR': 2.0}",
            "import trio; print(trio.run(exchange.run, {'amount': '3'}).content)",
            '{"EUR":6.0}\n',
        ),
        (
            "from clisup.llm import tool\n@tool\ndef add(a: int, b: int) -> int:\n    'Add.'\n    return a + b",
            "",
            "It is five.\n",
        ),
        ("", "", "That is all.\n"),
    ],
    "llm/signatures.md": [
        ("", "", "bug 1\n"),
        (
            "",
            "import trio; from clisup.llm import *; desk = Desk(); desk.model = resolve('demo')\nprint(trio.run(lambda: desk('x')))",
            "demo\n",
        ),
    ],
    "reference/budgets.md": [
        (
            "import clisup.client.sync; client = clisup.client.sync.Client.connect()",
            "session.close(); client.close()",
            "",
        ),
        ("import trio; texts = ['@cost 0.5']", "trio.run(main)", "*$0.5000, * tokens, 1 iteration, * s\n"),
        (
            "import trio; from clisup.llm import Budget, resolve; budget = Budget(usd=2)",
            "print(trio.run(ask, resolve('demo'), 'Hi').text, budget.spent.answers)",
            "You said: Hi 1\n",
        ),
    ],
    "llm/workflows.md": [("", "", "max_rounds demo $*")],
}
SHOWN = [
    (block, *around)
    for page, all_around in BEFORE_AND_AFTER.items()
    for block, around in zip(
        [block for block in blocks(ROOT / "docs" / page) if block.language == "python"], all_around, strict=True
    )
]


@pytest.mark.parametrize(("block", "before", "after", "says"), SHOWN, ids=lambda part: getattr(part, "at", ""))
def test_what_a_page_shows_works(
    serve: Callable[..., Harness], tmp_path: Path, block: Block, before: str, after: str, says: str
) -> None:
    env = {**ENVIRONMENT, "PYTHONPATH": str(ROOT), "CLISUP_SOCKET": serve().socket}
    program = re.sub(r'"claude(/\w+)?"', '"demo"', f"{before}\n{block.text}\n{after}").replace(
        "/srv/app", str(tmp_path)
    )
    command = [sys.executable, "-W", "error", "-c", program]
    ran = subprocess.run(
        command, env=env, cwd=tmp_path, text=True, capture_output=True, timeout=PATIENCE_S * 2, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert fnmatch(ran.stdout, says), ran.stdout
