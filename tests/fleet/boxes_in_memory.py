"""Boxes of a fleet in one process: real daemons, the agent's parts, and the engine in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from clisup.config.tables import FleetConfig
from clisup.errors import ClisupError
from clisup.fleet.agent.app import Agent
from clisup.fleet.agent.settings import AgentSettings
from clisup.fleet.member import FleetMember, MemberKey, Role
from tests.fleet.memory_engine import MemberEngine, MemoryEngine

PATIENCE_S = 90.0


def settings_of(directory: Path, name: str, daemon: Any, roles: set[Role], **fleet: Any) -> AgentSettings:
    """The settings of one box. `daemon` is a harness, or None for a box without one."""
    run = directory / name
    run.mkdir(mode=0o700, exist_ok=True)
    config = FleetConfig.model_validate({"accept": ["*"], **fleet})
    return AgentSettings(
        FleetMember("team", name, frozenset(roles), ("nats://127.0.0.1:1",), MemberKey("none")),
        config,
        str(run),
        str(daemon.socket) if daemon is not None else str(run / "none.sock"),
        str(run / "fleet.sock"),
        str(run / "fleet"),
        f"word-of-{name}",
        lambda: config,
    )


@asynccontextmanager
async def running(engine: MemoryEngine | None, settings: AgentSettings) -> AsyncIterator[Agent]:
    """An agent with all parts, on this engine."""
    agent = Agent(settings)

    async def connect() -> None:
        if engine is not None:
            agent.engine = MemberEngine(engine, settings.member.name, settings.member.roles)
            await agent._run_parts(agent.engine)
        await asyncio.Event().wait()

    agent._connect = connect  # type: ignore[method-assign]
    task = asyncio.create_task(agent.run())
    try:
        yield agent
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def socket_of(settings: AgentSettings, other: str) -> str:
    return f"{settings.sockets_dir}/{other}.sock"


async def until(what: Callable[[], Awaitable[Any]]) -> Any:
    """What `what` returns, as soon as that is true. A `ClisupError` counts as not yet."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                if found := await what():
                    return found
            except (ClisupError, FileNotFoundError):
                pass
            await asyncio.sleep(0.05)


async def thread(do: Callable[..., Any], *words: Any, **fields: Any) -> Any:
    """Call a blocking client from a thread."""
    return await asyncio.to_thread(lambda: do(*words, **fields))
