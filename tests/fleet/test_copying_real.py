"""The copy of a real daemon's journals: whole, once, and byte for byte, whatever fails in between."""

from __future__ import annotations

import asyncio
import os
import sys
import time
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
from clisup.fleet.agent.daemon_link import EventLines
from clisup.fleet.chain import ChainReader, MissingEvents, all_epochs, chunk_subject, read_chunk, read_subject
from tests.fleet.copied import Difference, difference
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
        found = await difference(engine, "box", daemon.state)
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
                await asyncio.to_thread(session.ask, "@stream 200 400\nbye")
            assert copy.held_bytes < 20_000 + 256 * 1024
            engine.away = False
            found = await whole(engine, daemon)
        assert found[1:] == (0, 0, 0, 0)

    asyncio.run(play())


def test_events_that_retention_removed_before_are_a_gap_of_the_copy(serve: Serve) -> None:
    retention = "[daemon.retention]\nevery_s = 0.05\ndays = 30\nbytes = 0\n"
    daemon, engine = serve(daemon={"segment_bytes": 65536}, raw=retention), MemoryEngine()

    async def play() -> None:
        session = await asyncio.to_thread(daemon.new)
        for _ in range(4):
            await asyncio.to_thread(session.ask, "@stream 300 400\nbye")
        segments = sorted(daemon.state.glob("sessions/*/journal/*.jsonl"))
        for path in segments[:-1]:
            os.utime(path, (time.time() - 40 * 86_400,) * 2)

        async def removed() -> bool:
            return len(list(daemon.state.glob("sessions/*/journal/*.jsonl"))) == 1

        assert len(segments) > 2
        await until(removed)
        async with copied_by(engine, daemon):
            assert (await whole(engine, daemon))[1:] == (0, 0, 0, 0)
        [gap] = [piece for piece in await pieces(engine, session.id) if isinstance(piece, MissingEvents)]
        assert (gap.first, gap.end, gap.reason) == (1, int(segments[-1].stem), "retention")

    asyncio.run(play())


def test_an_event_too_large_for_the_engine_is_copied_as_a_stub(serve: Serve) -> None:
    daemon, engine = serve(), MemoryEngine()
    engine.max_payload = 4096

    async def play() -> None:
        session = await asyncio.to_thread(daemon.new)
        await asyncio.to_thread(session.ask, "word " * 2000)
        async with copied_by(engine, daemon):
            assert (await whole(engine, daemon))[1:] == (0, 0, 0, 0)
        await asyncio.to_thread(session.ask, "the chain goes on behind a stub")
        async with copied_by(engine, daemon):
            assert (await whole(engine, daemon))[1:] == (0, 0, 0, 0)
        copied = b"".join(p.data for p in await pieces(engine, session.id) if not isinstance(p, MissingEvents))
        assert b'"elsewhere":true' in copied

    asyncio.run(play())


def test_a_session_whose_chunk_is_of_a_later_version_holds_up_no_other(serve: Serve) -> None:
    daemon, engine = serve(), MemoryEngine()

    async def play() -> None:
        later, other = [await asyncio.to_thread(daemon.new) for _ in range(2)]
        await asyncio.to_thread(later.ask, "hello")
        await engine.append(chunk_subject("box", later.id), b"?", {"Clisup-V": "99"})
        async with copied_by(engine, daemon) as copy:
            await asyncio.to_thread(other.ask, "hello")
            await asyncio.to_thread(later.ask, "this is not copied")
            end = (await asyncio.to_thread(other.get))["next_seq"] - 1

            async def copied() -> bool:
                return copy.ends.get(other.id) == end

            await until(copied)
        last = await engine.last(all_epochs("box", later.id))
        assert last is not None
        assert last.data == b"?"

    asyncio.run(play())


def test_a_reader_that_does_not_read_stops_the_sender(tmp_path: Path) -> None:
    """Otherwise the bound of held bytes bounds nothing: the rest would wait in the agent's own memory."""
    sent = asyncio.Event()

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"id":1,"result":{}}\n{"id":2,"result":{}}\n')
        for _ in range(256):
            writer.write(b"x" * 65535 + b"\n")
            await writer.drain()
        sent.set()
        writer.close()

    async def play() -> None:
        server = await asyncio.start_unix_server(send, str(tmp_path / "s"))
        batches = EventLines(str(tmp_path / "s"), "test").follow(None)
        seen = len(await anext(batches))
        for _ in range(5000):
            await asyncio.sleep(0)
        assert not sent.is_set()
        while seen < 256:
            batch = await anext(batches)
            assert set(batch) == {b"x" * 65535 + b"\n"}
            seen += len(batch)
        await batches.aclose()
        server.close()

    asyncio.run(play())
