"""Jobs on real daemons with the engine in memory: placement, ends, lost boxes, and no second run without leave."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from serving import serve

from clisup.errors import UsageError, WorldError
from clisup.fleet import job_log
from clisup.fleet import jobs as rules
from clisup.fleet.agent import beats, placing, table
from clisup.fleet.agent.settings import AgentSettings
from clisup.fleet.engine import Bucket, StoredMessage
from clisup.fleet.job_client import Job, JobClient, new_request
from clisup.fleet.jobs import JobRequest, session_of, write_state
from tests.fleet.boxes_in_memory import PATIENCE_S, running, settings_of, thread, until
from tests.fleet.memory_engine import MemberEngine, MemoryEngine

__all__ = ["serve"]

Serve = Callable[..., Any]


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rules, beats):
        monkeypatch.setattr(module, "BEAT_S", 0.3)
    for module in (rules, table, job_log, placing):
        monkeypatch.setattr(module, "GONE_S", 3.0)
    monkeypatch.setattr(table, "BEAT_S", 0.3)
    monkeypatch.setattr(placing, "LOOK_S", 0.1)


def client_of(engine: MemoryEngine, member: str) -> JobClient:
    return JobClient(MemberEngine(engine, member, ["operator"]), member)


class Fleet:
    """Boxes with daemons, and a client of the member `ci`. Each job appends its key to a file."""

    def __init__(self, serve: Serve, directory: Path, count: int, **fleet: Any) -> None:
        self.engine, self.directory, self.ran = MemoryEngine(), directory, directory / "ran"
        self.daemons = [serve() for _ in range(count)]
        self.boxes: list[AgentSettings] = [
            settings_of(directory, f"box{number}", daemon, {"worker"}, **fleet)
            for number, daemon in enumerate(self.daemons)
        ]
        self.client = client_of(self.engine, "ci")

    @asynccontextmanager
    async def agents(self, *numbers: int) -> AsyncIterator[None]:
        if not numbers:
            yield
            return
        async with running(self.engine, self.boxes[numbers[0]]), self.agents(*numbers[1:]):
            yield

    def request(self, key: str, more: str = "", **fields: Any) -> JobRequest:
        prompt = f"@bash echo {key} >> {self.ran}\n{more or 'done'}"
        place = {} if "workspace" in fields else {"cwd": str(self.directory)}
        return new_request("ci", key, prompt, "demo", **{**place, **fields})

    async def submit(self, key: str, more: str = "", **fields: Any) -> Job:
        return await self.client.submit(self.request(key, more, **fields))

    async def end(self, job: Job) -> Job:
        return await asyncio.wait_for(self.client.wait(job.id), PATIENCE_S)

    async def reaches(self, job: Job, *statuses: str) -> Job:
        async def look() -> Job | None:
            found = await self.client.get(job.id)
            return found if found.state.status in statuses else None

        found: Job = await until(look)
        return found

    def runs(self) -> Counter[str]:
        return Counter(self.ran.read_text().split()) if self.ran.exists() else Counter()


def test_three_boxes_share_jobs_and_run_each_once(serve: Serve, tmp_path: Path) -> None:
    fleet = Fleet(serve, tmp_path, 3)

    async def play() -> None:
        async with fleet.agents(0, 1, 2):
            jobs = [await fleet.submit(f"job{number}") for number in range(24)]
            ends = await asyncio.gather(*(fleet.end(job) for job in jobs))
        assert {end.state.outcome for end in ends} == {"completed"}
        assert len({end.state.box for end in ends}) > 1
        assert {end.state.attempt for end in ends} == {1}

    asyncio.run(play())
    assert fleet.runs() == {f"job{number}": 1 for number in range(24)}


def test_a_submit_that_is_repeated_is_the_same_job(serve: Serve, tmp_path: Path) -> None:
    fleet = Fleet(serve, tmp_path, 1)

    async def play() -> None:
        async with fleet.agents(0):
            first = await fleet.submit("once")
            await fleet.end(first)
            again = await fleet.submit("once")
            assert (again.id, again.state.status) == (first.id, "done")
            with pytest.raises(UsageError, match="another job was submitted with this key"):
                await fleet.submit("once", "another text")

    asyncio.run(play())
    assert fleet.runs() == {"once": 1}


def test_a_job_waits_for_a_box_that_fits(serve: Serve, tmp_path: Path) -> None:
    fleet = Fleet(serve, tmp_path, 2)
    work = tmp_path / "work"
    work.mkdir()
    fleet.boxes[1].fleet = fleet.boxes[1].fleet.model_copy(
        update={"labels": {"gpu": "h100"}, "workspaces": {"app": str(work)}}
    )

    async def play() -> None:
        async with fleet.agents(0, 1):
            ends = [
                await fleet.end(await fleet.submit("gpu", needs={"gpu": ""})),
                await fleet.end(await fleet.submit("h100", needs={"gpu": "h100"})),
                await fleet.end(await fleet.submit("workspace", workspace="app")),
                await fleet.end(await fleet.submit("named", box="box1")),
            ]
            assert [end.state.box for end in ends] == ["box1"] * 4
            request = fleet.request("never", needs={"gpu": "a100"})
            waiting = await fleet.client.submit(request)

            async def reasons() -> bool:
                return await fleet.client.reasons(request) == {
                    "box0": "box0 has no label gpu=a100", "box1": "box1 has no label gpu=a100",
                }  # fmt: skip

            await until(reasons)
            assert (await fleet.client.cancel(waiting.id)).state.status == "cancelled"
            assert (await fleet.end(waiting)).state.status == "cancelled"

    asyncio.run(play())


def test_a_box_takes_no_jobs_of_strangers(serve: Serve, tmp_path: Path) -> None:
    fleet = Fleet(serve, tmp_path, 1, accept=["anna"])

    async def play() -> None:
        async with fleet.agents(0):
            request = fleet.request("strange")
            job = await fleet.client.submit(request)

            async def refused() -> bool:
                return await fleet.client.reasons(request) == {"box0": "box0 accepts no jobs of ci"}

            await until(refused)
            assert (await fleet.client.get(job.id)).state.status == "pending"
            with pytest.raises(UsageError) as caught:
                await client_of(fleet.engine, "eve").cancel(job.id)
            assert caught.value.kind == "permission_denied"

    asyncio.run(play())
    assert fleet.runs() == {}


def test_an_agent_that_comes_back_reports_the_turn_that_went_on(serve: Serve, tmp_path: Path) -> None:
    fleet = Fleet(serve, tmp_path, 1)

    async def play() -> None:
        async with fleet.agents(0):
            job = await fleet.submit("slow", "@sleep 2\ndone")
            await fleet.reaches(job, "started")
        async with fleet.agents(0):
            end = await fleet.end(job)
        assert (end.state.outcome, end.state.attempt, end.state.late) == ("completed", 1, False)

    asyncio.run(play())
    assert fleet.runs() == {"slow": 1}


def test_a_lost_job_is_done_late_and_runs_once(serve: Serve, tmp_path: Path) -> None:
    fleet = Fleet(serve, tmp_path, 2)

    async def play() -> None:
        async with fleet.agents(1):
            async with fleet.agents(0):
                job = await fleet.submit("lost", "@sleep 1\ndone", box="box0")
                await until(lambda: _truth(fleet.runs()["lost"] == 1))
            await fleet.reaches(job, "lost")
            async with fleet.agents(0):
                end = await fleet.end(job)
        assert (end.state.outcome, end.state.late, end.state.box) == ("completed", True, "box0")

    asyncio.run(play())
    assert fleet.runs() == {"lost": 1}


def test_with_leave_a_lost_job_runs_anew_elsewhere(serve: Serve, tmp_path: Path) -> None:
    fleet = Fleet(serve, tmp_path, 2)

    async def play() -> None:
        async with fleet.agents(1):
            fleet.boxes[1].fleet = fleet.boxes[1].fleet.model_copy(update={"accept": []})
            async with fleet.agents(0):
                job = await fleet.submit("again", "@sleep 60\ndone", on_lost="rerun")
                await fleet.reaches(job, "started")
                await until(lambda: _truth(fleet.runs()["again"] == 1))
            fleet.boxes[1].fleet = fleet.boxes[1].fleet.model_copy(update={"accept": ["*"]})

            async def elsewhere() -> bool:
                state = (await fleet.client.get(job.id)).state
                return (state.status, state.box, state.attempt) == ("started", "box1", 2)

            await until(elsewhere)
            await until(lambda: _truth(fleet.runs()["again"] == 2))

    asyncio.run(play())


async def _truth(value: bool) -> bool:
    return value


def test_what_the_daemon_refuses_has_failed(serve: Serve, tmp_path: Path) -> None:
    fleet = Fleet(serve, tmp_path, 1)

    async def play() -> None:
        async with fleet.agents(0):
            job = await fleet.submit("bad", session={"permission_mode": "no such mode"})
            end = await fleet.end(job)
            assert end.state.outcome == "failed"
            assert "mode" in end.state.error

    asyncio.run(play())
    assert fleet.runs() == {}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"cwd": "/tmp", "workspace": "app"}, "needs one directory"),
        ({"cwd": None}, "needs one directory"),
        ({"cwd": "relative"}, "is not absolute"),
        ({"session": {"env": {"A": "b"}}}, "cannot set 'env'"),
        ({"turn": {"tools": []}}, "cannot set 'tools'"),
    ],
)
def test_a_bad_request_is_refused_before_it_is_stored(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        new_request("ci", "k", "p", "demo", **{"cwd": "/tmp", **fields})


def test_a_prompt_that_the_engine_cannot_hold_is_refused() -> None:
    async def play() -> None:
        with pytest.raises(UsageError, match="the engine takes") as caught:
            await JobClient(MemoryEngine(), "ci").submit(new_request("ci", "k", "x" * 2_000_000, "demo", cwd="/"))
        assert caught.value.kind == "limit_exceeded"

    asyncio.run(play())


def test_a_damaged_job_stops_no_other(serve: Serve, tmp_path: Path) -> None:
    fleet = Fleet(serve, tmp_path, 1)

    async def play() -> None:
        eve = MemberEngine(fleet.engine, "eve", ["operator"])
        steps = Bucket(eve, "JOBS", "submit")
        for number, value in enumerate((b"no state", b"", b"[" * 5000, b'{"status":"flying"}', b'{"attempt":1e999}')):
            await steps.put(f"00000000-0000-4000-8000-00000000000{number}", value)
        forged = fleet.request("forged")
        await eve.append(f"clisup.job.eve.{forged.job}", b'{"job":"x"}')
        await steps.put(forged.job, b'{"status":"pending","submitter":"eve"}')
        async with fleet.agents(0):
            end = await fleet.end(await fleet.submit("good"))
            assert end.state.outcome == "completed"
            assert [job.id for job in await fleet.client.list()] == [end.id, forged.job]

    asyncio.run(play())
    assert fleet.runs() == {"good": 1}


class Doubtful(MemoryEngine):
    """Engine that stores and then loses each fifth answer to an append."""

    count = 0

    async def append(
        self, subject: str, data: bytes, headers: Any = None, *, expected: int | None = None
    ) -> int | None:
        position = await super().append(subject, data, headers, expected=expected)
        self.count += 1
        if self.count % 5 == 0:
            raise WorldError("the answer was lost", kind="fleet_away")
        return position


def test_a_swap_in_doubt_runs_nothing_twice(serve: Serve, tmp_path: Path) -> None:
    fleet = Fleet(serve, tmp_path, 2)
    fleet.engine = Doubtful()
    fleet.client = client_of(fleet.engine, "ci")

    async def play() -> None:
        async with fleet.agents(0, 1):
            jobs = [await fleet.submit(f"job{number}") for number in range(12)]
            for job in jobs:
                await fleet.end(job)

    asyncio.run(play())
    assert fleet.runs() == {f"job{number}": 1 for number in range(12)}


def test_no_step_of_another_box_changes_a_job_or_makes_it_run_again(serve: Serve, tmp_path: Path) -> None:
    fleet = Fleet(serve, tmp_path, 1)
    steps = Bucket(MemberEngine(fleet.engine, "evil", ["worker"]), "JOBS")
    statuses = ("pending", "claimed", "started", "lost", "done", "cancelled")

    async def forge(job: Job) -> None:
        """Write each status, under the names of others, for this attempt and later ones."""
        state = (await fleet.client.get(job.id)).state
        for status in statuses:
            for attempt in range(3):
                forged = replace(state, status=status, attempt=attempt, outcome="forged", submitter="ci")
                await steps.put(job.id, write_state(forged))

    async def play() -> None:
        async with fleet.agents(0):
            job = await fleet.submit("one", "@sleep 1\ndone", box="box0")
            await forge(job)
            await fleet.reaches(job, "started")
            await forge(job)
            end = await fleet.end(job)
            assert (end.state.outcome, end.state.box, end.state.attempt) == ("completed", "box0", 1)
            await forge(job)
            await fleet.end(await fleet.submit("two"))
            assert (await fleet.client.get(job.id)).state == end.state

    asyncio.run(play())
    assert fleet.runs() == {"one": 1, "two": 1}


def test_a_box_does_not_run_what_it_ended_although_the_engine_has_lost_the_end(serve: Serve, tmp_path: Path) -> None:
    fleet = Fleet(serve, tmp_path, 1)

    async def play() -> None:
        async def deleted() -> bool:
            await thread(fleet.daemons[0].call, "session/delete", session_id=session_of(job.id, 1))
            return True

        async with fleet.agents(0):
            job = await fleet.submit("once")
            end = await fleet.end(job)
            # The agent closes the session after the end is known. An open session is not deleted.
            await until(deleted)
        await fleet.engine.lose("clisup.state.x", 3)  # claimed, started, done
        async with fleet.agents(0):
            await fleet.end(await fleet.submit("two"))
            assert (await fleet.client.get(job.id)).state.status == "pending"
        assert end.state.outcome == "completed"

    asyncio.run(play())
    assert fleet.runs() == {"once": 1, "two": 1}


def test_a_job_whose_time_is_over_is_started_by_no_box_and_ends_as_expired(serve: Serve, tmp_path: Path) -> None:
    fleet = Fleet(serve, tmp_path, 1)

    async def play() -> None:
        async with fleet.agents(0):
            await fleet.end(await fleet.submit("first"))  # the box takes jobs
            late = await fleet.end(await fleet.submit("late", not_after=time.time() - 60))
            assert late.state.status == "expired"
            with pytest.raises(UsageError, match="is expired"):
                await fleet.client.cancel(late.id)

    asyncio.run(play())
    assert fleet.runs() == {"first": 1}


class Deaf(MemoryEngine):
    """An engine whose watchers hear of no claim of another box for a while."""

    async def read(self, subject: str, after: int = 0) -> AsyncGenerator[StoredMessage, None]:
        async for message in super().read(subject, after):
            if b'"claimed"' in message.data:
                await asyncio.sleep(0.5)
            yield message


def test_of_two_boxes_that_claim_at_once_one_starts(serve: Serve, tmp_path: Path) -> None:
    fleet = Fleet(serve, tmp_path, 2)
    fleet.engine = Deaf()
    fleet.client = client_of(fleet.engine, "ci")

    async def play() -> None:
        async with fleet.agents(0, 1):
            jobs = [await fleet.submit(f"job{number}") for number in range(6)]
            for job in jobs:
                await fleet.end(job)

    asyncio.run(play())
    assert fleet.runs() == {f"job{number}": 1 for number in range(6)}
