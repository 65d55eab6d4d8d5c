"""`clisup run` on a terminal asks the person there: a real daemon, a real command, a real pseudo-terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from harness import Harness
from pty_terminal import Terminal
from test_approvals import ASK, agent  # noqa: F401  # the fixture
from wire import PATIENCE_S

QUESTION = "[d]eny with a message: "


@pytest.fixture
def terminal(agent: Callable[..., Harness]) -> Iterator[Callable[..., Terminal]]:  # noqa: F811
    made: list[Terminal] = []

    def start(prompt: str) -> Terminal:
        daemon = made[0].daemon if made else agent()  # type: ignore[attr-defined]
        made.append(Terminal(daemon, "run", "-b", "agent", "-C", str(daemon.cwd), prompt))
        made[-1].daemon = daemon  # type: ignore[attr-defined]
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        os.close(one.ours)


@pytest.mark.parametrize(
    ("typed", "option", "code"), [("y\n", "allow_once", 0), ("n\n", "reject_once", 77), ("always\n", "allow_always", 0)]
)
def test_one_key_answers(terminal: Callable[..., Terminal], typed: str, option: str, code: int) -> None:
    one = terminal(f"{ASK}\nsay  and done")
    one.until(QUESTION)
    assert re.search(r"approval: Bash \(Bash\?\)\s+command:\s+\| git status", one.text)
    one.type(typed)
    one.until(f"[{option}] and done")
    assert one.exit_code() == code


def test_a_denial_may_have_a_message_and_an_unknown_key_asks_again(terminal: Callable[..., Terminal]) -> None:
    one = terminal(f"{ASK}\nsay  so")
    one.until(QUESTION)
    one.type("what\n")
    one.until(QUESTION, 2)
    one.type("d\n")
    one.until("message to the model: ")
    one.type("not today\n")
    one.until("[reject_once] so")
    one.until("not today", 2)
    assert one.exit_code() == 77


def test_a_question_that_somebody_else_answers_is_taken_away_and_its_key_answers_no_other(
    terminal: Callable[..., Terminal],
) -> None:
    one = terminal('ask One {"n": "1"}\nask Two {"n": "2"}')
    one.until(QUESTION)
    one.type("y")  # not yet Enter: somebody else is faster
    daemon = one.daemon  # type: ignore[attr-defined]
    (first,) = daemon.call("approval/list")["approvals"]
    daemon.call("approval/respond", approval_id=first["approval_id"], session_id=first["session_id"], decision="deny")
    one.until("approval: Two")
    one.until(QUESTION, 2)
    assert one.text.index("approval: deny One") < one.text.index("approval: Two")
    (second,) = daemon.call("approval/list")["approvals"]
    one.type("n\n")
    one.until("[reject_once]", 2)
    assert one.exit_code() == 77
    assert second["tool_name"] == "Two"


def test_ctrl_c_at_a_question_interrupts_the_turn(terminal: Callable[..., Terminal]) -> None:
    one = terminal(ASK)
    one.until(QUESTION)
    one.type("\x03")
    one.until("interrupting the turn")
    assert one.exit_code() == 130
    assert not one.daemon.call("approval/list")["approvals"]  # type: ignore[attr-defined]


def test_ctrl_d_leaves_the_question_to_others(terminal: Callable[..., Terminal]) -> None:
    one = terminal(ASK)
    one.until(QUESTION)
    one.type("\x04")
    one.until("left open: see clisup approvals")
    (left,) = one.daemon.call("approval/list")["approvals"]  # type: ignore[attr-defined]
    answer = [sys.executable, "-m", "clisup", "approvals", "allow", left["approval_id"]]
    env = {**one.daemon.env, "CLISUP_SOCKET": one.daemon.socket}  # type: ignore[attr-defined]
    done = subprocess.run(answer, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == "allow: Bash git status\n"
    one.until("[allow_once]")
    assert one.exit_code() == 0
