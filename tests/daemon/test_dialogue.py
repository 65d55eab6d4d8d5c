"""A CLI that is talked to: what the daemon says on its stdin comes there once and in order, whatever dies meanwhile."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, until

from clisup.errors import ClisupError

AGENT = Path(__file__).with_name("dialogue_agent.py")
RULES = '[[backends.agent.approvals.rules]]\ntool = "*"\ndecision = "deny"\n'  # a question is answered by itself
WHOLE = ["initialize", "session/new", "session/prompt", "_clisup/quiet", "the end"]


@pytest.fixture
def agent(serve: Callable[..., Harness], tmp_path: Path) -> Callable[..., Harness]:
    """A daemon with the agent as its backend `agent`."""

    def start(**options: Any) -> Harness:
        command = json.dumps([sys.executable, str(AGENT), str(tmp_path / "told")])
        daemon = serve(**options, raw=f'[backends.agent]\nkind = "acp"\ncommand = {command}\n{RULES}')
        daemon.told = lambda: told(tmp_path / "told")  # type: ignore[attr-defined]
        return daemon

    return start


def told(path: Path) -> list[str]:
    """What the agent has heard, by method."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [line if line == "the end" else json.loads(line).get("method", "an answer") for line in lines]


def test_a_turn_is_a_dialogue_from_the_first_word_to_the_end_of_stdin(agent: Callable[..., Harness]) -> None:
    daemon = agent()
    session = daemon.new(backend="agent")
    end = session.ask("say hello\nsay  there")
    assert (end["outcome"], end["text"]) == ("completed", "hello there")
    assert daemon.told() == WHOLE
    assert session.events("process_exited")[0]["exit_code"] == 0
    second = session.ask("say again")
    assert second["text"] == "again"
    assert daemon.told()[5:] == ["initialize", "session/load", *daemon.told()[7:-3], *WHOLE[2:]]


@pytest.mark.fault(1)
@pytest.mark.parametrize("point", ["keeper.stdin.before", "keeper.stdin.after"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5])
def test_kill_9_around_each_message_loses_none_and_doubles_none(
    agent: Callable[..., Harness], point: str, nth: int
) -> None:
    daemon = agent()
    session = daemon.new(backend="agent")
    daemon.kill()
    daemon.env["CLISUP_FAILPOINTS"] = f"{point}=kill@{nth}"
    daemon.start()
    with daemon.wire() as wire:  # the answer dies with the daemon, or comes just before
        wire.post("session/prompt", session_id=session.id, prompt="say one\nask Write\nsay two", key="k")
        assert daemon.process is not None
        daemon.process.wait(30)
    del daemon.env["CLISUP_FAILPOINTS"]
    daemon.start()
    end = session.ask("say one\nask Write\nsay two", key="k")
    assert (end["outcome"], end["text"]) == ("completed", "[reject_once]two")
    assert [event["text"] for event in session.events("content_delta")] == ["one", "[reject_once]", "two"]
    assert [event["by"] for event in session.events("approval_resolved")] == ["rule"]
    assert daemon.told() == [*WHOLE[:3], "an answer", *WHOLE[3:]]
    assert len(session.events("turn_completed")) == 1


def test_a_daemon_that_is_killed_in_the_middle_goes_on_with_the_dialogue(
    agent: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = agent()
    session = daemon.new(backend="agent")
    turn = session.prompt(f"say before\nwait {tmp_path}/go\nask Write\nsay after")
    session.await_event("content_delta")
    for _ in range(3):
        daemon.restart()
    (tmp_path / "go").touch()
    assert session.end_of(turn)["text"] == "[reject_once]after"
    assert daemon.told() == [*WHOLE[:3], "an answer", *WHOLE[3:]]
    assert session.events("process_started") and len(session.events("session_init")) == 1


def test_an_interrupt_is_a_request_first_and_the_cli_leaves_by_itself(agent: Callable[..., Harness]) -> None:
    daemon = agent()
    session = daemon.new(backend="agent")
    turn = session.prompt("say part\nhang")
    session.await_event("content_delta")
    assert session.call("interrupt")["outcome"] == "interrupted"
    assert daemon.told() == [*WHOLE[:3], "session/cancel", "the end"]
    end = session.end_of(turn)
    assert (end["outcome"], end["error"]["kind"]) == ("interrupted", "cancelled")
    exited = session.events("process_exited")[0]
    assert (exited["exit_code"], exited.get("signal"), exited["ended_by"]) == (0, None, "client")


@pytest.mark.parametrize("stubborn", ["deaf", "stay"])
def test_a_cli_that_does_not_heed_the_request_meets_the_ladder(agent: Callable[..., Harness], stubborn: str) -> None:
    daemon = agent()
    session = daemon.new(backend="agent", timeouts={"int_grace": 0.3, "linger": 60})
    session.prompt(f"{stubborn}\nsay part\nhang")
    session.await_event("content_delta")
    assert session.call("interrupt")["outcome"] == "interrupted"
    exited = session.events("process_exited")[0]
    assert (exited["signal"], exited["ended_by"]) == (15, "client")
    until(lambda: not session.processes())


def test_a_second_interrupt_does_not_wait_for_the_first_ones_patience(agent: Callable[..., Harness]) -> None:
    daemon = agent()
    session = daemon.new(backend="agent", timeouts={"int_grace": 3000})
    session.prompt("deaf\nsay part\nhang")
    session.await_event("content_delta")
    with daemon.wire() as wire:
        first = wire.post("session/interrupt", session_id=session.id)
        until(lambda: daemon.told()[-1] == "session/cancel")
        assert session.call("interrupt", mode="kill")["outcome"] == "interrupted"
        assert wire.answer(first)["outcome"] == "interrupted"


def test_a_backend_without_a_command_of_its_own_must_be_given_one(serve: Callable[..., Harness]) -> None:
    with pytest.raises(AssertionError, match=r"(?s)names no command.*backends\.agent\.command"):
        serve(raw='[backends.agent]\nkind = "acp"\n')


@pytest.mark.fault(94)
def test_a_rule_that_allows_leaves_a_choice_among_several_answers_to_a_person(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    command = json.dumps([sys.executable, str(AGENT), str(tmp_path / "told"), "staging"])
    rules = RULES.replace('"deny"', '"allow"')
    daemon = serve(raw=f'[backends.agent]\nkind = "acp"\ncommand = {command}\n{rules}')
    session = daemon.new(backend="agent")
    turn = session.prompt("ask Deploy")
    approval = session.await_event("approval_requested")["approval_id"]
    with daemon.wire() as wire:
        with pytest.raises(ClisupError) as refused:
            wire.call("approval/respond", approval_id=approval, decision="allow")
        assert refused.value.kind == "option_needed"
        wire.call("approval/respond", approval_id=approval, decision="allow", option="staging")
    assert session.end_of(turn)["text"] == "[staging]"
    resolved = session.events("approval_resolved")[0]
    assert (resolved["by"], resolved["option"]) == ("client", "staging")
