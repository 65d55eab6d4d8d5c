"""The end of an ACP turn: words behind the answer to the prompt belong to the turn, and an agent that says nothing more ends it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness

AGENT = Path(__file__).with_name("dialogue_agent.py")
MODES = pytest.mark.parametrize("mode", ["one-shot", "live"])


@pytest.fixture
def agent(serve: Callable[..., Harness], tmp_path: Path) -> Harness:
    """A daemon with the agent as its backend `agent`, and with `tail` seconds for an agent that does not answer."""
    command = json.dumps([sys.executable, str(AGENT), str(tmp_path / "told")])
    return serve(raw=f'[backends.agent]\nkind = "acp"\ncommand = {command}\n[backends.agent.timeouts]\ntail = 0.5\n')


def texts(session: Any) -> list[str]:
    return [event["text"] for event in session.events("content_delta")]


@pytest.mark.fault(93)
@MODES
def test_words_behind_the_end_of_an_answer_belong_to_it(agent: Harness, mode: str, tmp_path: Path) -> None:
    session = agent.new(backend="agent", mode=mode)
    for number in (1, 2):
        turn = session.prompt(f"say fourty-\ntail wait {tmp_path}/go{number}\ntail say two")
        session.await_event("content_delta", number * 2 - 1)
        (tmp_path / f"go{number}").touch()
        end = session.end_of(turn)
        assert (end["outcome"], end["text"]) == ("completed", "fourty-two")
    assert texts(session) == ["fourty-", "two"] * 2
    assert [event["blocks"][0]["text"] for event in session.events("message")] == ["fourty-two"] * 2


@pytest.mark.fault(93)
@MODES
def test_an_agent_that_answers_no_unknown_request_ends_its_turns_all_the_same(agent: Harness, mode: str) -> None:
    session = agent.new(backend="agent", mode=mode)
    for word in ("one", "two"):
        end = session.ask(f"mute\nsay {word}")
        assert (end["outcome"], end["text"]) == ("completed", word)
    started, exited = session.events("process_started"), session.events("process_exited")
    assert len(started) == (1 if mode == "live" else 2)
    assert [(event["exit_code"], event.get("signal")) for event in exited] == [(0, None)] * len(exited)


@pytest.mark.fault(93)
@MODES
def test_kill_9_behind_the_end_of_an_answer_doubles_and_loses_nothing(agent: Harness, mode: str) -> None:
    session = agent.new(backend="agent", mode=mode)
    turn = session.prompt("mute\nsay one")
    session.await_event("content_delta")
    agent.restart()
    assert session.end_of(turn)["text"] == "one"
    assert texts(session) == ["one"]
    assert len(session.events("message")) == len(session.events("message_stop")) == 1
    assert len(session.events("turn_completed")) == 1


def test_words_between_two_turns_are_told_without_a_turn(agent: Harness, tmp_path: Path) -> None:
    session = agent.new(backend="agent", mode="live")
    assert session.ask(f"mute\nsay one\ntail wait {tmp_path}/go\ntail say The build is done.")["text"] == "one"
    (tmp_path / "go").touch()
    late = session.await_event("status", status="late_update")
    assert (late["detail"], late.get("turn_id")) == ("agent_message_chunk: The build is done.", None)
    assert session.ask("say two")["text"] == "two"
