"""The copy of a real daemon's journals: whole, once, and byte for byte, whatever fails in between."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from serving import serve

from clisup.errors import ClisupError
from clisup.fleet.agent import copying
from clisup.fleet.agent.copying import Copying
from clisup.fleet.chain import ChainReader, MissingEvents, all_epochs, read_chunk, read_subject
from tests.fleet.copied import Difference, compare, copy_of, journals
from tests.fleet.memory_engine import MemoryEngine

__all__ = ["serve"]

PATIENCE_S = 60.0
Serve = Callable[..., Any]


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "LINGER_S", 0.02)
    monkeypatch.setattr(copying, "AGAIN_S", 0.1)


@asynccontextmanager
async def copied_by(engine: MemoryEngine, daemon: Any) -> AsyncIterator[Copying]:
    """An agent's copying, which begins again after each failure."""
    copy = Copying(engine, "box", str(daemon.socket))

    async def keep() -> None:
        while True:
            try:
                await copy.run()
            except ClisupError:
                await asyncio.sleep(0.05)

    task = asyncio.create_task(keep())
    try:
        yield copy
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(what: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await what()):
            await asyncio.sleep(0.05)
    return found


async def whole(engine: MemoryEngine, daemon: Any) -> Difference:
    """Wait until the copy has all events, and return the comparison."""

    async def look() -> Difference | None:
        found = compare(journals(daemon.state), await copy_of(engine, "box"))
        return None if found.lost or found.extra or not found.events else found

    found: Difference = await until(look)
    return found


def test_every_event_is_copied_once_and_byte_for_byte(serve: Serve) -> None:
    daemon, engine = serve(), MemoryEngine()

    async def play() -> None:
        before = await asyncio.to_thread(daemon.new)
        await asyncio.to_thread(before.ask, "before the agent")
        async with copied_by(engine, daemon):
            sessions = [await asyncio.to_thread(daemon.new) for _ in range(3)]
            for session in (before, *sessions):
                await asyncio.to_thread(session.ask, "hello")
            found = await whole(engine, daemon)
        assert found.events > 20
        assert found[1:] == (0, 0, 0, 0)

    asyncio.run(play())


def test_an_agent_that_was_killed_goes_on_behind_the_last_stored_event(serve: Serve) -> None:
    daemon, engine = serve(), MemoryEngine()

    async def play() -> None:
        session = await asyncio.to_thread(daemon.new)
        for _ in range(3):
            async with copied_by(engine, daemon):
                await asyncio.to_thread(session.ask, "hello")
        async with copied_by(engine, daemon):
            found = await whole(engine, daemon)
        assert found[1:] == (0, 0, 0, 0)

    asyncio.run(play())


def test_two_agents_of_one_box_store_nothing_twice(serve: Serve) -> None:
    daemon, engine = serve(), MemoryEngine()

    async def play() -> None:
        session = await asyncio.to_thread(daemon.new)
        async with copied_by(engine, daemon), copied_by(engine, daemon):
            for _ in range(5):
                await asyncio.to_thread(session.ask, "hello")
            found = await whole(engine, daemon)
        assert found[1:] == (0, 0, 0, 0)

    asyncio.run(play())


def test_an_engine_that_was_away_gets_everything_later(serve: Serve) -> None:
    daemon, engine = serve(), MemoryEngine()

    async def play() -> None:
        session = await asyncio.to_thread(daemon.new)
        async with copied_by(engine, daemon):
            await asyncio.to_thread(session.ask, "hello")
            await whole(engine, daemon)
            engine.away = True
            await asyncio.to_thread(session.ask, "nobody copies this now")
            engine.away = False
            found = await whole(engine, daemon)
        assert found[1:] == (0, 0, 0, 0)

    asyncio.run(play())


def test_a_daemon_that_was_killed_is_copied_on(serve: Serve) -> None:
    daemon, engine = serve(), MemoryEngine()

    async def play() -> None:
        session = await asyncio.to_thread(daemon.new)
        async with copied_by(engine, daemon):
            await asyncio.to_thread(session.ask, "hello")
            await asyncio.to_thread(daemon.kill)
            await asyncio.to_thread(daemon.start)
            again = await asyncio.to_thread(daemon.new)
            await asyncio.to_thread(again.ask, "after the kill")
            found = await whole(engine, daemon)
        assert found[1:] == (0, 0, 0, 0)

    asyncio.run(play())


async def pieces(engine: MemoryEngine, id_: str) -> list[Any]:
    """What a reader of the whole chain gets."""
    reader, found = ChainReader(), list[Any]()
    last = await engine.last(all_epochs("box", id_))
    assert last is not None
    async for message in engine.read(all_epochs("box", id_)):
        found += reader.read(read_subject(message.subject)[2], read_chunk(message.headers, message.data))
        if message.position == last.position:
            return found
    return found


def test_a_journal_that_lost_its_end_begins_the_next_epoch(serve: Serve) -> None:
    daemon, engine = serve(), MemoryEngine()

    async def play() -> None:
        session = await asyncio.to_thread(daemon.new)
        await asyncio.to_thread(session.ask, "hello")
        saved = {path: path.read_bytes() for path in daemon.state.glob("sessions/*/journal/*")}
        await asyncio.to_thread(session.ask, "this is lost with the power")
        async with copied_by(engine, daemon):
            await whole(engine, daemon)
        await asyncio.to_thread(daemon.kill)
        for path in daemon.state.glob("sessions/*/journal/*"):
            path.unlink()
        for path, data in saved.items():
            path.write_bytes(data)
        await asyncio.to_thread(daemon.start)
        async with copied_by(engine, daemon):
            found = await whole(engine, daemon)
            assert found[1:] == (0, 0, 0, 0)
        gaps = [piece.reason for piece in await pieces(engine, session.id) if isinstance(piece, MissingEvents)]
        assert gaps == ["rewound"]

    asyncio.run(play())


def test_the_agent_holds_no_more_than_its_bound(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "HELD_BYTES", 20_000)
    daemon, engine = serve(), MemoryEngine()

    async def play() -> None:
        session = await asyncio.to_thread(daemon.new)
        async with copied_by(engine, daemon) as copy:
            await asyncio.to_thread(session.ask, "hello")
            await whole(engine, daemon)
            engine.away = True
            for _ in range(5):
                await asyncio.to_thread(session.ask, "@repeat 200 word")
            assert copy.held_bytes < 20_000 + 256 * 1024
            engine.away = False
            found = await whole(engine, daemon)
        assert found[1:] == (0, 0, 0, 0)

    asyncio.run(play())
