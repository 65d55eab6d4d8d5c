"""Live sessions where two things happen at once: no prompt lost or run twice, no healthy turn ended, nobody waits for ever."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from harness import Harness, until
from session_probe import SessionProbe

LIVE = {"mode": "live"}
RETENTION = "[daemon.retention]\nevery_s = 0.05\ndays = 30\nbytes = 0\n"


def pids(session: SessionProbe) -> list[int]:
    """The processes that the session has had, in order."""
    return [event["pid"] for event in session.events("process_started")]


def steer(session: SessionProbe, text: str, **params: Any) -> dict[str, Any]:
    """The answer to a steered prompt."""
    return dict(session.call("prompt", prompt=text, when_busy="steer", **params))


def writing(session: SessionProbe, gate: str = "go") -> str:
    """A turn whose model writes until the file is there: what is steered into it gets a turn of its own."""
    turn = session.prompt(f"working\n@wait-file {gate}")
    session.await_event("content_delta", turn_id=turn)
    return turn


def test_the_own_turn_of_a_steered_prompt_is_a_running_turn_and_can_be_interrupted(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    writing(session)
    steer(session, "steered\n@stall")
    (daemon.cwd / "go").touch()
    own = session.await_event("turn_started", 2)["turn_id"]
    session.await_event("content_delta", turn_id=own)
    until(lambda: session.get()["state"] == "running")
    assert session.call("interrupt") == {"turn_id": own, "outcome": "interrupted"}
    assert session.ask("@text on")["text"] == "on"
    assert len(pids(session)) == 1


def test_a_follow_up_that_begins_while_a_prompt_waits_for_a_slot_runs_to_its_end(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE, daemon={"max_running": 1})
    session, other = daemon.new(), daemon.new()
    session.ask("@background 0.6 follow-up\nanswered")
    other.prompt("holds the slot\n@wait-file go")
    other.await_event("content_delta")
    turn = session.prompt("@text waited")
    until(lambda: session.get()["state"] == "waiting")
    session.await_event("turn_completed", 2)
    (daemon.cwd / "go").touch()
    assert session.end_of(turn)["text"] == "waited"
    assert [event["text"] for event in session.events("turn_completed")] == ["answered", "follow-up", "waited"]
    assert len(pids(session)) == 1


def test_retention_leaves_a_resting_process_what_it_needs(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE, daemon={"segment_bytes": 65536}, raw=RETENTION)
    session = daemon.new()
    for _ in range(3):
        session.ask("@stream 300 400\nbye")
    then = time.time() - 40 * 86_400
    for path in (session.dir / "journal").glob("*.jsonl"):
        os.utime(path, (then, then))
    pid = session.get()["pid"]
    until(lambda: len(list((session.dir / "journal").glob("*.jsonl"))) == 1)
    time.sleep(0.3)  # some passes more
    daemon.restart()
    assert session.ask("@count")["text"] == "turn 4"
    assert session.get()["pid"] == pid


def test_the_limit_of_a_turn_does_not_count_while_the_process_rests(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE, timeouts={"turn": 0.6})
    session = daemon.new()
    session.ask("hello")
    timers = [timer["phase"] for timer in session.get()["watch"]["timers"]]
    assert timers == ["resting"]
    time.sleep(0.9)  # there is nothing to wait for: the point is that nothing happens
    assert session.ask("@count")["text"] == "turn 2"
    assert not session.events("watchdog", action="fired") and len(pids(session)) == 1


@pytest.mark.parametrize("at_tool", [True, False])
def test_a_restart_in_place_leaves_a_steered_prompt_to_the_cli_that_has_it(
    serve: Callable[..., Harness], at_tool: bool
) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    if at_tool:
        session.prompt("@bash while ! [ -e go ]; do sleep 0.05; done; echo passed\nthe end")
        session.await_event("tool_use")
    else:
        writing(session)
    said = steer(session, "@bash echo once >> ran\n@text steered", key="s")
    before = daemon.identity()["instance_id"]
    daemon.call("daemon/restart")
    daemon.await_successor(before)
    assert not session.events("notice", code="steer_dropped")
    (daemon.cwd / "go").touch()
    ends = 1 if at_tool else 2
    session.await_event("turn_completed", ends)
    until(lambda: session.get()["phase"] == "resting")
    taken = [prompt_id for event in session.events("turn_completed") for prompt_id in event["prompt_ids"]]
    assert taken.count(said["prompt_id"]) == 1
    assert len(session.events("turn_started")) == ends
    if not at_tool:
        assert (daemon.cwd / "ran").read_text() == "once\n"


@pytest.mark.fault(1)
def test_a_process_that_was_being_let_go_when_the_daemon_died_gets_no_further_prompt(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve(demo=LIVE, live={"idle_s": 0.3}, timeouts={"int_grace": 1, "linger": 1})
    session = daemon.new()
    daemon.kill()
    daemon.env["CLISUP_FAILPOINTS"] = "keeper.stdin.before=kill"  # the first word on a stdin is the end of one
    daemon.start()
    session.prompt("hello")
    assert daemon.process is not None
    daemon.process.wait(30)
    daemon.kill()
    del daemon.env["CLISUP_FAILPOINTS"]
    daemon.configure(demo=LIVE, timeouts={"int_grace": 1, "linger": 1})
    daemon.start()
    end = session.ask("@bash sleep 2\n@text whole")
    assert (end["outcome"], end["text"]) == ("completed", "whole")
    assert session.events("notice", code="ending")


def test_a_process_that_works_in_the_background_makes_no_room(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE, daemon={"max_live": 1}, timeouts={"linger": 0.2, "int_grace": 0.2})
    session, other = daemon.new(), daemon.new()
    session.ask("@background 1.5 follow-up\nanswered")
    assert other.ask("@text other")["text"] == "other"
    assert session.await_event("turn_completed", 2)["text"] == "follow-up"
    until(lambda: sum(bool(one.get()["live"]) for one in (session, other)) == 1)


def test_a_prompt_that_its_process_had_not_begun_is_queued_and_who_waits_for_it_gets_its_own_end(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    first = writing(session)
    pid = session.cli()
    with daemon.wire() as wire:
        os.kill(pid, signal.SIGSTOP)
        waits = wire.post("session/prompt", session_id=session.id, prompt="@text own", when_busy="steer", wait=True)
        prompt_id = session.await_event("prompt_accepted", delivery="steered")["prompt_id"]
        os.kill(pid, signal.SIGCONT)
        (daemon.cwd / "go").touch()
        session.end_of(first)
        result = wire.answer(waits)
    assert (result["outcome"], result["text"]) == ("completed", "own")
    assert prompt_id in session.end_of(result["turn_id"])["prompt_ids"]


@pytest.mark.fault(1)
def test_stderr_of_a_turn_that_ended_without_the_daemon_is_told_once(serve: Callable[..., Harness]) -> None:
    """The new daemon reads the turn's end on stdout before it comes to stderr, where the process has said nothing new."""
    daemon = serve(demo=LIVE)
    session = daemon.new()
    words = [f"word {nth}" for nth in range(1, 5)]
    for nth, word in enumerate(words, 1):
        turn = session.prompt(f"@stderr {word}\n@wait-file go{nth}\nended")
        session.await_event("stderr", turn_id=turn)
        daemon.kill()
        (daemon.cwd / f"go{nth}").touch()
        out = session.dir / "runs" / "1" / "out.spool"
        until(lambda out=out, nth=nth: out.read_bytes().count(b'"type":"result"') == nth)
        daemon.start()
        session.await_event("turn_completed", nth)
        daemon.restart()
    session.ask("@stderr the last word")
    assert [event["text"] for event in session.events("stderr")] == [*words, "the last word"]
    assert len(pids(session)) == 1
