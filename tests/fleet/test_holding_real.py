"""Limits of a shared account on two boxes: real daemons, and the engine in memory."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from serving import serve

from clisup.fleet.agent import holding
from clisup.fleet.agent.holding import Holding
from clisup.fleet.engine import Bucket
from clisup.fleet.holds import AccountHold, BoxHold, fleet_hold, read_hold, write_hold
from clisup.policy.rate_limit import AccountLimit
from tests.fleet.memory_engine import MemberEngine, MemoryEngine

__all__ = ["serve"]

PATIENCE_S = 60.0
Serve = Callable[..., Any]


class Link:
    """Connection to a daemon, as the agent has one."""

    def __init__(self, daemon: Any) -> None:
        self._wire, self._one = daemon.wire(), asyncio.Lock()
        self.looks = 0

    def close(self) -> None:
        self._wire.close()

    async def call(self, method: str, **params: Any) -> Any:
        self.looks += method == "account/list"
        async with self._one:
            return await asyncio.to_thread(self._wire.call, method, **params)


class Fleet:
    """Two boxes. `clocks` are the differences of their clocks to the engine's."""

    def __init__(self, serve: Serve, engine: MemoryEngine, accounts: tuple[str, str] = ("team", "team")) -> None:
        self.engine = engine
        self.daemons = [serve(demo={"account": name} if name else {}) for name in accounts]
        self.links = [Link(daemon) for daemon in self.daemons]
        self.running = {"box0", "box1", "gone"}
        """Boxes whose beats name the account."""

    @asynccontextmanager
    async def agents(self, *clocks: float) -> AsyncIterator[list[Holding]]:
        beats = Bucket(self.engine, "BOXES")
        found = []
        async with self._closing(), asyncio.TaskGroup() as tasks:
            running = []
            for number, link in enumerate(self.links):
                at = time.time() + (clocks[number] if clocks else 0.0)
                await beats.put(f"box{number}", json.dumps({"at": at}).encode())
                engine = MemberEngine(self.engine, f"box{number}", ["worker"])
                found.append(Holding(engine, f"box{number}", link, lambda box, _account: box in self.running))
                running.append(tasks.create_task(found[-1].run()))
            try:
                yield found
            finally:
                for task in running:
                    task.cancel()

    @asynccontextmanager
    async def _closing(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            for link in self.links:
                link.close()

    async def new(self, box: int) -> Any:
        return await asyncio.to_thread(self.daemons[box].new)

    async def use_up(self, box: int, seconds: float) -> None:
        session = await self.new(box)
        end = await asyncio.to_thread(session.ask, f"@limit {seconds}")
        assert end["error"]["kind"] == "quota_exceeded"

    async def several_looks(self) -> None:
        """Wait until each agent has looked at its daemon a few times."""
        ends = [link.looks + 5 for link in self.links]

        async def looked() -> bool:
            return all(link.looks >= end for link, end in zip(self.links, ends, strict=True))

        await until(looked)

    async def limit(self, box: int, account: str = "team") -> dict[str, Any]:
        rows = (await self.links[box].call("account/list"))["accounts"]
        return next((row for row in rows if row["account"] == account), {"limit": {}, "waiting": []})

    async def stored(self, account: str = "team") -> AccountHold:
        entries = await Bucket(self.engine, "HOLDS").entries(account)
        return fleet_hold(BoxHold(entry.writer, read_hold(entry.value), entry.revision) for entry in entries).hold


async def until(what: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await what()):
            await asyncio.sleep(0.05)
    return found


def run(play: Awaitable[None]) -> None:
    asyncio.run(cast("Any", play))


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "EVERY_S", 0.1)


async def is_limited(fleet: Fleet, box: int) -> bool:
    return bool((await fleet.limit(box))["limit"].get("state") == "limited")


def test_a_limit_of_one_box_holds_the_other_and_after_the_end_one_box_tries_first(serve: Serve) -> None:
    async def play() -> None:
        fleet = Fleet(serve, MemoryEngine())
        async with fleet.agents():
            await fleet.use_up(0, 8)
            await until(lambda: is_limited(fleet, 1))
            sessions = [await fleet.new(box) for box in (0, 1)]
            go = [fleet.daemons[box].cwd / "go" for box in (0, 1)]
            for session in sessions:
                held = (await asyncio.to_thread(session.call, "prompt", prompt="@wait-file go\nan answer"))["held"]
                assert held["account"] == "team"

            async def started() -> list[int]:
                return [box for box in (0, 1) if await asyncio.to_thread(sessions[box].events, "turn_started")]

            assert not await started()
            [first] = await until(started)
            assert (await fleet.stored()).probe == f"box{first}"
            await fleet.several_looks()
            assert await started() == [first]
            go[first].touch()
            await until(lambda: both(started))
            go[1 - first].touch()
            for session in sessions:
                await asyncio.to_thread(session.await_event, "turn_completed")
            assert (await fleet.stored()).limit.state == "ok"

    async def both(started: Callable[[], Awaitable[list[int]]]) -> bool:
        return await started() == [0, 1]

    run(play())


