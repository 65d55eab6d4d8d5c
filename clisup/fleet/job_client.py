"""Jobs from a client's side: submit, look, wait and cancel, on a connection to the engine."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from clisup.errors import UsageError, WorldError
from clisup.fleet.agent.records import read_beat
from clisup.fleet.engine import Bucket, BucketEntry, Engine
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

ENDED = ("done", "cancelled")
AGAIN_S = 1.0
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
    if request.foreign:
        raise UsageError(f"a job cannot set {request.foreign!r} of its session", kind="unsupported")
    return request


class JobClient:
    """Jobs of one member."""

    def __init__(self, engine: Engine, member: str) -> None:
        self._engine, self._member, self._states = engine, member, Bucket(engine, "JOBS")

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
                if stored is not None and read_request(subject, stored.data) != request:
                    raise UsageError("another job was submitted with this key", kind="usage", hint="use another --key")
                first = JobState(submitter=self._member, on_lost=request.on_lost)
                await self._states.create(request.job, write_state(first))
                return await self.get(request.job)
            except WorldError as error:
                if error.kind != "fleet_away" or asyncio.get_running_loop().time() > until:
                    raise
                await asyncio.sleep(AGAIN_S)

    async def get(self, job: str) -> Job:
        """Return a job with its request. Raises `UsageError` for an unknown one."""
        entry = await self._states.get(job)
        if entry is None:
            raise _unknown(job)
        found = _job(entry)
        return found._replace(request=await self._request(found))

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
        """Return all jobs, the latest change first. A state of a later clisup is left out."""
        found = []
        for entry in await self._states.entries():
            try:
                found.append(_job(entry))
            except WorldError:
                continue
        return sorted(found, key=lambda job: job.at, reverse=True)

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
        """Return a job when it has ended. A lost job may still end: it is not over."""
        while True:
            found = await self.get(job)
            if found.state.status in ENDED:
                return found
            try:
                async with aclosing(self._states.watch(found.revision)) as entries:
                    async for entry in entries:
                        if entry.key == job and _job(entry).state.status in ENDED:
                            return await self.get(job)
            except WorldError as error:
                if error.kind != "fleet_away":
                    raise
            await asyncio.sleep(AGAIN_S)

    async def cancel(self, job: str) -> Job:
        """Cancel a pending job of this member. Raises `UsageError` for another's job, or one that has been claimed."""
        while True:
            found = await self.get(job)
            swap = cancel(found.state, found.revision, self._member)
            if await self._states.swap(job, swap.revision, write_state(swap.state)) is not None:
                return found._replace(state=swap.state)


def _job(entry: BucketEntry) -> Job:
    return Job(entry.key, read_state(entry.value), entry.at, entry.revision)


def _unknown(job: str) -> UsageError:
    return UsageError(f"no job is called {job[:64]!r}", kind="turn_not_found", hint="clisup job list")
