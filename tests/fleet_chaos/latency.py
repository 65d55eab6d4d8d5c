"""Latency that a tunnel adds: events of one daemon, followed at its own socket and through another box."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from typing import Any

from tests.fleet_chaos.rpc import LINE_LIMIT

__all__ = ["added_latency_ms"]

Arrivals = dict[tuple[str, int], float]


async def added_latency_ms(own_socket: str, tunnel_socket: str, seconds: float) -> list[float]:
    """Return the milliseconds by which each event arrives later through the tunnel. Empty if the tunnel gives none."""
    direct, tunnelled = Arrivals(), Arrivals()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
            tasks.create_task(_follow(own_socket, direct))
            tasks.create_task(_follow(tunnel_socket, tunnelled))
    return [1000 * (at - direct[event]) for event, at in tunnelled.items() if event in direct]


async def _follow(path: str, arrivals: Arrivals) -> None:
    """Note when each event arrives that is journaled from now on."""
    with suppress(OSError, EOFError):
        reader, writer = await asyncio.open_unix_connection(path, limit=LINE_LIMIT)
        try:
            request: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "session/subscribe"}
            request["params"] = {"session_id": "*"}
            writer.write(json.dumps(request).encode() + b"\n")
            while (line := await reader.readline()).endswith(b"\n"):
                now, frame = time.monotonic(), json.loads(line)
                if frame.get("method") == "session/event":
                    envelope = frame["params"]
                    arrivals[envelope["session_id"], envelope["seq"]] = now
        finally:
            writer.close()
