"""The agent's parts beside a real daemon: what other boxes see of this one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from serving import serve

from clisup.errors import WorldError
from clisup.fleet.agent import app, beats, rows
from clisup.fleet.agent.app import _keep
from clisup.fleet.agent.records import BoxBeat, read_beat, read_record
from clisup.fleet.engine import Bucket
from tests.fleet.boxes_in_memory import running, settings_of, thread, until
from tests.fleet.memory_engine import MemoryEngine

__all__ = ["serve"]

Serve = Callable[..., Any]


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beats, "BEAT_S", 0.05)
    monkeypatch.setattr(rows, "EVERY_S", 0.05)
    monkeypatch.setattr(rows, "ALL_S", 0.2)
    monkeypatch.setattr(app, "AGAIN_S", 0.05)
    monkeypatch.setattr(app, "FAILED_AGAIN_S", 0.05)


async def beat_of(engine: MemoryEngine, member: str) -> BoxBeat | None:
    entry = await Bucket(engine, "BOXES").get(member)
    return entry and read_beat(entry.value)


async def row_of(engine: MemoryEngine, member: str, id_: str) -> dict[str, Any] | None:
    entry = await Bucket(engine, "SESSIONS").get(f"{member}.{id_}")
    return entry and read_record(entry.value).row


def test_a_box_that_shares_its_status_copies_no_event(serve: Serve, tmp_path: Path) -> None:
    daemon, engine = serve(), MemoryEngine()
    box = settings_of(tmp_path, "box", daemon, {"worker"}, share="status")

    async def play() -> None:
        async with running(engine, box):
            session = await thread(daemon.new)
            await thread(session.ask, "nobody else reads this")

            async def reported() -> bool:
                row = await row_of(engine, "box", session.id)
                return row is not None and row["turns"] == 1

            await until(reported)
            beat: BoxBeat = await until(lambda: beat_of(engine, "box"))
        assert (beat.share, beat.lag) == ("status", 0)
        row = await row_of(engine, "box", session.id)
        assert row is not None
        assert row["title"] is None
        assert not [subject for subject in engine.subjects() if subject.startswith("clisup.ev.")]

    asyncio.run(play())


def test_a_deleted_session_leaves_a_tombstone(serve: Serve, tmp_path: Path) -> None:
    daemon, engine = serve(), MemoryEngine()
    box = settings_of(tmp_path, "box", daemon, {"worker"})

    async def play() -> None:
        async with running(engine, box):
            session = await thread(daemon.new)
            await thread(session.ask, "hello")

            async def there() -> bool:
                return await row_of(engine, "box", session.id) is not None

            async def gone() -> bool:
                return not await there()

            await until(there)
            await thread(session.call, "close")
            await thread(session.call, "delete")
            await until(gone)
        assert f"$KV.SESSIONS.box.{session.id}" in engine.subjects()

    asyncio.run(play())


def test_a_beat_says_that_the_daemon_is_down_and_up_again(serve: Serve, tmp_path: Path) -> None:
    daemon, engine = serve(), MemoryEngine()
    box = settings_of(tmp_path, "box", daemon, {"worker"}, labels={"gpu": "1"})

    async def says(state: str) -> bool:
        beat = await beat_of(engine, "box")
        return beat is not None and beat.daemon == state

    async def play() -> None:
        async with running(engine, box):
            await until(lambda: says("up"))
            await thread(daemon.kill)
            await until(lambda: says("down"))
            beat = await beat_of(engine, "box")
            assert beat is not None
            assert (beat.labels, beat.incarnation) == ({"gpu": "1"}, "word-of-box")
            await thread(daemon.start)
            await until(lambda: says("up"))

    asyncio.run(play())


def test_two_boxes_with_one_name_see_it_and_keep_the_rows_of_each_other(serve: Serve, tmp_path: Path) -> None:
    one, other, engine = serve(), serve(), MemoryEngine()
    boxes = [settings_of(tmp_path, "box", daemon, {"worker"}) for daemon in (one, other)]
    boxes[1].incarnation = "another word"
    seen = set[str]()

    async def play() -> None:
        async with running(engine, boxes[0]):
            mine = await thread(one.new)
            await until(lambda: row_of(engine, "box", mine.id))
            async with running(engine, boxes[1]) as second:

                async def both() -> bool:
                    beat = await beat_of(engine, "box")
                    seen.update([beat.incarnation] if beat else [])
                    return len(seen) == 2 and second._beats is not None and second._beats._reported

                await until(both)
                theirs = await thread(other.new)
                await until(lambda: row_of(engine, "box", theirs.id))
                assert await row_of(engine, "box", mine.id)

    asyncio.run(play())


def test_a_part_that_fails_begins_again_and_a_lasting_reason_is_logged_once() -> None:
    runs, logged = 0, list[str]()

    class Log:
        def warning(self, event: str, **fields: Any) -> None:
            logged.append(f"{event}: {fields['error']}")

        def exception(self, event: str, **fields: Any) -> None:
            logged.append(event)

    async def part() -> None:
        nonlocal runs
        runs += 1
        if runs == 3:
            raise ExceptionGroup("two tasks", [ValueError("a fault of the agent")])
        raise WorldError("the engine is away" if runs < 6 else "another reason", kind="fleet_away")

    async def play() -> None:
        task = asyncio.create_task(_keep("copy", part))

        async def often() -> bool:
            return runs >= 8

        await until(often)
        task.cancel()

    async def end() -> None:
        """A part that is cancelled and fails on its way out has ended all the same."""
        task = asyncio.create_task(_keep("copy", failing))
        await asyncio.sleep(0)
        task.cancel()
        async with asyncio.timeout(60):
            await asyncio.wait({task})

    async def failing() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("a fault")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "_log", Log())
        patch.setattr(app, "AGAIN_S", 0.001)
        patch.setattr(app, "FAILED_AGAIN_S", 0.001)
        asyncio.run(play())
        assert logged.count("part of the agent failed") == 1
        asyncio.run(end())
    waits = "part of the agent waits: "
    assert logged == [
        f"{waits}the engine is away",
        "part of the agent failed",
        f"{waits}another reason",
        "part of the agent failed",
    ]
