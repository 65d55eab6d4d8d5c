"""Questions and plans of a CLI at the terminal: a real daemon, the demo, `run` and `attach` on a real pseudo-terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from harness import Harness, until
from pty_terminal import Terminal

ASK = "@ask AskUserQuestion " + json.dumps({
    "questions": [
        {"question": "Which database?", "header": "Store", "multiSelect": False,
         "options": [{"label": "SQLite", "description": "one file"}, {"label": "Postgres", "description": "a server"}]},
        {"question": "Which checks?", "header": "Checks", "multiSelect": True,
         "options": [{"label": "lint", "description": ""}, {"label": "tests", "description": ""}]},
    ]
})  # fmt: skip
PLAN = "@ask ExitPlanMode " + json.dumps({"plan": "# Move it\n1. Copy.\n2. Delete."})
FIRST, SECOND = "answer (1-2, or your own words; /deny refuses): ", "answer (1-2, or several as 1,2"


def opened(daemon: Harness, terminal: Callable[..., Terminal], command: str, prompt: str) -> Terminal:
    """The prompt in a live session, with `run` or `attach` at it."""
    if command == "run":
        return terminal("run", "-b", "demo", "--live", "-C", str(daemon.cwd), prompt)
    session = daemon.new(mode="live")
    session.prompt(prompt)
    session.await_event("approval_requested")
    return terminal("attach", session.id[:8])


def newest(daemon: Harness, kind: str) -> list[dict[str, Any]]:
    """The events of this type of the newest session."""
    session = max(daemon.call("session/list")["sessions"], key=lambda row: str(row["created_at"]))
    events = daemon.call("session/events", session_id=session["session_id"])["events"]
    return [event for event in events if event["type"] == kind]


@pytest.mark.parametrize("command", ["run", "attach"])
def test_questions_are_asked_one_after_the_other_and_the_answers_reach_the_cli(
    daemon: Harness, terminal: Callable[..., Terminal], command: str
) -> None:
    one = opened(daemon, terminal, command, f"{ASK}\nThat is all.")
    one.until(FIRST)
    bare = re.sub(r"\r|\033\[[0-9;?]*[A-Za-z]", "", one.text)
    assert "question 1 of 2 (Store):\n  | Which database?\n  1) SQLite - one file\n  2) Postgres - a server\n" in bare
    one.type("9\n")
    one.until("there is no choice 9")
    one.until(FIRST, 2)
    one.type("=9\n")
    one.until(SECOND)
    one.type("2,1\n")
    until(lambda: newest(daemon, "turn_completed"))
    (result,) = newest(daemon, "tool_result")
    assert '"Which database?"="9", "Which checks?"="tests, lint"' in result["content"]


@pytest.mark.parametrize("command", ["run", "attach"])
@pytest.mark.parametrize(
    ("typed", "said"), [("y\n", None), ("n\n", "Keep planning."), ("d\nfirst the tests\n", "first the tests")]
)
def test_a_plan_is_shown_and_approved_or_sent_back(
    daemon: Harness, terminal: Callable[..., Terminal], command: str, typed: str, said: str | None
) -> None:
    one = opened(daemon, terminal, command, f"{PLAN}\nThat is all.")
    one.until("approve the plan? [y]es, [n]o: keep planning")
    assert "| 1. Copy." in one.text
    for line in typed.splitlines(keepends=True):
        one.type(line)
        if line == "d\n":
            one.until("message to the model: ")
    until(lambda: newest(daemon, "turn_completed"))
    (resolved,) = newest(daemon, "approval_resolved")
    assert resolved["decision"] == ("deny" if said else "allow")
    assert said is None or said in resolved["message"]
