"""The pages and examples of the model layer, as they stand there, against a real daemon with the demo backend."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import ENVIRONMENT, PATIENCE_S, Harness

from tests.docs.blocks import Block, blocks

ROOT = Path(__file__).resolve().parents[2]
PAGES, EXAMPLES = ROOT / "docs" / "llm", ROOT / "docs" / "examples"
SHOWN = [
    block
    for name in ("README.md", "models.md", "testing.md")
    for block in blocks(PAGES / name)
    if block.language == "python" and not block.text.startswith('"""')  # those are whole programs of docs/examples
]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(serve: Callable[..., Harness], tmp_path: Path) -> Run:
    """Run python with these words in a directory of its own, and find no session after it."""
    daemon = serve()
    env = {**ENVIRONMENT, "PYTHONPATH": str(ROOT), "CLISUP_SOCKET": daemon.socket, "HOME": str(tmp_path)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-W", "error", *words]
        done = subprocess.run(argv, env=env, cwd=tmp_path, text=True, capture_output=True, timeout=PATIENCE_S * 2)
        assert daemon.call("session/list")["sessions"] == []
        return done

    return run


SAYS = {
    "README.md": [
        "You said: Say hello.\n",
        "You said: Say hello.\nYou said: And again, as it is made.\nturn 2\n",
        "City 0\n",
        "You said: Say hello.\n",
    ],
    "testing.md": ["", "You said: Say hello.\nYou said: Say hello.\n"],
}


@pytest.mark.parametrize("block", SHOWN, ids=lambda block: block.at)
def test_what_a_page_shows_works(run: Run, tmp_path: Path, block: Block) -> None:
    (tmp_path / "shot.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    done = run("-c", block.text)
    assert (done.returncode, done.stderr) == (0, "")
    of_its_page = [other for other in SHOWN if other.page == block.page]
    if says := SAYS.get(Path(block.page).name):
        assert len(says) == len(of_its_page)
        assert done.stdout == says[of_its_page.index(block)]


def test_the_quickstart_shows_text_tools_and_the_end(run: Run) -> None:
    done = run(str(EXAMPLES / "llm_quickstart.py"), "demo", "Look:\n@tool Read {} => inside\nThat was all.", "@count")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Look:\n[Read {}]\n[ok: 'inside']\nThat was all.\n[demo, " in done.stdout
    assert "turn 2" in done.stdout and "(reported)]" in done.stdout
    failed = run(str(EXAMPLES / "llm_quickstart.py"), "demo", "@error rate_limit")
    assert (failed.returncode, failed.stderr.partition(":")[0]) == (75, "rate_limit")


@pytest.mark.parametrize(
    "name", ["budget", "fallbacks", "own_loop", "quickstart", "signatures", "structured", "workflow"]
)
def test_a_program_without_words_says_which_it_takes(run: Run, name: str) -> None:
    done = run(str(EXAMPLES / f"llm_{name}.py"))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"\n    python llm_{name}.py claude/haiku" in done.stderr or 'llm_fallbacks.py "Name' in done.stderr
    assert "Traceback" not in done.stderr


def test_invoices_become_values_and_what_is_none_is_said(run: Run, tmp_path: Path) -> None:
    value = '{"number": "A7", "day": "2026-01-02", "total": "12.5", "currency": "EUR"}'
    (tmp_path / "good.txt").write_text(f"@structured {value}")
    (tmp_path / "bad.txt").write_text("@unstructured\n@text No invoice.")
    program = str(EXAMPLES / "llm_structured.py")
    assert run(program, "demo", "good.txt").stdout == "good.txt: A7 of 2026-01-02: 12.50 EUR\n"
    done = run(program, "demo", "bad.txt", "good.txt")
    assert done.returncode == 1 and done.stdout.startswith("good.txt")
    assert done.stderr.startswith("bad.txt: ")


def test_the_first_model_that_can_answers(run: Run) -> None:
    program = str(EXAMPLES / "llm_fallbacks.py")
    done = run(program, "Hi", "nonsense/model", "demo")
    assert (done.stdout, done.stderr) == ("demo: You said: Hi\n", "nonsense/model: backend_not_found, now demo\n")
    nobody = run(program, "@error overloaded", "demo")
    assert nobody.returncode == 1
    assert nobody.stderr.count("demo: overloaded, once more in") == 2
    assert "nobody answered; the last one said: " in nobody.stderr


def test_the_tests_of_the_example_pass(run: Run) -> None:
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "llm_testing.py"), "-c", "/dev/null")
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_every_example_of_the_layer_is_tested_and_a_page_leads_to_it() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    pages = "".join(path.read_text() for path in [*PAGES.glob("*.md"), ROOT / "docs" / "reference" / "budgets.md"])
    for path in EXAMPLES.glob("llm_*.py"):
        assert f'"{path.name}"' in tests, f"{path.name} is not run"
        assert f"(../examples/{path.name})" in pages, f"no page leads to {path.name}"


def test_a_program_that_a_page_shows_is_the_one_of_the_examples() -> None:
    programs = {path.read_text() for path in EXAMPLES.glob("llm_*.py")}
    for page in PAGES.glob("*.md"):
        for text in re.findall(r'```python\n(""".*?)```\n', page.read_text(), re.DOTALL):
            assert text in programs, f"{page.name} shows a program that is none of docs/examples"
