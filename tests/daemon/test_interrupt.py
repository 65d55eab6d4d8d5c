"""Interrupting: what is kept of the answer, what is left of the process tree, and what there is nothing to interrupt of."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Harness, until
from session_probe import SessionProbe

from clisup.errors import ClisupError


@pytest.fixture
def session(daemon: Harness) -> SessionProbe:
    return daemon.new()


def test_a_graceful_interrupt_keeps_what_was_said(session: SessionProbe) -> None:
    session.prompt("the beginning\n@stall")
    session.await_event("content_delta")
    assert session.call("interrupt") == {"turn_id": "t1", "outcome": "interrupted"}
    end = session.end_of("t1")
    assert end["error"]["kind"] == "cancelled"
    said = "".join(e["text"] for e in session.events("content_delta"))
    assert "the beginning" in said and not session.processes()
    assert session.events("process_exited")[0]["ended_by"] == "client"
    assert session.ask("@recall")["outcome"] == "completed"


def test_mode_kill_asks_nobody(session: SessionProbe) -> None:
    session.prompt("@ignore-term\n@ignore-int\nstubborn\n@stall")
    session.await_event("content_delta")
    session.call("interrupt", mode="kill")
    assert session.events("process_exited")[0]["signal"] == signal.SIGKILL
    assert not session.processes()


def test_the_whole_tree_is_gone_when_interrupt_answers(session: SessionProbe, tmp_path: Path) -> None:
    session.prompt(f"@orphan ignores-term 300\n@bash (setsid sleep 300 &) ; touch {tmp_path}/up ; sleep 300")
    until((tmp_path / "up").exists)
    until(lambda: len(session.processes()) >= 4)
    session.call("interrupt")
    assert not session.processes()
    assert session.events("process_exited")[0]["survivors"]


def test_a_queued_turn_is_taken_out(session: SessionProbe, tmp_path: Path) -> None:
    session.prompt(f"@wait-file {tmp_path}/go")
    session.cli()
    session.prompt("never")
    assert session.call("interrupt", turn_id="t2") == {"turn_id": "t2", "outcome": "interrupted"}
    assert session.get()["queue"] == []
    (tmp_path / "go").touch()
    assert session.end_of("t1")["outcome"] == "completed"
    assert not session.events("turn_started", turn_id="t2")


def test_nothing_to_interrupt_is_said(session: SessionProbe) -> None:
    for params in ({}, {"turn_id": "t1"}, {"turn_id": "t77"}):
        with pytest.raises(ClisupError) as refused:
            session.call("interrupt", **params)
        assert refused.value.kind == "turn_not_found"


def test_a_turn_that_waits_for_a_slot_can_be_interrupted(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve(daemon={"max_running": 1})
    busy, waiting = daemon.new(), daemon.new()
    busy.prompt(f"@wait-file {tmp_path}/go")
    busy.cli()
    waiting.prompt("hello")
    until(lambda: waiting.get()["state"] == "waiting")
    assert waiting.call("interrupt")["outcome"] == "interrupted"
    until(lambda: waiting.get()["state"] == "idle")
    assert daemon.call("daemon/status")["daemon"]["waiting"] == 0
    (tmp_path / "go").touch()
    assert waiting.ask("now")["outcome"] == "completed"


def test_a_turn_is_interrupted_at_any_moment_of_its_start(daemon: Harness) -> None:
    for n in range(16):
        session = daemon.new()
        session.prompt("hello\n@stall")
        time.sleep(n * 0.006)  # the point is to hit every stage once; nothing depends on which
        result = session.call("interrupt", mode="kill" if n % 2 else "graceful")
        assert result["outcome"] == "interrupted"
        assert not session.processes()
        assert session.types().count("turn_completed") == 1
        until(lambda session=session: session.get()["state"] == "idle")


def test_a_second_interrupt_hastens_the_first(serve: Callable[..., Harness]) -> None:
    daemon = serve(timeouts={"term_grace": 3600})
    session = daemon.new()
    session.prompt("@ignore-int\n@ignore-term\nstubborn\n@stall")
    session.await_event("content_delta")
    with daemon.wire() as first, daemon.wire() as second:
        waits = first.post("session/interrupt", session_id=session.id)
        until(lambda: session.get()["state"] == "ending")
        result = second.call("session/interrupt", session_id=session.id, mode="kill")
        assert result["outcome"] == first.answer(waits)["outcome"] == "interrupted"
    assert session.events("process_exited")[0]["signal"] == signal.SIGKILL


def test_closing_interrupts_and_leaves_the_record(session: SessionProbe) -> None:
    session.prompt("something\n@stall")
    session.await_event("content_delta")
    session.call("close")
    assert session.events("turn_completed")[0]["outcome"] == "interrupted"
    assert session.get()["state"] == "closed" and not session.processes()


def test_the_exit_says_which_client_had_asked_for_it(session: SessionProbe) -> None:
    session.prompt("a word\n@stall")
    session.await_event("content_delta")
    session.call("interrupt")
    exited = session.events("process_exited")[0]
    assert exited["ended_by"] == "client"
    assert (exited["actor"]["uid"], exited["actor"]["pid"]) == (os.geteuid(), os.getpid())
