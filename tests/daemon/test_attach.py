"""`clisup attach` on a real pseudo-terminal, over a real daemon."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness import Harness, until
from pty_terminal import Terminal
from session_probe import SessionProbe
from wire import PATIENCE_S

from clisup.cli.attach import last_start
from clisup.client.sync import Client

QUESTION = "[d]eny with a message: "
ASK = '@run Bash {"command": "echo made > made.txt"}'


@pytest.fixture
def attach(daemon: Harness) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def start(session: SessionProbe, *args: str, **options: Any) -> Terminal:
        made.append(Terminal(session.daemon, "attach", session.id[:8], *args, **options))
        made[-1].until("Ctrl-D leaves]")
        return made[-1]

    yield start
    for one in made:
        one.close()


def seen(one: Terminal) -> str:
    """What was printed, without what moves the cursor."""
    return re.sub(r"\r|\033\[[0-9;?]*[A-Za-z]", "", one.text)


def test_a_typed_line_is_a_prompt_and_the_answer_streams(daemon: Harness, attach: Callable[..., Terminal]) -> None:
    session = daemon.new()
    one = attach(session)
    one.until("> ")
    one.type("hello there\n")
    one.until("You said: hello there")
    one.until("-- t1 completed")
    one.type("and again\n")
    one.until("You said: and again")
    one.until("-- t2 completed")
    one.type("\x04")
    assert one.exit_code() == 0
    assert seen(one).count("You said: hello there") == 1
    assert session.get()["state"] == "idle", "the session goes on"


def test_the_answer_is_drawn_as_markdown_and_an_edit_as_a_coloured_diff(
    daemon: Harness, attach: Callable[..., Terminal]
) -> None:
    session = daemon.new()
    edit = {"file_path": "a.py", "old_string": "old line\n", "new_string": "new\x1b[2J line\n"}
    session.ask(f"@tool Edit {json.dumps(edit)}\n# Head\n\nHello **you**, `x`.")
    one = attach(session)
    one.until("-- t1 completed")
    assert "\033[1mHead\033[0m" in one.text and "\033[36mx\033[0m" in one.text and "**" not in one.text
    assert "\033[31m  - old line\033[0m" in one.text
    assert "\033[32m  + new\N{REPLACEMENT CHARACTER}[2J line\033[0m" in one.text


def test_a_running_turn_has_a_status_line_with_its_tokens_and_cost(serve: Callable[..., Harness]) -> None:
    daemon = serve(raw='[prices."demo-*"]\ninput = 1000.0\noutput = 2000.0')
    session = daemon.new()
    go = daemon.cwd / "go-status"
    session.prompt(f"@bash true\n@wait-file {go}\nDone.")
    one = Terminal(daemon, "attach", session.id)
    try:
        one.until(" tokens, ~$")
        one.type("half")
        one.until("> half")
        go.touch()
        one.until("-- t1 completed")
        one.until("> half", 2)
    finally:
        one.close()


def test_history_begins_with_the_last_turn_or_where_it_is_told_to(
    daemon: Harness, attach: Callable[..., Terminal]
) -> None:
    session = daemon.new()
    for word in ("first", "second"):
        session.ask(word)
    one = attach(session)
    one.until("-- t2 completed")
    assert "You said: second" in one.text and "first" not in one.text
    everything = attach(session, "--since", "all")
    everything.until("-- t2 completed")
    assert everything.text.index("You said: first") < everything.text.index("You said: second")
    fresh = attach(session, "--since", "now")
    session.ask("third")
    fresh.until("You said: third")
    assert "second" not in fresh.text
    one.until("You said: third")


def test_the_last_turns_start_is_found_from_the_end(daemon: Harness) -> None:
    session = daemon.new()
    session.ask("@stream 700")
    session.ask("@stream 700")
    (_, start) = session.events("turn_started")
    with Client.connect(daemon.socket) as client:
        assert last_start(client, client.call("session/get", session_id=session.id)) == start["seq"] - 1
        empty = daemon.new()
        assert last_start(client, client.call("session/get", session_id=empty.id)) == 0


def test_a_prompt_that_is_typed_while_a_turn_runs_waits_for_its_turn(
    daemon: Harness, attach: Callable[..., Terminal]
) -> None:
    session = daemon.new()
    go = daemon.cwd / "go-queue"
    session.prompt(f"Working.\n@wait-file {go}\nDone with it.")
    one = attach(session)
    one.until("Working.")
    one.type("what next?\n")
    one.until("[queued at 1: another turn is running]")
    go.touch()
    one.until("You said: what next?")
    text = seen(one)
    assert text.index("Done with it.") < text.index("-- t1 completed") < text.index("You said: what next?")


def test_what_is_typed_is_not_cut_by_what_comes(daemon: Harness, attach: Callable[..., Terminal]) -> None:
    session = daemon.new()
    go, more = daemon.cwd / "go-typing", daemon.cwd / "more-typing"
    session.prompt(f"@text One\n@wait-file {go}\n@text  line.\\n\n@touch {more}\n@stall")
    one = attach(session)
    one.until("One")
    one.type("half a tho")
    one.until("> half a tho")
    go.touch()
    until(more.exists)
    one.type("ught")
    one.until("> half a thought")
    assert "half a tho line" not in seen(one)
    one.type("\x15")
    one.until("line.")
    session.call("interrupt")


def test_with_steer_the_line_goes_into_the_running_turn(daemon: Harness, attach: Callable[..., Terminal]) -> None:
    session = daemon.new(mode="live")
    go = daemon.cwd / "go-steer"
    turn = session.prompt(f"@bash until test -e {go}; do sleep 0.05; done\nFirst part.")
    session.await_event("tool_use")
    one = attach(session, "--steer")
    one.until("tool: Bash")
    one.type("Steered words.\n")
    until(lambda: session.events("prompt_accepted", delivery="steered"))
    go.touch()
    one.until("Steered words.", 2)
    assert session.end_of(turn)["outcome"] == "completed"


def test_the_words_that_others_steer_into_the_turn_are_shown_and_ones_own_once(
    daemon: Harness, attach: Callable[..., Terminal]
) -> None:
    session = daemon.new(mode="live")
    go = daemon.cwd / "go-steered"
    turn = session.prompt(f"@bash until test -e {go}; do sleep 0.05; done\nFirst part.")
    session.await_event("tool_use")
    one = attach(session, "--steer")
    one.until("tool: Bash")
    session.call("prompt", prompt="@text from \x1b[2J elsewhere", when_busy="steer")
    one.until("steered: @text from \N{REPLACEMENT CHARACTER}[2J elsewhere")
    one.type("@text typed here\n")
    until(lambda: len(session.events("prompt_accepted", delivery="steered")) == 2)
    go.touch()
    assert session.end_of(turn)["outcome"] == "completed"
    one.until(f"-- {turn} completed")
    assert "steered: @text typed here" not in one.text


@pytest.mark.parametrize(("typed", "decision"), [("y\n", "allow"), ("n\n", "deny"), ("what\nd\nnot now\n", "deny")])
def test_an_approval_is_asked_in_place(
    daemon: Harness, attach: Callable[..., Terminal], typed: str, decision: str
) -> None:
    session = daemon.new(mode="live")
    turn = session.prompt(f"{ASK}\nAfter it.")
    session.await_event("approval_requested")
    one = attach(session)
    one.until(QUESTION)
    assert "echo made > made.txt" in one.text
    one.type(typed)
    assert session.end_of(turn)["outcome"] == "completed"
    one.until(f"approval: {decision} Bash")
    one.until("After it.")
    (resolved,) = session.events("approval_resolved")
    assert (resolved["decision"], resolved["actor"]["client"]) == (decision, "clisup-attach")
    assert resolved.get("message") == ("not now" if "not now" in typed else None)


def test_a_question_that_somebody_else_answers_goes_and_gives_the_typed_text_back(
    daemon: Harness, attach: Callable[..., Terminal]
) -> None:
    session = daemon.new(mode="live")
    go = daemon.cwd / "go-stash"
    turn = session.prompt(f"Soon.\n@wait-file {go}\n{ASK}")
    one = attach(session)
    one.until("Soon.")
    one.type("my next prompt")
    one.until("> my next prompt")
    go.touch()
    one.until(QUESTION)
    (open_,) = daemon.call("approval/list", session_id=session.id)["approvals"]
    daemon.call("approval/respond", approval_id=open_["approval_id"], session_id=session.id, decision="deny")
    session.end_of(turn)
    one.until("approval: deny Bash")
    one.until("> my next prompt", 2)
    one.type("\n")
    one.until("You said: my next prompt")


def test_ctrl_c_interrupts_and_a_second_one_leaves(daemon: Harness, attach: Callable[..., Terminal]) -> None:
    session = daemon.new()
    turn = session.prompt("Begun.\n@stall")
    one = attach(session)
    one.until("Begun.")
    one.type("\x03")
    one.until("[interrupting the turn; Ctrl-C again leaves]")
    assert session.end_of(turn)["outcome"] == "interrupted"
    one.until("-- t1 interrupted")
    turn = session.prompt("@ignore-int\nAnother.\n@stall")
    session.await_event(
        "content_delta", turn_id=turn
    )  # the terminal shows the prompt before, and the CLI would heed it
    one.until("Another.")
    one.type("\x03")
    one.until("Ctrl-C again leaves]", 2)
    one.type("\x03")
    assert one.exit_code() == 0
    session.call("interrupt", mode="kill")


def test_a_restart_of_the_daemon_is_no_end_and_doubles_no_line(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new()
    go = daemon.cwd / "go"
    session.prompt(f"@stream 20 14 0.01\n@bash echo tool ran\n@wait-file {go}\n@stream 20 14 0.01")
    one = Terminal(daemon, "attach", session.id)
    try:
        one.until("tool: Bash")
        daemon.kill()
        one.until("[connection lost; trying again]")
        one.type("typed meanwhile\n")
        daemon.start()
        one.until("[connected again]")
        one.until("[queued at 1")
        go.touch()
        one.until("You said: typed meanwhile")
        one.until("-- t2 completed")
        one.type("\x04")
        assert one.exit_code() == 0
        assert seen(one).count("chunk 0000") == 40
        assert seen(one).count("tool: Bash") == seen(one).count("-- t1 completed") == 1
    finally:
        one.close()


def test_pasted_lines_are_one_prompt(daemon: Harness, attach: Callable[..., Terminal]) -> None:
    session = daemon.new()
    one = attach(session)
    one.type("\033[200~line one\nline two\033[201~\n")
    one.until("-- t1 completed")
    (end,) = session.events("turn_completed")
    assert end["text"] == "You said: line one\nline two"


def test_the_terminal_is_left_as_it_was_found_also_after_a_sigterm(
    daemon: Harness, attach: Callable[..., Terminal]
) -> None:
    one = attach(daemon.new())
    one.until("> ")
    before = termios.tcgetattr(one.ours)[3]
    assert not before & termios.ECHO
    os.kill(one.process.pid, signal.SIGTERM)
    assert one.exit_code() == 128 + signal.SIGTERM
    assert termios.tcgetattr(one.ours)[3] & termios.ECHO


def test_top_gives_the_terminal_back_after_a_sigterm(daemon: Harness) -> None:
    one = Terminal(daemon, "top")
    try:
        one.until("quit")
        os.kill(one.process.pid, signal.SIGTERM)
        assert one.exit_code() == 128 + signal.SIGTERM
        one.until("\033[?1049l")
        assert termios.tcgetattr(one.ours)[3] & termios.ECHO
    finally:
        one.close()


def test_it_ends_when_the_session_is_closed(daemon: Harness, attach: Callable[..., Terminal]) -> None:
    session = daemon.new()
    one = attach(session)
    session.call("close")
    one.until("[the session was closed]")
    assert one.exit_code() == 0


def test_without_a_terminal_it_says_what_to_use_instead(daemon: Harness) -> None:
    session = daemon.new()
    for args, said in ((["attach", session.id], "not a terminal"), (["top"], "not a terminal")):
        argv = [sys.executable, "-m", "clisup", *args]
        env = {**daemon.env, "CLISUP_SOCKET": daemon.socket}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr and "clisup logs" in done.stderr


@pytest.mark.parametrize("colour", [{}, {"NO_COLOR": "1"}])
def test_top_draws_on_a_real_terminal_and_gives_it_back(daemon: Harness, colour: dict[str, str]) -> None:
    session = daemon.new()
    session.ask("seen in top")
    daemon.env |= {"COLORTERM": "truecolor", **colour}
    one = Terminal(daemon, "top", size=(100, 30))
    try:
        one.until(session.id[:8])
        one.until("quit")
        one.type("q")
        assert one.exit_code() == 0
        one.until("\033[?1049l")
        codes = {int(code) for said in re.findall(r"\033\[([0-9;]+)m", one.text) for code in said.split(";")[:2]}
        coloured = codes & {*range(30, 39), *range(40, 49), *range(90, 108)}
        assert bool(coloured) != bool(colour), coloured
    finally:
        daemon.env.pop("NO_COLOR", None)
        one.close()
