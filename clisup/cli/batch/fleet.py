"""Work of a batch on the boxes of a fleet: each line is a job, whose key comes from the batch and the line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from clisup.cli.batch.lines import BatchLine
from clisup.cli.batch.work import MAX_ATTEMPTS, LineResult
from clisup.cli.job.answer import end_of
from clisup.client.raw import JsonObject
from clisup.fleet.job_client import ENDED, Job, JobClient, new_request
from clisup.fleet.jobs import JobRequest, session_of

__all__ = ["FleetWork"]


@dataclass(kw_only=True)
class FleetWork:
    """Run of the command over its lines. `tell` gets each result. `backend` is that of lines that name none."""

    jobs: JobClient
    member: str
    tell: Callable[[LineResult], None]
    backend: str
    retry_failed: bool = False
    stop_on_failure: bool = False
    _stopped: bool = False

    async def run(self, items: Iterable[BatchLine], at_once: int) -> None:
        """Carry out the lines, so many at once. The jobs go on when this command ends."""
        shared = iter(items)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(at_once):
                tasks.create_task(self._work(shared))

    async def _work(self, items: Iterable[BatchLine]) -> None:
        for item in items:
            if self._stopped:
                return
            result = await self._carry_out(item)
            self.tell(result)
            self._stopped = self._stopped or (self.stop_on_failure and not result.ok)

    async def _carry_out(self, item: BatchLine) -> LineResult:
        """Submit the line and wait. A line that has ended before is not run again, unless it failed and shall be."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            job = await self.jobs.submit(self._request(item, attempt))
            before = job.state.status in ENDED
            job = job if before else await self.jobs.wait(job.id)
            good = job.state.outcome == "completed"
            if not (before and self.retry_failed and not good) or attempt == MAX_ATTEMPTS:
                break
        return LineResult(item, _session(job), await asyncio.to_thread(_end, job), before)

    def _request(self, item: BatchLine, attempt: int) -> JobRequest:
        session = dict(item.session)
        cwd, backend = session.pop("cwd"), session.pop("backend", self.backend)
        turn = dict(item.prompt)
        prompt, key = turn.pop("prompt"), item.session_id(attempt)
        return new_request(self.member, key, prompt, backend, cwd=str(cwd), session=session, turn=turn)


def _session(job: Job) -> str:
    return f"{job.state.box}/{session_of(job.id, job.state.attempt)}" if job.state.attempt else ""


def _end(job: Job) -> JsonObject:
    """Return the end of a job's turn, as far as it can be read from here."""
    found = end_of(_session(job)) if job.state.attempt else None
    error = {"kind": "crashed", "message": job.state.error} if job.state.error else None
    return found or {"outcome": job.state.outcome or job.state.status, "error": error}
