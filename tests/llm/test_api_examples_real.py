"""The main loops of docs/examples on the demo and on each API backend: the same program, the same words."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.api.lab import API_KINDS, ApiLab, call, say
from tests.e2e.lab import running
from tests.e2e.scenarios import Body, Reply, Respond, in_turn
from tests.e2e.tools.stage import DemoLab

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
KINDS = ("demo", *API_KINDS)
Run = Callable[..., "subprocess.CompletedProcess[str]"]
SAID = {"reasoning": "Fire.", "kind": "bug", "urgency": 5, "reply": "Step back."}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(kind: str) -> Iterator[Run]:
    """`run("llm_tools.py", words, api=respond)`: the program with the backend's name as its model; it ends well."""
    with ExitStack() as stack:

        def run(program: str, *words: str, api: Respond | None = None) -> subprocess.CompletedProcess[str]:
            lab = stack.enter_context(running(DemoLab() if kind == "demo" or api is None else ApiLab(kind, api)))
            done = subprocess.run(
                [sys.executable, "-W", "error", str(EXAMPLES / program), kind, *words],
                env={"PATH": "/usr/bin:/bin", "HOME": str(lab.home), "CLISUP_SOCKET": lab.socket},
                cwd=lab.cwd, text=True, capture_output=True, timeout=120, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr + lab.log()
            with lab.client() as client:
                assert client.call("session/list")["sessions"] == []
            return done

        yield run


def test_a_program_that_owns_its_loop_runs_the_tools_between_two_requests(run: Run, kind: str) -> None:
    prompt = (
        '@parallel\n@mcp weather {"city": "Oslo"}\n@mcp weather {"city": "Thule"}\n@end\nCold.'
        if kind == "demo"
        else "And?"
    )
    calls = [("weather", {"city": "Oslo"}), ("weather", {"city": "Thule"})]
    api = None if kind == "demo" else in_turn(call(kind, *calls), say(kind, "Cold."))
    lines = run("llm_own_loop.py", prompt, api=api).stdout.splitlines()
    assert sorted(lines[:2]) == [
        "weather {'city': 'Oslo'}: 4 degrees, rain",
        "weather {'city': 'Thule'}: no such city",
    ]
    assert lines[2:] == ["Cold."]


def test_tools_of_the_program_are_called_by_the_model(run: Run, kind: str) -> None:
    def count(item: str) -> tuple[str, dict[str, object]]:
        return ("mcp__clisup__count", {"item": item})

    def take(item: str, number: int) -> tuple[str, dict[str, object]]:
        return ("mcp__clisup__take", {"item": item, "number": number})

    api = None
    if kind != "demo":
        api = in_turn(
            call(kind, count("bolts"), count("nuts")),
            call(kind, take("bolts", 5)),
            call(kind, take("nuts", 50)),
            say(kind, "That is all that I could do."),
        )
    said = run("llm_tools.py", api=api).stdout
    assert "35 bolts are left" in said and "there are only 12 nuts" in said
    assert said.splitlines()[-1] == "{'bolts': 35, 'nuts': 12}"


def test_a_conversation_forgets_what_its_tools_said(run: Run, kind: str) -> None:
    words = iter(["I read the log.", "It was full.", "I said so."])
    api = (lambda body, n: say(kind, next(words))(body, n)) if kind != "demo" else None
    said = run("llm_conversation.py", api=api).stdout
    assert said.count("tokens, chat") == 3


def test_questions_with_types_are_answered_by_values(run: Run, kind: str) -> None:
    prompt = f"It burns.\n@structured {json.dumps(SAID)}" if kind == "demo" else "It burns."

    def answer(body: Body, n: int) -> Reply:
        assert "tools" not in body and "software engineering" not in json.dumps(body)
        named = {"reasoning", "kind", "urgency"} if n == 0 else {"reply"}
        return say(kind, json.dumps({name: SAID[name] for name in SAID if name in named}))(body, n)

    done = run("llm_signatures.py", prompt, api=None if kind == "demo" else answer)
    assert done.stdout == "because: Fire.\nbug, urgency 5\nStep back.\n"


def test_a_workflow_runs_its_stages(run: Run, kind: str) -> None:
    api = None if kind == "demo" else in_turn(say(kind, "A daemon is a program that waits."), say(kind, "It waits."))
    words = ("t.jsonl", "40" if kind == "demo" else "3", "@text It waits.")
    said = run("llm_workflow.py", *words, api=api).stdout
    assert "It waits." in said and ("done (" in said)
    assert ("round 2, write: answers of the model: 1" in said) is (kind != "demo")
