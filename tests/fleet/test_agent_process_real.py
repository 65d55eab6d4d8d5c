"""`clisup fleet agent` as a process, beside a real daemon and a real engine: accidents, and its own end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from serving import serve

from clisup.fleet.member import member_file, remove_member
from tests.fleet.agent_process import PATIENCE_S, AgentProcess, until
from tests.fleet.nats_server import FoundedNode

__all__ = ["serve"]

Serve = Callable[..., Any]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FoundedNode]:
    running = FoundedNode(tmp_path / "team", {"box": ["worker"], "again": ["worker"]})
    running.start()
    running.prepare(256 * 1024 * 1024)
    yield running
    running.kill()


@pytest.fixture
def agent(serve: Serve, server: FoundedNode) -> Iterator[tuple[Any, AgentProcess]]:
    daemon = serve()
    process = AgentProcess(daemon, server)
    yield daemon, process
    process.kill()


def test_the_copy_is_whole_after_kill_9_of_agent_node_and_daemon(
    agent: tuple[Any, AgentProcess], server: FoundedNode
) -> None:
    daemon, process = agent
    process.start()
    sessions = [daemon.new() for _ in range(3)]

    def prompt() -> None:
        for session in sessions:
            session.prompt("@stream 100 30\nbye")

    def idle() -> bool:
        rows = daemon.call("session/list")["sessions"]
        return all(row["state"] == "idle" and not row["queue"] for row in rows)

    prompt()
    until(lambda: process.difference().lost < process.difference().events, process.words)
    for accident in (process.kill, server.kill, daemon.kill, process.kill, server.kill):
        prompt()
        accident()
        if accident == daemon.kill:
            daemon.start()
        elif accident == server.kill:
            prompt()  # the daemon goes on, and the agent waits
            until(idle)
            server.start()
        else:
            process.start()
    until(idle)
    found = process.whole()
    assert found.events > 1000
    assert found[1:] == (0, 0, 0, 0)


def test_two_agents_of_one_box_are_refused(agent: tuple[Any, AgentProcess], server: FoundedNode) -> None:
    daemon, first = agent
    first.start()
    until(first.beat, first.words)
    second = AgentProcess(daemon, server, "again")
    assert second.start().wait(PATIENCE_S) != 0
    assert "an agent of this box runs already, as pid" in second.words()
    first.kill()  # no lock outlives its process
    second.start()
    until(second.beat, second.words)
    assert second.stop() == 0


def test_an_agent_ends_within_its_time_also_without_an_engine(
    agent: tuple[Any, AgentProcess], server: FoundedNode
) -> None:
    _, process = agent
    process.start()
    until(process.beat, process.words)
    assert process.stop() == 0
    process.start()
    until(lambda: process.words().count("engine connected") == 2, process.words)
    server.kill()
    until(lambda: "engine away" in process.words(), process.words)
    server.start()
    until(lambda: process.words().count("engine connected") == 3, process.words)
    server.kill()
    assert process.stop() == 0
    process.start()
    until(lambda: process.words().count("engine away") >= 2, process.words)
    assert process.stop() == 0


def test_a_box_without_a_fleet_gets_a_clear_error(agent: tuple[Any, AgentProcess]) -> None:
    _, process = agent
    remove_member(process.env)
    assert not Path(member_file(process.env)).exists()
    assert process.start().wait(PATIENCE_S) == 2
    assert "this box has joined no fleet" in process.words()
    assert "clisup fleet join" in process.words()
