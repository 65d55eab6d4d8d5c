"""Jobs from a client's side: submit, look, wait and cancel, on a connection to the engine."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, suppress
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from clisup.errors import UsageError, WorldError
from clisup.fleet.agent.records import read_beat
from clisup.fleet.engine import Bucket, BucketEntry, Engine
from clisup.fleet.job_log import MAX_RUNS, JobLog
from clisup.fleet.jobs import (
    BoxFacts,
    JobRequest,
    JobState,
    cancel,
    job_id,
    misfit,
    read_request,
    read_state,
    request_subject,
    write_state,
)

__all__ = ["ENDED", "Job", "JobClient", "new_request"]

ENDED = ("done", "cancelled", "expired")
AGAIN_S = 1.0
LOOK_S = 30.0
"""Seconds between two looks at a job without news: it expires without a step."""
TRIES_S = 30.0
"""Seconds for which a step is repeated while the engine is away. Every step may be repeated."""
HEAD_BYTES = 1024


class Job(NamedTuple):
    """Job as the engine has it. `at` is the engine's time of the last change; `request` is None if it has expired."""

    id: str
    state: JobState
    at: float
    revision: int
    request: JobRequest | None = None


def new_request(submitter: str, key: str, prompt: str, backend: str, **fields: object) -> JobRequest:
    """Return a request. The same submitter and key give the same job.

    Raises `UsageError` unless exactly one place is named.
    """
    request = JobRequest(job_id(submitter, key), submitter, prompt, backend, **fields)  # type: ignore[arg-type]
    if (request.cwd is None) == (request.workspace is None):
        raise UsageError("a job needs one directory", kind="usage", hint="--cwd PATH, or --workspace NAME")
    if request.cwd is not None and not request.cwd.startswith("/"):
        raise UsageError(f"the directory {request.cwd!r} of a job is not absolute", kind="usage", hint="--cwd /PATH")
    if not 1 <= request.runs <= MAX_RUNS:
        raise UsageError(f"a job cannot start {request.runs} times: use 1 to {MAX_RUNS}", kind="usage")
    if request.foreign:
        raise UsageError(f"a job cannot set {request.foreign!r} of its session", kind="unsupported")
    return request


class JobClient:
    """Jobs of one member."""

    def __init__(self, engine: Engine, member: str) -> None:
        self._engine, self._member, self._steps = engine, member, Bucket(engine, "JOBS", "submit")

    async def submit(self, request: JobRequest) -> Job:
        """Store a job once, and return it as it stands. A repeated submit changes nothing.

        Raises `UsageError` for a prompt that is too long, and for a key that has another request.
        """
        value = msgspec.json.encode(request)
        if len(value) > (most := self._engine.max_payload - HEAD_BYTES):
            message = f"the job has {len(value)} bytes, and the engine takes {most}"
            raise UsageError(
                message, kind="limit_exceeded", hint="put the text into a file of the workspace", limit=most
            )
        subject, until = request_subject(self._member, request.job), asyncio.get_running_loop().time() + TRIES_S
        while True:
            try:
                stored = await self._engine.last(subject)
                if stored is None and await self._engine.append(subject, value, expected=0) is None:
                    continue
                if stored is not None and not _same(read_request(subject, stored.data), request):
                    raise UsageError("another job was submitted with this key", kind="usage", hint="use another --key")
                await self._steps.create(request.job, write_state(request.first_state))
                found = await self.get(request.job)
                if found.state.submitter != self._member:
                    raise UsageError(f"{found.state.submitter} has a job with this id", hint="use another --key")
                return found
            except WorldError as error:
                if error.kind != "fleet_away" or asyncio.get_running_loop().time() > until:
                    raise
                await asyncio.sleep(AGAIN_S)

    async def get(self, job: str) -> Job:
        """Return a job with its request. Raises `UsageError` for an unknown one."""
        found = _jobs(await self._steps.entries(job)) if len(job) == 36 else []
        if not found:
            raise _unknown(job)
        return found[0]._replace(request=await self._request(found[0]))

    async def _request(self, job: Job) -> JobRequest | None:
        subject = request_subject(job.state.submitter, job.id)
        stored = await self._engine.last(subject)
        return None if stored is None else read_request(subject, stored.data)

    async def reasons(self, request: JobRequest) -> dict[str, str]:
        """Return why each box that beats does not take a job now, or "" for a box that may.

        Only the box itself knows its directories: they count as present.
        """
        found = {}
        for entry in await Bucket(self._engine, "BOXES").entries():
            beat = read_beat(entry.value)
            if "worker" not in beat.roles:
                continue
            accept = (*beat.accept, request.submitter) if "*" in beat.accept else beat.accept
            cwd = [request.cwd] if request.cwd is not None else []
            facts = BoxFacts(entry.key, accept, beat.free, beat.labels, beat.backends, beat.held, cwd, beat.workspaces)
            found[entry.key] = misfit(request, facts) if beat.daemon == "up" else "its daemon does not run"
        return found

    async def list(self) -> list[Job]:
        """Return all jobs, the latest change first. A step of a later clisup is left out."""
        return sorted(_jobs(await self._steps.entries()), key=lambda job: job.at, reverse=True)

    async def named(self, prefix: str) -> str:
        """Return the id of the job that begins with `prefix`. Raises `UsageError` for none or several."""
        if len(prefix) == 36:
            return prefix
        found = [job.id for job in await self.list() if job.id.startswith(prefix)] if len(prefix) >= 4 else []
        if len(found) > 1:
            raise UsageError(
                f"several jobs begin with {prefix}: {', '.join(id_[:13] for id_ in found[:5])}", kind="usage"
            )
        if not found:
            raise _unknown(prefix)
        return found[0]

    async def wait(self, job: str) -> Job:
        """Return a job when it has ended or expired. A lost job may still end: it is not over."""
        while True:
            found = await self.get(job)
            if found.state.status in ENDED:
                return found
            try:
                async with asyncio.timeout(LOOK_S), aclosing(self._steps.watch(found.revision, key=job)) as entries:
                    async for _ in entries:
                        break
            except TimeoutError:
                pass
            except WorldError as error:
                if error.kind != "fleet_away":
                    raise
                await asyncio.sleep(AGAIN_S)

    async def cancel(self, job: str) -> Job:
        """Cancel a pending job of this member. Raises `UsageError` for another's job, or one that has been claimed."""
        step = cancel((await self.get(job)).state, self._member)
        await self._steps.put(job, write_state(step))
        found = await self.get(job)
        if found.state.status != "cancelled":  # a box was faster
            cancel(found.state, self._member)
        return found


def _same(one: JobRequest, other: JobRequest) -> bool:
    """Tell whether two requests ask for the same. A repeated submit names a later time."""
    return replace(one, not_after=0.0) == replace(other, not_after=0.0)


def _jobs(entries: list[BucketEntry]) -> list[Job]:
    """Return the jobs whose logs these are. What is no step, or no legal one, changes nothing."""
    logs, ends, now = dict[str, JobLog](), dict[str, int](), time.time()
    for entry in entries:
        ends[entry.key] = entry.revision
        with suppress(WorldError):
            logs.setdefault(entry.key, JobLog()).take(entry.role, entry.writer, read_state(entry.value), entry.at)
    found = []
    for id_, log in logs.items():
        if (state := log.state) is not None:
            state = replace(state, status="expired") if state.is_stale(now) else state
            found.append(Job(id_, state, log.at, ends[id_]))
    return found


def _unknown(job: str) -> UsageError:
    return UsageError(f"no job is called {job[:64]!r}", kind="turn_not_found", hint="clisup job list")
