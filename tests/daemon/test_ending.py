"""How a live process is asked to end its turn, or to leave, where the daemon dies before the CLI has heard of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from harness import Harness
from session_probe import SessionProbe
from wire import Hangup

LIVE = {"mode": "live"}
PATIENT = {"int_grace": 60, "term_grace": 60, "linger": 60}


def ask_and_die(daemon: Harness, session: SessionProbe, method: str) -> None:
    """The daemon dies when the end is journaled, before the keeper has got the word for the CLI; then another one serves."""
    daemon.env["CLISUP_FAILPOINTS"] = "keeper.stdin.before=kill"
    daemon.restart()
    with pytest.raises(Hangup):
        session.call(method)
    assert daemon.process is not None
    daemon.process.wait()
    del daemon.env["CLISUP_FAILPOINTS"]
    daemon.restart()


def test_an_interrupt_that_died_with_its_daemon_is_said_again_and_the_process_lives_on(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve(demo=LIVE, timeouts=PATIENT)
    session = daemon.new()
    turn = session.prompt("some text\n@stall")
    session.await_event("content_delta")
    ask_and_die(daemon, session, "interrupt")
    assert session.end_of(turn)["outcome"] == "interrupted"
    assert session.ask("@text on")["text"] == "on"
    assert len(session.events("process_started")) == 1 and not session.events("process_exited")


def start_on_a_bad_disk(daemon: Harness) -> None:
    """Anew, after a `kill -9`: for a while it cannot journal that it has adopted anything."""
    daemon.kill()
    daemon.env["CLISUP_FAILPOINTS"] = "journal.before=ENOSPC@1-12"
    daemon.start()


@pytest.mark.parametrize("mode", ["live", "one-shot"])
def test_an_interrupt_that_comes_while_a_bad_disk_keeps_a_daemon_from_adopting_the_turn_is_heeded(
    serve: Callable[..., Harness], mode: str
) -> None:
    daemon = serve(demo={"mode": mode}, timeouts=PATIENT)
    session = daemon.new()
    turn = session.prompt("some text\n@stall")
    session.await_event("content_delta")
    start_on_a_bad_disk(daemon)
    session.call("interrupt")
    assert session.end_of(turn)["outcome"] == "interrupted"


def test_a_kill_that_comes_while_a_turn_is_being_adopted_is_one(serve: Callable[..., Harness]) -> None:
    daemon = serve(timeouts=PATIENT)
    session = daemon.new()
    turn = session.prompt("@ignore-int\n@ignore-term\nsome text\n@stall")
    session.await_event("content_delta")
    start_on_a_bad_disk(daemon)
    session.call("interrupt", mode="kill")
    assert session.end_of(turn)["outcome"] == "interrupted"
    exited = session.events("process_exited")[0]
    assert exited["signal"] == signal.SIGKILL and exited["actor"]["pid"] == os.getpid()


def test_an_interrupt_that_is_repeated_does_not_end_a_process_that_has_its_time(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE, timeouts=PATIENT)
    session = daemon.new()
    turn = session.prompt("some text\n@stall")
    session.await_event("content_delta")
    pid = session.cli()
    os.kill(pid, signal.SIGSTOP)
    with daemon.wire() as one, daemon.wire() as other:
        calls = [wire.post("session/interrupt", session_id=session.id) for wire in (one, other)]
        session.await_event("notice", code="ending")
        other.call("session/get", session_id=session.id)  # the second one has been heard, too
        os.kill(pid, signal.SIGCONT)
        assert [wire.answer(call)["outcome"] for wire, call in zip((one, other), calls, strict=True)] == [
            "interrupted"
        ] * 2
    assert session.end_of(turn)["outcome"] == "interrupted"
    assert session.ask("@text on")["text"] == "on"
    assert [event["pid"] for event in session.events("process_started")] == [pid]


def test_an_end_of_input_that_died_with_its_daemon_is_said_again(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE, timeouts=PATIENT)
    session = daemon.new()
    session.ask("@text one")
    ask_and_die(daemon, session, "close")
    exited = session.await_event("process_exited")
    assert (exited.get("exit_code"), exited.get("signal")) == (0, None)
