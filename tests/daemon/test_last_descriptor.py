"""A daemon that has no descriptor left gives nobody rights for that."""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from harness import Harness, until
from session_probe import SessionProbe

from clisup.config.model import DaemonConfig
from clisup.daemon.clients.server import Server
from clisup.daemon.metrics import Metrics
from clisup.errors import ClisupError

SPEAKER = """
import os, socket, sys, time
go, out, path = sys.argv[1:]
while not os.path.exists(go):
    time.sleep(0.02)
client = socket.socket(socket.AF_UNIX)
client.settimeout(60)
client.connect(path)
try:
    client.sendall(b'{"id":1,"method":"daemon/shutdown","params":{"mode":"kill"}}\\n')
except BrokenPipeError:
    pass
with open(out + ".tmp", "w") as file:
    file.write(client.recv(65536).decode())
os.rename(out + ".tmp", out)
"""


@pytest.mark.cold
@pytest.mark.fault(42)
def test_a_tool_of_a_cli_that_is_accepted_on_the_last_one_is_still_a_tool(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve(start=False)
    daemon.start()
    go, out, script = tmp_path / "go", tmp_path / "out", tmp_path / "speak.py"
    script.write_text(SPEAKER)
    session = daemon.new()
    session.prompt(f"@bash {sys.executable} -I -S {script} {go} {out} {daemon.socket} 2>&1")
    session.await_event("tool_use")
    until(lambda: session.get()["state"] == "running" and session.get()["pid"])
    before = daemon.limit_files(1)
    go.touch()
    until(out.exists)
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, before)
    assert "permission_denied" in out.read_text()
    session.end_of("t1")


@pytest.mark.cold
@pytest.mark.parametrize("limit", [64, 48, 40])
def test_without_descriptors_turns_complete_or_are_overloaded_and_the_daemon_serves_again(
    serve: Callable[..., Harness], limit: int
) -> None:
    daemon = serve(start=False, daemon={"max_running": 64})
    daemon.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
    sessions = [daemon.new() for _ in range(limit - 24)]  # each keeps its journal open
    started = []
    for session in sessions:
        try:
            started.append((session, session.prompt("a word\n@sleep 1\nbye")))
        except ClisupError as error:
            assert error.kind == "overloaded" and error.to_wire()["data"]["retryable"]
    for session, turn in started:
        end = until(partial(end_of, session, turn))
        error = end.get("error") or {}
        assert end["outcome"] == "completed" or (error["kind"], error["retryable"]) == ("overloaded", True), end
    assert until(lambda: daemon.new().ask("Hi.")["outcome"] == "completed")
    assert daemon.process is not None and daemon.process.poll() is None


@pytest.mark.cold
@pytest.mark.fault(87)
def test_with_few_descriptors_prompts_wait_and_all_of_them_complete(serve: Callable[..., Harness]) -> None:
    daemon = serve(start=False)
    daemon.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80)))
    sessions = [daemon.new() for _ in range(100)]
    turns = [(session, session.prompt("a word\n@sleep 0.2\nbye")) for session in sessions[:30]]
    assert [session.end_of(turn)["outcome"] for session, turn in turns] == ["completed"] * 30
    status = daemon.call("daemon/status")["daemon"]
    assert status["max_running"] <= 4 and status["open_fds"] < 80


@pytest.mark.cold
@pytest.mark.fault(87)
def test_a_daemon_with_more_open_sessions_than_descriptors_starts(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    sessions = [daemon.new() for _ in range(100)]
    daemon.stop()
    daemon.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80)))
    assert sessions[-1].ask("Hello.")["outcome"] == "completed"


@pytest.mark.cold
@pytest.mark.fault(87)
def test_a_client_with_many_connections_leaves_descriptors_for_turns(serve: Callable[..., Harness]) -> None:
    daemon = serve(start=False)
    daemon.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80)))
    session = daemon.new()
    flood = [daemon.wire() for _ in range(200)]
    assert session.ask("Hello.")["outcome"] == "completed"
    assert flood[0].call("ping") is not None
    for wire in flood:
        wire.close()


def end_of(session: SessionProbe, turn_id: str) -> dict[str, Any] | None:
    """Return the end of a turn once the daemon can read it."""
    try:
        return next(iter(session.events("turn_completed", turn_id=turn_id)), None)
    except ClisupError as error:
        assert error.kind == "overloaded"
        return None


async def test_a_client_that_cannot_be_looked_at_is_told_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_of: object) -> bool:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("clisup.daemon.clients.server.comes_from", none_left)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Server(DaemonConfig(), {}, set, Metrics()).serve, listener)
            with trio.fail_after(60):
                async with await trio.open_unix_socket(str(tmp_path / "s")) as honest:
                    refusal = json.loads(await honest.receive_some())["error"]["data"]
            nursery.cancel_scope.cancel()
    assert (refusal["kind"], refusal["retryable"]) == ("overloaded", True)
