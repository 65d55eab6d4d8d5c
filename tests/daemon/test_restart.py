"""The daemon dies, is killed or is stopped: no event lost or doubled, no turn lost or run twice, nothing left behind."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Harness, until
from session_probe import SessionProbe

from clisup.client.sync import Client


@pytest.mark.fault(1)
def test_five_kills_in_one_turn_lose_and_double_nothing(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    session = daemon.new()
    parts = [f"@stream 200 40 0.002\n@wait-file {tmp_path}/{n}" for n in range(5)]
    session.prompt("\n".join([*parts, "@exit 7"]))
    pid = session.cli()
    for n in range(5):
        until(lambda n=n: len(session.chunks()) > n * 200)
        daemon.restart()
        session.await_event("notice", nth=n + 1, code="adopted")
        (tmp_path / str(n)).touch()
    end = session.end_of("t1")
    assert end["error"]["kind"] == "crashed" and session.chunks() == list(range(200)) * 5
    exited = session.events("process_exited")
    assert [event["exit_code"] for event in exited] == [7]
    assert [event["pid"] for event in session.events("process_started")] == [pid]


@pytest.mark.fault(1)
def test_two_followers_see_the_same_bytes_through_restarts(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new()
    with Client.connect(daemon.socket) as client, client.follow(session.id, after_seq=0) as follower:
        session.prompt("@stream 600 40 0.003")
        followed = []
        for event in follower:
            followed.append(event)
            if event["seq"] in (40, 200):
                daemon.restart()
            if event["type"] == "turn_completed":
                break
    with daemon.wire() as late:
        late.send({"id": 1, "method": "session/subscribe", "params": {"session_id": session.id, "after_seq": 0}})
        assert late.answer(1)
        replayed = late.events_until("turn_completed")
    assert followed == replayed == session.events()
    assert session.chunks() == list(range(600))


@pytest.mark.fault(5)
def test_the_exit_code_is_known_though_nobody_was_there(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt(f"@wait-file {tmp_path}/go\nlast words\n@exit 23")
    session.cli()
    daemon.kill()
    (tmp_path / "go").touch()
    until(lambda: (session.dir / "runs/1/exit.json").stat().st_size > 0 if _there(session) else False)
    until(lambda: not daemon.leftovers())
    daemon.start()
    assert session.end_of("t1")["outcome"] == "failed"
    exited = session.events("process_exited")[0]
    assert exited["exit_code"] == 23 and exited["ended_by"] == "cli"
    assert "last words" in "".join(event["text"] for event in session.events("content_delta"))


def _there(session: SessionProbe) -> bool:
    return (session.dir / "runs/1/exit.json").exists()


@pytest.mark.fault(2)
def test_a_kill_right_after_the_prompt_makes_one_turn_of_it(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    sessions = [daemon.new() for _ in range(27)]
    texts = [f"@bash echo ran >> {tmp_path}/ran-{n}\nanswer {n}" for n in range(27)]
    for first in range(0, 27, 3):
        with daemon.wire() as wire:
            for n in range(first, first + 3):
                wire.post("session/prompt", session_id=sessions[n].id, prompt=texts[n], key=f"key-{n}")
                time.sleep(random.uniform(0, 0.03))  # random moments are the point
            daemon.restart()
        for n in range(first, first + 3):
            assert sessions[n].call("prompt", prompt=texts[n], key=f"key-{n}")["turn_id"] == "t1"
    for n, session in enumerate(sessions):
        end = session.end_of("t1")
        assert (end["outcome"], end["text"]) == ("completed", f"answer {n}"), end
        counts = {name: session.types().count(name) for name in ("prompt_accepted", "turn_started", "turn_completed")}
        assert set(counts.values()) == {1}, counts
        assert (tmp_path / f"ran-{n}").read_text() == "ran\n"


@pytest.mark.fault(4)
@pytest.mark.parametrize("both", [False, True], ids=["keeper", "keeper and daemon"])
def test_a_killed_keeper_takes_everything_along(serve: Callable[..., Harness], tmp_path: Path, both: bool) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt(f"some text\n@bash (setsid sleep 300 &) ; touch {tmp_path}/up; sleep 300")
    until((tmp_path / "up").exists)
    keeper = session.keeper()
    if both:
        daemon.kill()
    os.kill(keeper, signal.SIGKILL)
    if both:
        daemon.start()
    end = session.end_of("t1")
    assert (end["outcome"], end["error"]["kind"]) == ("failed", "crashed")
    exited = session.events("process_exited")[0]
    assert exited["ended_by"] == "unknown" and exited["survivors"] and exited["note"]
    assert not session.processes()
    assert session.ask("next")["outcome"] == "completed"


def test_a_keeper_killed_at_its_start_leaves_one_cli_at_most(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    for n in range(8):
        session = daemon.new()
        session.prompt("hello\n@sleep 0.3")
        time.sleep(n * 0.008)  # a moment of the start
        for pid in [pid for pid, argv in daemon.leftovers().items() if "keeper" in argv]:
            _kill(pid)
        end = session.end_of("t1")
        assert end["outcome"] in ("failed", "completed")
        until(lambda session=session: not session.processes())


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


@pytest.mark.fault(15)
def test_a_turn_that_was_being_ended_ends_for_the_same_reason(serve: Callable[..., Harness]) -> None:
    daemon = serve(timeouts={"model_idle": 0.5, "int_grace": 1.0, "term_grace": 1.0})
    session = daemon.new()
    session.prompt("@ignore-int\n@ignore-term\na word\n@stall")
    session.await_event("notice", code="ending")
    daemon.restart()
    end = session.end_of("t1")
    assert (end["outcome"], end["error"]["kind"]) == ("timed_out", "idle_timeout")
    assert session.events("process_exited")[0]["signal"] == signal.SIGKILL


def test_a_hung_turn_is_ended_by_the_next_daemon(serve: Callable[..., Harness]) -> None:
    daemon = serve(timeouts={"model_idle": 1.0})
    session = daemon.new()
    session.prompt("a word\n@stall")
    session.await_event("content_delta")
    daemon.restart()
    assert session.end_of("t1")["outcome"] == "timed_out"


@pytest.mark.fault(33)
@pytest.mark.parametrize("work", ["@background 0.8", "@delegate 0.8 a report =>"])
def test_an_answer_to_background_work_survives_a_kill(serve: Callable[..., Harness], work: str) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt(f"{work} the follow-up\nanswered")
    session.await_event("task")
    daemon.restart()
    assert session.end_of("t1")["text"] == "the follow-up"
    assert session.types().count("turn_started") == session.types().count("turn_completed") == 1


def test_an_adopted_turn_can_be_interrupted_at_once(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt("a word\n@stall")
    session.await_event("content_delta")
    daemon.restart()
    assert session.call("interrupt", mode="kill")["outcome"] == "interrupted"
    assert not session.processes()
