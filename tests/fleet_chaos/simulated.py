"""Ten boxes with a hundred sessions each: the agents' copying, fed by daemons that only talk. 4,000 events a second."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import UUID

from clisup.errors import WorldError
from clisup.fleet.agent.copying import Copying
from clisup.fleet.member import FleetMember, read_member
from clisup.fleet.nats_engine import NatsEngine, connect_member
from tests.fleet_chaos.figures import Figure, quantile
from tests.fleet_chaos.ground import free_port
from tests.fleet_chaos.nodes import LOOPBACK, Nodes, found_fleet
from tests.fleet_chaos.process import cpu_s
from tests.fleet_chaos.watching import Watcher

__all__ = ["simulated_figures"]

BOXES, SESSIONS, RATE = 10, 100, 400  # of a box: sessions, and events a second
SECONDS, WARM_S, TICK_S, PATIENCE_S = 20.0, 5.0, 0.1, 120.0
TEXT = "x" * 300


class TalkingDaemon:
    """Socket that lists sessions and sends their events, as a daemon does. Nothing else."""

    def __init__(self, directory: Path, number: int) -> None:
        self.path = str(directory / f"{number}.sock")
        self._seqs = {str(UUID(int=number * 1000 + session)): 1 for session in range(SESSIONS)}
        self.sent = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer each request, and send events after a subscription."""
        talking: asyncio.Task[None] | None = None
        try:
            while line := await reader.readline():
                request = json.loads(line)
                rows = [{"session_id": id_, "next_seq": seq} for id_, seq in self._seqs.items()]
                result = {"sessions": rows, "next_cursor": None} if request["method"] == "session/list" else {}
                writer.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode() + b"\n")
                if request["method"] == "session/subscribe":
                    talking = asyncio.create_task(self._talk(writer))
        finally:
            if talking is not None:
                talking.cancel()
            writer.close()

    async def _talk(self, writer: asyncio.StreamWriter) -> None:
        """Send events of the sessions by turns, at the rate of a box."""
        ids, turn, due = list(self._seqs), 0, time.monotonic()
        while True:
            now = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime())}.{int(time.time() * 1000) % 1000:03d}Z"
            for _ in range(int(RATE * TICK_S)):
                id_ = ids[turn % SESSIONS]
                turn += 1
                writer.write(
                    f'{{"jsonrpc":"2.0","method":"session/event","params":{{"session_id":"{id_}","seq":{self._seqs[id_]},'
                    f'"ts":"{now}","turn_id":"t1","source":"cli","type":"content_delta","text":"{TEXT}"}}}}\n'.encode()
                )
                self._seqs[id_] += 1
                self.sent += 1
            await writer.drain()
            due += TICK_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))


async def simulated_figures() -> list[Figure]:
    """Run the simulation on three nodes of its own, and return its figures."""
    root = Path(tempfile.mkdtemp(prefix="fs", dir="/tmp"))
    names = [f"sim-{number}" for number in range(BOXES)]
    members = {**dict.fromkeys(names, ("worker",)), "watcher": ("observer",)}
    files = found_fleet(root / "team", LOOPBACK, free_port(LOOPBACK), members)
    nodes = Nodes(root / "team", LOOPBACK)
    try:
        nodes.start()
        await _prepare(read_member(str(files["admin"])))
        async with AsyncExitStack() as stack:
            engines = [
                await stack.enter_async_context(connect_member(read_member(str(files[name]))))
                for name in (*names, "watcher")
            ]
            return await _play(root, names, engines, nodes)
    finally:
        nodes.close()
        shutil.rmtree(root, ignore_errors=True)


async def _prepare(admin: FleetMember) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                async with connect_member(admin) as engine:
                    return await engine.prepare(3, 2**30)
            except WorldError:
                await asyncio.sleep(0.5)


async def _play(root: Path, names: list[str], engines: list[NatsEngine], nodes: Nodes) -> list[Figure]:
    daemons = [TalkingDaemon(root, number) for number in range(BOXES)]
    servers = [await asyncio.start_unix_server(daemon.serve, daemon.path) for daemon in daemons]
    copies = [Copying(engine, name, daemon.path) for engine, name, daemon in zip(engines, names, daemons, strict=False)]
    watcher = Watcher(engines[-1])
    tasks = [asyncio.create_task(part.run()) for part in (watcher, *copies)]
    await asyncio.sleep(WARM_S)
    watcher.measures, before = True, (watcher.events, cpu_s([os.getpid()]), cpu_s(nodes.pids))
    await asyncio.sleep(SECONDS)
    watcher.measures = False
    events = max(1, watcher.events - before[0])
    own, theirs = (
        (cpu_s(pids) - was) * 1e6 / events for pids, was in (([os.getpid()], before[1]), (nodes.pids, before[2]))
    )
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for server in servers:
        server.close()
    p50, p99 = (quantile(watcher.lags, share) for share in (0.5, 0.99))
    return [
        Figure("simulated: events a second", events / SECONDS),
        Figure("simulated: lag p50", None if p50 is None else p50 * 1000, 300, "ms"),
        Figure("simulated: lag p99", None if p99 is None else p99 * 1000, None, "ms"),
        Figure("simulated: agents, daemons and reader", own, None, "us"),
        Figure("simulated: nodes", theirs, None, "us"),
        Figure(
            "simulated: memory of ten agents", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, None, "MiB"
        ),
    ]
