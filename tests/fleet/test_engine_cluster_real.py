"""Three nodes: a session is copied once, and swaps are stored once, while nodes are killed one after the other."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from clisup.errors import WorldError
from clisup.fleet import nats_engine
from clisup.fleet.engine import Bucket, BucketEntry
from clisup.fleet.nats_engine import NatsEngine, connect
from tests.fleet.engine_contract import PATIENCE_S, copied_once
from tests.fleet.nats_server import NatsServer


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[NatsServer]]:
    ports = free_ports(3)
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    running = [
        NatsServer(
            tmp_path / f"node{number}",
            f"server_name: node{number}\ncluster {{ name: team, listen: 127.0.0.1:{port}, routes: [{routes}] }}",
        )
        for number, port in enumerate(ports)
    ]
    try:
        for node in running:
            node.start()
        yield running
    finally:
        for node in running:
            node.kill()


async def prepared(engine: NatsEngine) -> None:
    """Create the streams as soon as the nodes have a leader."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await engine.prepare(3, 64 * 1024 * 1024)
            except WorldError as error:
                assert error.kind == "fleet_away"
                await asyncio.sleep(0.2)


async def patient(jobs: Bucket, key: str) -> BucketEntry:
    """Return a value as soon as the nodes have a leader again: the last of them was killed a moment ago."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                found = await jobs.get(key)
                assert found is not None
                return found
            except WorldError as error:
                assert error.kind == "fleet_away"
                await asyncio.sleep(0.2)


async def swapped(jobs: Bucket, box: str) -> None:
    """Add 20 marks of this box to one value. In doubt look whether the mark is there, as a box does with a job."""
    for number in range(20):
        mark = f"{box}{number}".encode()
        while True:
            try:
                found = await jobs.get("one")
                if found and mark in found.value.split():
                    break
                await jobs.swap("one", found.revision if found else 0, (found.value if found else b"") + b" " + mark)
            except WorldError as error:
                assert error.kind == "fleet_away"
            await asyncio.sleep(0.05)


def test_kills_of_nodes_lose_and_double_nothing(nodes: list[NatsServer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_engine, "_ANSWER_S", 1.0)

    async def kills() -> None:
        for node in nodes:
            node.kill()
            await asyncio.sleep(1)
            node.start()
            await asyncio.sleep(2)

    async def run() -> None:
        async with connect([node.url for node in nodes], "box") as engine:
            await prepared(engine)
            jobs = Bucket(engine, "JOBS")
            async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
                tasks.create_task(kills())
                tasks.create_task(copied_once(engine, "cluster", 3000))
                for box in "ab":
                    tasks.create_task(swapped(jobs, box))
            found = await patient(jobs, "one")
            assert sorted(found.value.split()) == sorted(f"{box}{n}".encode() for box in "ab" for n in range(20))

    asyncio.run(run())
