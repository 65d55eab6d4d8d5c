"""Jobs of a run: each appends a line with its id to one file, so that a job that ran twice is seen."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec

from clisup.errors import ClisupError, WorldError
from clisup.fleet.engine import Bucket, Engine
from clisup.fleet.job_log import JobLog
from clisup.fleet.jobs import JobRequest, JobState, OnLost, job_id, read_state, request_subject, session_of, write_state
from tests.fleet_chaos.box import Box
from tests.fleet_chaos.figures import Figure
from tests.fleet_chaos.rpc import Line, persistent_call

__all__ = ["Jobs"]

RERUN_SHARE = 0.1
SUBMITTER = "ci"
PAUSE_S = 0.2


class Jobs:
    """Submits `count` jobs within `seconds`, and knows the last state of each."""

    def __init__(self, engine: Engine, directory: Path, count: int, seconds: float, seed: int) -> None:
        self._engine, self._directory = engine, directory
        self._count, self._seconds, self._chance = count, seconds, random.Random(seed)
        self._ran = directory / "ran"
        self.requests: dict[str, JobRequest] = {}
        self.states: dict[str, JobState] = {}

    async def submit(self) -> None:
        """Submit all jobs, one after the other."""
        for number in range(self._count):
            rest = f"@sleep {self._chance.uniform(0.0, 0.6):.2f}\ndone"
            on_lost: OnLost = "rerun" if self._chance.random() < RERUN_SHARE else "wait"
            await self._submit(str(number), rest, on_lost, None)
            await asyncio.sleep(self._seconds / self._count)

    async def one_for(self, box: str, rest: str) -> str:
        """Submit a job for one box, and return its id."""
        return await self._submit(f"for {box}", rest, "wait", box)

    async def _submit(self, key: str, rest: str, on_lost: OnLost, box: str | None) -> str:
        job = job_id(SUBMITTER, f"{self._directory} {key}")
        request = JobRequest(
            job=job,
            submitter=SUBMITTER,
            prompt=f"@bash echo {job} >> {self._ran}\n{rest}",
            backend="demo",
            cwd=str(self._directory),
            box=box,
            on_lost=on_lost,
        )
        self.requests[job] = request
        while True:
            try:
                await self._store(request)
                return job
            except WorldError as error:
                if error.kind != "fleet_away":
                    raise
                await asyncio.sleep(PAUSE_S)

    async def _store(self, request: JobRequest) -> None:
        """Store what is not stored yet: after a doubt it may be there."""
        subject = request_subject(SUBMITTER, request.job)
        if await self._engine.last(subject) is None:
            await self._engine.append(subject, msgspec.json.encode(request), expected=0)
        await Bucket(self._engine, "JOBS", "submit").create(request.job, write_state(request.first_state))

    def status(self, job: str) -> str:
        """Return the last known status of a job."""
        return self.states.get(job, JobState()).status

    async def watch(self) -> None:
        """Follow the states until cancelled."""
        while True:
            logs = dict[str, JobLog]()
            async with aclosing(Bucket(self._engine, "JOBS").watch()) as entries:
                async for entry in entries:
                    log = logs.setdefault(entry.key, JobLog())
                    log.take(entry.role, entry.writer, read_state(entry.value), entry.at)
                    self.states[entry.key] = log.state or JobState()

    @property
    def ended(self) -> int:
        """Return the number of jobs with a known end."""
        return sum(self.status(job) == "done" for job in self.requests)

    async def endless(self, boxes: Sequence[Box]) -> list[str]:
        """Return a line for each job without a known end: its state as it was watched, as stored, and on each box."""
        return [await self._described(job, boxes) for job in self.requests if self.status(job) != "done"]

    async def _described(self, job: str, boxes: Sequence[Box]) -> str:
        log = JobLog()
        for entry in await Bucket(self._engine, "JOBS").entries(job):
            log.take(entry.role, entry.writer, read_state(entry.value), entry.at)
        state = log.state or JobState()
        parts = [f"job {job}: watched {self.status(job)}, stored {state}"]
        for box in boxes:
            line = Line(box.socket)
            try:
                for attempt in range(1, state.attempt + 1):
                    session = session_of(job, attempt)
                    page = await persistent_call(line, "session/events", session_id=session, limit=1000)
                    told = " ".join(event["type"] for event in page["events"][-12:])
                    parts.append(f"  {box.name} attempt {attempt}, session {session}: {told}")
            except ClisupError as error:
                parts.append(f"  {box.name}: {error.message}")
            finally:
                line.close()
        return "\n".join(parts)

    def figures(self) -> list[Figure]:
        """Return what came of the jobs. A job with leave to run again may run twice."""
        runs = Counter(self._ran.read_text().split() if self._ran.exists() else ())
        twice = [job for job, number in runs.items() if number > 1]
        unasked = [job for job in twice if self.requests[job].on_lost == "wait"]
        silent = [
            job
            for job, state in self.states.items()
            if job in self.requests and state.outcome == "completed" and not runs[job]
        ]
        late = sum(state.late for job, state in self.states.items() if job in self.requests)
        return [
            Figure("jobs", len(self.requests)),
            Figure("jobs run twice", len(unasked), 0),
            Figure("jobs run twice with leave", len(twice) - len(unasked)),
            Figure("jobs completed that did not run", len(silent), 0),
            Figure("jobs without a known end", len(self.requests) - self.ended, 0),
            Figure("jobs done late", late),
        ]
