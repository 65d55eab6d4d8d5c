"""The examples of docs/start/clients.md, as they stand there, against a real daemon; and what deleting does to a durable place."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Harness, until

import clisup
from clisup.client.sync import Client

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "start" / "clients.md").read_text()
EXAMPLES: list[str] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
FIRST = [code for code in EXAMPLES if "as it is made" in code]
ENDLESS = [code for code in EXAMPLES if 'name="example' in code]
BOTH = ["blocking", "trio"]


def environment(daemon: Harness) -> dict[str, str]:
    path = str(Path(clisup.__file__).parents[1])
    return {"PATH": os.environ["PATH"], "PYTHONPATH": path, "CLISUP_SOCKET": daemon.socket}


def test_both_clients_have_their_examples() -> None:
    for codes in (FIRST, ENDLESS):
        assert ["clisup.client.sync" in code for code in codes] == [True, False]


ELSEWHERE = {"session_budget.py": "reference/budgets.md"}  # pages beside the how-tos that lead to one


@pytest.mark.parametrize(
    "program",
    sorted(p.name for p in (ROOT / "docs" / "examples").iterdir() if p.is_file() and not p.name.startswith("llm_")),
)
def test_a_page_shows_a_whole_program_as_it_is_or_leads_to_it(program: str) -> None:
    pages = [PAGE, *(path.read_text() for path in (ROOT / "docs" / "how-to").glob("*.md"))]
    shown = sum(f"\n{(ROOT / 'docs' / 'examples' / program).read_text()}```\n" in page for page in pages)
    if program in ELSEWHERE:
        assert f"(../examples/{program})" in (ROOT / "docs" / ELSEWHERE[program]).read_text()
        return
    assert shown or any(f"(../examples/{program})" in page for page in pages)


@pytest.mark.parametrize("code", FIRST, ids=BOTH)
def test_what_is_shown_first_works_and_leaves_no_session_open(serve: Callable[..., Harness], code: str) -> None:
    daemon = serve()
    argv = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(argv, env=environment(daemon), capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("You said: Say hello.\nYou said: And again, as it is made.", "")
    assert daemon.call("session/list")["sessions"] == []


@pytest.mark.parametrize("code", ENDLESS, ids=BOTH)
def test_an_example_prints_each_event_once_over_two_runs(serve: Callable[..., Harness], code: str) -> None:
    daemon = serve()
    session = daemon.new()
    printed = []
    for prompt in ("one", "two"):
        session.ask(prompt)
        argv = [sys.executable, "-c", code]
        with subprocess.Popen(argv, env=environment(daemon), stdout=subprocess.PIPE, text=True) as example:
            assert example.stdout is not None
            for line in example.stdout:
                printed.append(line.split())
                if line.endswith("turn_completed\n"):
                    break
            name = re.findall(r'name="([a-z-]+)"', code)[0]
            last = int(printed[-1][1])
            until(lambda name=name, last=last: session.call("ack", name=name, seq=0)["seq"] == last)
            example.kill()
    expected = [[session.id[:8], str(e["seq"]), e["type"]] for e in session.events() if e["type"] != "content_delta"]
    assert printed == expected


def test_a_prompt_of_the_page_runs_once(serve: Callable[..., Harness], capsys: pytest.CaptureFixture[str]) -> None:
    session = serve().new()
    code = next(code for code in EXAMPLES if "order-4711" in code)
    with Client.connect(session.daemon.socket) as client:
        for _ in range(2):
            exec(code, {"session": client.attach(session.id)})
    assert capsys.readouterr().out == "completed You said: Say hello.\n" * 2
    assert len(session.events("turn_completed")) == 1


def test_a_durable_place_forgets_a_session_that_is_deleted(serve: Callable[..., Harness]) -> None:
    """One that is opened anew under the same id is given whole."""
    daemon = serve()
    session = daemon.new()
    session.ask("one")
    with Client.connect(daemon.socket) as client:
        for _ in range(2):
            with client.follow("*", 0, name="audit") as events:
                heard = [next(events)]
                while heard[-1]["type"] != "turn_completed":
                    heard.append(next(events))
                assert heard == session.events()
                events.ack(heard[-1])
            session.call("close")
            session.call("delete")
            daemon.new(session_id=session.id).ask("another")
