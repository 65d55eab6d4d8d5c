"""`clisup wait`: whose turns, until when, and with which exit code."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fake_daemon import OTHER, SESSION, FakeDaemon, Peer

Run = Callable[..., Any]


@pytest.fixture
def active(daemon: FakeDaemon) -> dict[str, list[str]]:
    """Session -> its turns, the running one first; the others are queued."""
    turns: dict[str, list[str]] = {SESSION: [], OTHER: []}

    def get(peer: Peer, params: dict[str, Any]) -> Any:
        session = params["session_id"]
        running, queued = turns[session][:1], turns[session][1:]
        queue = [{"turn_id": turn, "key": None, "position": n} for n, turn in enumerate(queued, 1)]
        following = daemon.last_seq(session) + 1
        return daemon.summary(
            session_id=session, turn_id=running[0] if running else None, queue=queue, next_seq=following
        )

    def events(peer: Peer, params: dict[str, Any]) -> Any:
        found = [e for e in daemon.of(params["session_id"]) if e["type"] in params["types"]]
        return {"events": found, "next_seq": daemon.last_seq(params["session_id"]) + 1, "eof": True}

    daemon.handlers |= {"session/get": get, "session/events": events}
    return turns


def end(daemon: FakeDaemon, turn: str, outcome: str = "completed", session: str = SESSION, **more: Any) -> None:
    daemon.emit("turn_completed", turn, session=session, outcome=outcome, usage={}, text="", **more)


def once_followed(daemon: FakeDaemon, sessions: int, action: Callable[[], None]) -> threading.Thread:
    """Do it as soon as so many sessions are followed."""

    def wait() -> None:
        while sum(bool(peer.following) for peer in list(daemon.peers)) < sessions:
            threading.Event().wait(0.005)
        action()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(("outcome", "more", "code"), [
    ("completed", {}, 0), ("completed", {"denied": ["Bash"]}, 77), ("failed", {}, 1), ("timed_out", {}, 124),
    ("interrupted", {}, 130),
])  # fmt: skip
def test_the_exit_code_is_that_of_the_outcome(
    clisup: Run, daemon: FakeDaemon, active: dict[str, list[str]], outcome: str, more: dict[str, Any], code: int
) -> None:
    active[SESSION] = ["t3"]
    thread = once_followed(daemon, 1, lambda: end(daemon, "t3", outcome, **more))
    ran = clisup("wait", "3f2a")
    thread.join(10)
    assert ran.code == code
    assert ran.out.startswith(f"3f2a0000  t3  {outcome}")


def test_the_running_and_every_queued_turn_are_waited_for(
    clisup: Run, daemon: FakeDaemon, active: dict[str, list[str]]
) -> None:
    active[SESSION] = ["t3", "t4"]

    def both() -> None:
        end(daemon, "t2")
        end(daemon, "t3", "failed")
        end(daemon, "t4")

    thread = once_followed(daemon, 1, both)
    ran = clisup("wait", SESSION, "--json")
    thread.join(10)
    told = [json.loads(line) for line in ran.out.splitlines()]
    assert [(e["type"], e["turn_id"], e["outcome"]) for e in told] == [
        ("turn_completed", "t3", "failed"), ("turn_completed", "t4", "completed"),
    ]  # fmt: skip
    assert ran.code == 1


def test_all_are_waited_for_and_with_any_the_first(
    clisup: Run, daemon: FakeDaemon, active: dict[str, list[str]]
) -> None:
    active[SESSION], active[OTHER] = ["t1"], ["t1"]
    thread = once_followed(daemon, 2, lambda: end(daemon, "t1", "failed", OTHER))
    ran = clisup("wait", "--any", SESSION, OTHER)
    thread.join(10)
    assert ran.code == 1 and ran.out.startswith("77770000  t1  failed") and len(ran.out.splitlines()) == 1
    end(daemon, "t1", "interrupted")
    active[SESSION], active[OTHER] = [], []
    ran = clisup("wait", SESSION, OTHER)
    assert ran.code == 130, "that of the first that did not end well, in the order of the sessions"
    assert len(ran.out.splitlines()) == 2


def test_a_session_at_rest_has_the_outcome_of_its_last_turn_or_none(
    clisup: Run, daemon: FakeDaemon, active: dict[str, list[str]]
) -> None:
    assert clisup("wait", SESSION) == (0, "3f2a0000  -  there was no turn\n", "")
    end(daemon, "t1", "failed")
    end(daemon, "t2")
    assert clisup("wait", SESSION).code == 0
    assert clisup("wait", SESSION, "--turn", "1").code == 1
    assert clisup("wait", SESSION, "--turn", "t1").out.startswith("3f2a0000  t1  failed")


def test_a_turn_that_is_not_there_is_told(clisup: Run, daemon: FakeDaemon, active: dict[str, list[str]]) -> None:
    ran = clisup("wait", SESSION, "--turn", "t9")
    assert ran.code == 2 and "cannot wait for turn t9" in ran.err
    assert clisup("wait", SESSION, "--turn", "last").code == 2
    assert clisup("wait", SESSION, OTHER, "--turn", "t1").code == 2


def test_a_timeout_is_124_and_the_turns_go_on(clisup: Run, daemon: FakeDaemon, active: dict[str, list[str]]) -> None:
    active[SESSION] = ["t1"]
    ran = clisup("wait", SESSION, "--timeout", "0.05")
    assert (ran.code, ran.out) == (124, "")
    assert "the turns of 1 session have not ended after 0.05 s" in ran.err
    assert daemon.calls("session/interrupt") == []


def test_a_restart_of_the_daemon_is_waited_through(
    clisup: Run, daemon: FakeDaemon, active: dict[str, list[str]]
) -> None:
    active[SESSION] = ["t1"]

    def restart() -> None:
        daemon.stop()
        daemon.start()
        once_followed(daemon, 1, lambda: end(daemon, "t1")).join(20)

    thread = once_followed(daemon, 1, restart)
    assert clisup("wait", SESSION).code == 0
    thread.join(10)
