"""Live sessions of a real ACP agent: one `qwen --acp` for many turns."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.e2e.acp.qwen import QwenAcpLab

pytestmark = pytest.mark.e2e
Start = Callable[..., QwenAcpLab]
LIVE = {"mode": "live"}


def test_many_turns_of_one_process_with_the_usage_of_each(lab: Start) -> None:
    here = lab("memory")
    session = here.open(**LIVE)
    turns = [here.turn(text, session=session) for text in ("My name is Ada.", "What?", "And now?")]
    assert [turn["outcome"] for turn in turns] == ["completed"] * 3
    assert len({turn["text"] for turn in turns}) == 1 and "Ada" in turns[2]["text"]
    assert len(here.pids(session)) == 1 and not here.events(session, "unparsed")
    assert all(turn["usage"]["source"] == "reported" for turn in turns)
    assert here.events(session, "session_init")[0]["agent"] == "qwen-code"
    with here.client() as client:
        client.call("session/close", session_id=session)
    (exited,) = here.events(session, "process_exited")
    assert exited["ended_by"] == "client"


def test_a_new_process_goes_on_with_the_session(lab: Start) -> None:
    here = lab("memory")
    session = here.open(**LIVE)
    first = here.turn("My name is Ada.", session=session)
    os.kill(here.pids(session)[0], signal.SIGKILL)
    here.wait_for(session, "process_exited")
    assert here.turn("What did I say?", session=session)["text"] == first["text"]
    assert here.turn("And now?", session=session)["text"] == first["text"]
    assert len(here.pids(session)) == 2


def test_a_turn_goes_on_in_its_process_while_the_daemon_is_killed(lab: Start) -> None:
    here = lab("asked")
    session = here.open(permission_mode="default", **LIVE)
    for turn_id in ("t1", "t2"):
        here.prompt(session, "Use your tools.")
        if turn_id == "t2":
            assert here.wait_for(session, "turn_completed", turn_id="t2")["outcome"] == "completed"
            continue
        approval = here.wait_for(session, "approval_requested", turn_id=turn_id)
        here.kill()
        here.start()
        here.answer(session, approval, "allow")
        assert here.wait_for(session, "turn_completed", turn_id=turn_id)["outcome"] == "completed"
        here.kill()
        here.start()  # it adopts a resting process
    assert (here.cwd / "made.txt").exists() and len(here.pids(session)) == 1
    here.prompt(session, "Once more.")
    here.kill()
    here.start()  # it adopts a process in a later turn
    assert here.wait_for(session, "turn_completed", turn_id="t3")["outcome"] == "completed"
    assert len(here.pids(session)) == 1 and not here.events(session, "unparsed")
    seqs = [event["seq"] for event in here.events(session)]
    assert seqs == list(range(1, len(seqs) + 1))


def test_an_interrupt_ends_the_turn_and_keeps_the_process(lab: Start) -> None:
    here = lab("asked")
    session = here.open(permission_mode="default", **LIVE)
    here.prompt(session, "Use your tools.")
    here.wait_for(session, "approval_requested")
    with here.client() as client:
        assert client.call("session/interrupt", session_id=session)["outcome"] == "interrupted"
    assert here.turn("Go on.", session=session)["outcome"] == "completed"
    assert len(here.pids(session)) == 1 and not here.events(session, "unparsed")


def test_a_turn_of_a_live_process_costs_little_beside_the_model(lab: Start) -> None:
    lab("text").prove_that_live_is_cheap()