def test_a_box_whose_clock_is_off_shares_no_limit_and_says_so(serve: Serve) -> None:
    async def play() -> None:
        fleet = Fleet(serve, MemoryEngine())
        async with fleet.agents(-600, 0) as agents:
            await fleet.use_up(0, 3600)
            await until(lambda: clock_known(agents[0]))
            await fleet.several_looks()
            assert -601 < (agents[0].clock_off_s or 0) < -599
            assert (await fleet.stored()).limit.state == "unknown"
            await fleet.use_up(1, 1800)
            before = (await fleet.limit(0))["limit"]
            await until(lambda: is_stored(fleet))
            await fleet.several_looks()
            assert (await fleet.limit(0))["limit"] == before

    run(play())


async def clock_known(agent: Holding) -> bool:
    return agent.clock_off_s is not None


async def is_stored(fleet: Fleet) -> bool:
    return (await fleet.stored()).limit.state == "limited"


def test_without_the_engine_each_box_is_for_itself_and_shares_its_limit_later(serve: Serve) -> None:
    async def play() -> None:
        fleet = Fleet(serve, MemoryEngine())
        async with fleet.agents():
            await fleet.use_up(0, 2)
            await until(lambda: is_limited(fleet, 1))
            fleet.engine.away = True
            await fleet.use_up(1, 3600)  # later than the limit of box 0, which is over
            session = await fleet.new(0)
            end = await asyncio.to_thread(session.ask, "hello")  # its own limit is over, and it asks nobody
            assert end["outcome"] == "completed"
            fleet.engine.away = False
            await until(lambda: says(fleet, "ok"))
            await until(lambda: frees(fleet))

    async def says(fleet: Fleet, state: str) -> bool:
        return (await fleet.stored()).limit.state == state

    async def frees(fleet: Fleet) -> bool:
        return not await is_limited(fleet, 1)

    run(play())


def test_limits_of_accounts_without_a_name_stay_on_their_box(serve: Serve) -> None:
    async def play() -> None:
        fleet = Fleet(serve, MemoryEngine(), ("", "team"))
        async with fleet.agents():
            await fleet.use_up(0, 3600)
            await fleet.use_up(1, 3600)
            await until(lambda: is_stored(fleet))
            session = await fleet.new(0)
            held = (await asyncio.to_thread(session.call, "prompt", prompt="hello"))["held"]
            assert held["account"] == "demo"
            await fleet.several_looks()
            keys = {subject for subject in fleet.engine.subjects() if subject.startswith("$KV.HOLDS.")}
            assert keys == {"$KV.HOLDS.team.work.box1"}

    run(play())


def test_a_box_that_probes_and_says_nothing_keeps_the_others_for_a_minute_at_most(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clisup.fleet.holds.PROBE_S", 5.0)

    async def play() -> None:
        fleet = Fleet(serve, MemoryEngine())
        now = time.time()
        gone = AccountHold(limit=AccountLimit(state="limited", until=now + 5, said_at=now), probe="gone", probed=now)
        await Bucket(MemberEngine(fleet.engine, "gone"), "HOLDS").create("team", write_hold(gone))
        async with fleet.agents():
            await until(lambda: is_limited(fleet, 1))
            session = await fleet.new(1)
            end = await asyncio.to_thread(session.ask, "hello")
            assert end["outcome"] == "completed"
            assert session.events("notice", code="held")

    run(play())


def test_a_report_from_the_future_is_not_believed(serve: Serve) -> None:
    async def play() -> None:
        fleet = Fleet(serve, MemoryEngine())
        later = time.time() + 600
        forged = AccountHold(limit=AccountLimit(state="ok", said_at=later))
        await Bucket(MemberEngine(fleet.engine, "gone"), "HOLDS").create("team", write_hold(forged))
        async with fleet.agents():
            await fleet.use_up(0, 3600)
            await until(lambda: is_limited(fleet, 1))

    run(play())


def forge(fleet: Fleet, box: str, for_s: float) -> Awaitable[int | None]:
    now = time.time()
    hold = AccountHold(limit=AccountLimit(state="limited", until=now + for_s, said_at=now))
    return Bucket(MemberEngine(fleet.engine, box, ["worker"]), "HOLDS").put("team", write_hold(hold))


def test_a_limit_of_a_box_that_does_not_run_the_account_holds_no_turn(serve: Serve) -> None:
    async def play() -> None:
        fleet = Fleet(serve, MemoryEngine())
        async with fleet.agents():
            await forge(fleet, "evil", 20 * 86_400)
            await fleet.several_looks()
            assert not await is_limited(fleet, 0)
            end = await asyncio.to_thread((await fleet.new(0)).ask, "hello")
            assert end["outcome"] == "completed"

    run(play())


def test_a_limit_that_is_not_true_holds_turns_once_and_for_some_minutes_at_most(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "FOREIGN_S", 2.0)

    async def play() -> None:
        fleet = Fleet(serve, MemoryEngine())
        async with fleet.agents():
            await forge(fleet, "gone", 20 * 86_400)
            await until(lambda: is_limited(fleet, 0))
            session = await fleet.new(0)
            end = await asyncio.to_thread(session.ask, "hello")  # its own turn shows that the limit is not true
            assert end["outcome"] == "completed"
            await until(lambda: frees(fleet, 0))
            await fleet.several_looks()
            await forge(fleet, "gone", 20 * 86_400)
            await fleet.several_looks()
            assert not await is_limited(fleet, 0)

    async def frees(fleet: Fleet, box: int) -> bool:
        return not await is_limited(fleet, box)

    run(play())
