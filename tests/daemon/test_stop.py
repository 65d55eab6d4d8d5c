"""Stopping the daemon: turns that may end, turns that are ended, and turns that go on without it."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing
from harness import Harness, until
from wire import Wire

from clisup.config.model import DaemonConfig
from clisup.daemon.clients.server import Server
from clisup.daemon.metrics import Metrics
from clisup.errors import ClisupError


@pytest.mark.parametrize("way", ["drain", "SIGTERM", "SIGINT"])
def test_a_draining_stop_lets_the_turn_end_and_everybody_hear_it(
    serve: Callable[..., Harness], tmp_path: Path, way: str
) -> None:
    daemon = serve()
    session = daemon.new()
    with daemon.wire() as waiter, daemon.wire() as follower:
        wait = waiter.post("session/prompt", session_id=session.id, prompt=f"@wait-file {tmp_path}/go\nbye", wait=True)
        follower.call("session/subscribe", session_id=session.id, after_seq=0)
        session.cli()
        session.prompt("for the next daemon")
        _stop(daemon, way)
        until(lambda: _state(daemon) == "draining")
        (tmp_path / "go").touch()
        assert waiter.answer(wait)["text"] == "bye"
        assert follower.events_until("turn_completed")[-1]["text"] == "bye"
    assert daemon.process is not None and daemon.process.wait(60) == 0
    assert not daemon.leftovers() and not os.path.exists(daemon.socket)
    daemon.start()
    assert session.end_of("t2")["outcome"] == "completed"


def _stop(daemon: Harness, way: str) -> None:
    if way.startswith("SIG"):
        daemon.signal(getattr(signal, way))
    else:
        daemon.call("daemon/shutdown", mode=way)
    daemon._hang_up()


def _state(daemon: Harness) -> str:
    with Wire(daemon.socket) as wire:
        return str(wire.call("daemon/status")["daemon"]["state"])


@pytest.mark.parametrize("moment", [0.0, 0.02, 0.04, None])
def test_a_killing_stop_leaves_nothing_running(serve: Callable[..., Harness], moment: float | None) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt("a word\n@stall")
    if moment is None:
        session.await_event("content_delta")
    else:
        time.sleep(moment)  # a moment of the turn's start
    _stop(daemon, "kill")
    assert daemon.process is not None and daemon.process.wait(60) == 0
    assert not daemon.leftovers()
    daemon.start()
    assert session.events("turn_completed")[0]["outcome"] == "interrupted"


def test_a_second_signal_hastens_a_drain(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt("a word\n@stall")
    session.await_event("content_delta")
    _stop(daemon, "SIGTERM")
    until(lambda: _state(daemon) == "draining")
    assert daemon.stop() == 0
    assert not daemon.leftovers()


def test_a_drain_has_a_limit(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"drain_s": 0.3})
    session = daemon.new()
    session.prompt("a word\n@stall")
    session.await_event("content_delta")
    assert daemon.stop() == 0 and not daemon.leftovers()
    daemon.start()
    assert session.events("turn_completed")[0]["error"]["kind"] == "cancelled"


def test_a_detached_turn_goes_on_with_the_next_daemon(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve(daemon={"on_stop": "detach"})
    session = daemon.new()
    session.prompt(f"one\n@wait-file {tmp_path}/go\ntwo")
    pid = session.cli()
    assert daemon.stop() == 0
    os.kill(pid, 0)
    prompts = session.dir / "prompts"
    assert [path.name for path in prompts.iterdir()] == ["t1.json"]  # it may have to be said again
    daemon.start()
    assert daemon.call("daemon/status")["daemon"]["adopted_turns"] == 1 and session.cli() == pid
    (tmp_path / "go").touch()
    assert session.end_of("t1")["outcome"] == "completed"
    until(lambda: not list(prompts.iterdir()))


@pytest.mark.parametrize("mode", ["drain", "detach", "restart"])
def test_who_waits_for_a_turn_that_does_not_end_is_told(
    serve: Callable[..., Harness], tmp_path: Path, mode: str
) -> None:
    daemon = serve()
    session = daemon.new()
    with daemon.wire() as waiter:
        first = waiter.post(
            "session/prompt", session_id=session.id, prompt=f"@wait-file {tmp_path}/go\nbye", key="1", wait=True
        )
        session.cli()
        queued = waiter.post("session/prompt", session_id=session.id, prompt="next", key="2", wait=True)
        until(lambda: session.get()["queue"])
        before = daemon.call("initialize")["server"]["instance_id"]
        daemon.call("daemon/restart") if mode == "restart" else daemon.call("daemon/shutdown", mode=mode)
        daemon._hang_up()
        if mode == "drain":
            (tmp_path / "go").touch()
            assert waiter.answer(first)["text"] == "bye"
        for request in [queued] if mode == "drain" else [first, queued]:
            with pytest.raises(ClisupError) as told:
                waiter.answer(request)
            assert told.value.kind == "shutting_down"
    (tmp_path / "go").touch()
    if mode != "restart":
        assert daemon.process is not None and daemon.process.wait(60) == 0
        daemon.start()
    daemon.await_successor(before)
    assert session.ask("whatever", key="2")["turn_id"] == "t2" and session.end_of("t1")["outcome"] == "completed"


async def test_a_client_that_comes_in_the_moment_of_the_stop_is_no_fault(tmp_path: Path) -> None:
    """The listener is closed behind the cancellation; who accepts may have been woken before it, by that client."""
    for n in range(30):  # which of the two tasks that are woken at once runs first is chance
        path, other = str(tmp_path / str(n)), socket.socketpair()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        listener.setblocking(False)
        with socket.socket(socket.AF_UNIX) as client, other[0], other[1]:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(Server(DaemonConfig(), {}, set, Metrics()).serve, listener)
                await trio.testing.wait_all_tasks_blocked()
                client.connect(path)
                other[0].send(b"x")
                await trio.lowlevel.wait_readable(other[1])
                nursery.cancel_scope.cancel()
                listener.close()
