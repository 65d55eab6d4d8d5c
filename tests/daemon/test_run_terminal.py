"""`clisup run` as a person sees it: a real daemon and a real pseudo-terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness import Harness
from pty_terminal import Terminal


@pytest.fixture
def terminal(daemon: Harness) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def start(*args: str, **options: Any) -> Terminal:
        made.append(Terminal(daemon, "run", "-b", "demo", "-C", str(daemon.cwd), *args, **options))
        return made[-1]

    yield start
    for one in made:
        one.close()


def screen(text: str) -> list[str]:
    """The lines that are left on the terminal, without colours. What was erased is gone."""
    lines = [line.rsplit("\r\033[K", 1)[-1] for line in text.replace("\r\n", "\n").split("\n")]
    return [re.sub(r"\033\[[0-9;?]*[A-Za-z]", "", line).rstrip() for line in lines]


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_a_status_line_shows_the_work_and_is_gone_at_the_end(terminal: Callable[..., Terminal], columns: int) -> None:
    tool = "@tool Bash " + json.dumps({"command": "make -C " + "a/long/path/" * 30})
    one = terminal(f"{tool}\n@sleep 1\nHello **you**, `x`.\n", size=(columns, 24))
    one.until("continue with: ")
    assert one.exit_code() == 0
    drawn = re.findall(r"\r\033\[K([^\r\n]+?)(?=\r)", one.text)
    bare = [re.sub(r"\033\[[0-9;]*m", "", line) for line in drawn]
    bare = [line for line in bare if line[0] in "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"]
    assert bare, "it was drawn"
    assert all(len(line) < columns for line in bare), "a line that wraps cannot be erased"
    left = screen(one.text)
    assert re.fullmatch(r"session [0-9a-f-]{36} \(demo\)", left[0])
    assert "Hello you, x." in left
    assert not [line for line in left if line.startswith(tuple("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"))]
    assert "\033[36mx\033[0m" in one.text


def test_the_status_line_has_the_cost_so_far_where_it_can_be_estimated(serve: Callable[..., Harness]) -> None:
    daemon = serve(raw='[prices."demo-*"]\ninput = 1000.0\noutput = 2000.0')
    go = daemon.cwd / "go"
    one = Terminal(daemon, "run", "-b", "demo", "-C", str(daemon.cwd), f"@bash true\n@wait-file {go}\nDone.")
    try:
        one.until(" tokens, ~$")
        go.touch()
        one.until("continue with: ")
        assert one.exit_code() == 0
    finally:
        one.close()


def test_an_edit_is_shown_as_a_coloured_diff(terminal: Callable[..., Terminal]) -> None:
    edit = {"file_path": "a.py", "old_string": "old line\n", "new_string": "new\x1b[2J line\n"}
    one = terminal(f"@tool Edit {json.dumps(edit)}\nDone.")
    one.until("continue with: ")
    assert "\033[31m  - old line\033[0m" in one.text
    assert "\033[32m  + new\N{REPLACEMENT CHARACTER}[2J line\033[0m" in one.text


def test_no_status_line_stands_in_a_question(terminal: Callable[..., Terminal], daemon: Harness) -> None:
    one = terminal("--live", '@ask Bash {"command": "ls"}\nAfter it.')
    one.until("[d]eny with a message: ")
    asked = one.text.index("[d]eny with a message: ")
    one.type("wh")
    one.type("at\n")
    one.until("[d]eny with a message: ", 2)
    assert "\033[K" not in one.text[asked:]
    one.type("y\n")
    one.until("After it.")
    assert one.exit_code() == 0


def test_without_colours_there_are_none(daemon: Harness) -> None:
    daemon.env["NO_COLOR"] = "1"
    one = Terminal(daemon, "run", "-b", "demo", "-C", str(daemon.cwd), "# Head\n\n`x`\n\n@sleep 0.5")
    try:
        one.until("continue with: ")
        assert one.exit_code() == 0
        assert not re.search(r"\033\[[0-9;]*m", one.text)
    finally:
        one.close()
        del daemon.env["NO_COLOR"]


def test_rm_leaves_no_session(terminal: Callable[..., Terminal], daemon: Harness) -> None:
    one = terminal("--rm", "--title", "Short lived", "Hello.")
    one.until("Hello.")
    assert one.exit_code() == 0
    rows = [*daemon.call("session/list")["sessions"], *daemon.call("session/list", state="closed")["sessions"]]
    assert "Short lived" not in [row["title"] for row in rows]
