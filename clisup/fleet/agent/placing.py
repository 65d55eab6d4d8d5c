"""Jobs of this box: it claims those that fit, starts them in its daemon, and reports their ends.

No process places jobs. Each box looks at the pending ones and decides for itself; the engine decides between two boxes. The
rules are in `clisup.fleet.jobs`.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from contextlib import aclosing

from clisup.errors import ClisupError, WorldError
from clisup.fleet.agent.daemon_link import DaemonLink
from clisup.fleet.agent.job_turns import JobTurn, close, look, refuse, start
from clisup.fleet.agent.records import BoxBeat
from clisup.fleet.agent.settings import AgentSettings
from clisup.fleet.agent.table import Table
from clisup.fleet.agent.waiting import wait_at_most
from clisup.fleet.engine import Bucket, BucketEntry, Engine
from clisup.fleet.jobs import (
    BoxFacts,
    BoxView,
    JobRequest,
    JobState,
    claim_delay,
    misfit,
    next_deed,
    next_swap,
    read_request,
    read_state,
    request_subject,
    write_state,
)
from clisup.host.log import event_logger

__all__ = ["Placing"]

LOOK_S = 1.0
"""Seconds between two looks at all open jobs. News are looked at at once."""
AGAIN_S = 1.0
MAX_OPEN = 10_000
"""Open jobs that a box keeps in memory."""
_OVER = ("done", "cancelled")
_log = event_logger()


class Placing:
    """Jobs as this box sees them. `beat` returns its last beat, which says what is free."""

    def __init__(
        self, engine: Engine, settings: AgentSettings, table: Table, beat: Callable[[], BoxBeat | None]
    ) -> None:
        self._engine, self._settings, self._table, self._beat = engine, settings, table, beat
        self._states = Bucket(engine, "JOBS")
        self._open: dict[str, tuple[JobState, int]] = {}
        self._requests: dict[str, JobRequest] = {}
        self._ends: dict[str, JobTurn] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._counted: BoxBeat | None = None
        self._claims = 0  # since the last beat, which does not count them
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Take jobs until cancelled. Raises `WorldError` when the daemon ends."""
        self._open.clear()
        async with DaemonLink.open(self._settings.daemon_socket, "clisup-fleet-jobs") as link:
            watching = asyncio.create_task(self._watch())
            try:
                while not watching.done():
                    await link.call("ping")  # a daemon that is away takes no jobs
                    self._news.clear()
                    for job in list(self._open):
                        await self._consider(job, link)
                    await wait_at_most(self._news, LOOK_S)
                watching.result()
            finally:
                tasks = [watching, *self._running.values()]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                self._running.clear()

    async def _watch(self) -> None:
        after = 0
        while True:
            async with aclosing(self._states.watch(after)) as entries:
                async for entry in entries:
                    after = entry.revision
                    self._note(entry)
            after = 0
            self._open.clear()

    def _note(self, entry: BucketEntry) -> None:
        try:
            state = read_state(entry.value)
        except WorldError as error:
            _log.warning("job not read", job=entry.key, error=error.message)
            return
        self._set(entry.key, state, entry.revision)
        self._news.set()

    def _set(self, job: str, state: JobState, revision: int) -> None:
        known = self._open.get(job)
        if known is not None and known[1] >= revision:
            return
        if state.status in _OVER:
            for known_of in (self._open, self._requests, self._ends):
                known_of.pop(job, None)
        elif job in self._open or len(self._open) < MAX_OPEN:
            self._open[job] = state, revision

    # -- one job

    async def _consider(self, job: str, link: DaemonLink) -> None:
        """Make the next step of a job, if it is this box's to make."""
        try:
            state, revision = self._open[job]
            request = await self._request(job, state)
            if request is None:
                return
            view = await self._view(job, state, request, link)
            if state.status == "pending":
                if not view.fits:
                    return
                await asyncio.sleep(claim_delay(self._busy, random.random()))
            if (deed := next_deed(state, view)) is not None:
                await self._do(deed, job, request, state, link)
            elif (swap := next_swap(state, revision, view)) is not None:
                await self._swap(job, state, swap.revision, swap.state)
        except KeyError:  # over meanwhile
            pass
        except WorldError as error:
            if error.kind != "fleet_away":
                raise

    async def _request(self, job: str, state: JobState) -> JobRequest | None:
        """Return the request of a job, or None for one that is damaged or has expired."""
        if (known := self._requests.get(job)) is not None:
            return known
        try:
            subject = request_subject(state.submitter, job)
            stored = await self._engine.last(subject)
            if stored is None:
                return None
            request = self._requests[job] = read_request(subject, stored.data)
        except ClisupError as error:
            if error.kind == "fleet_away":
                raise
            _log.warning("job not read", job=job, error=error.message)
            self._open.pop(job, None)
            return None
        return request

    async def _view(self, job: str, state: JobState, request: JobRequest, link: DaemonLink) -> BoxView:
        me, incarnation = self._settings.member.name, self._settings.incarnation
        fits = gone = False
        found = JobTurn("absent")
        if state.status == "pending":
            facts = self._facts(request)
            fits = facts is not None and not misfit(request, facts)
        elif (state.box, state.incarnation) != (me, incarnation):
            gone = self._table.beats.is_gone(state.box, state.incarnation, time.monotonic())
        elif state.status in ("started", "lost"):
            found = (
                self._ends.get(job) or JobTurn("open") if job in self._running else await self._look(job, state, link)
            )
        return BoxView(me, incarnation, fits, found.turn, found.outcome, found.error, gone)

    async def _look(self, job: str, state: JobState, link: DaemonLink) -> JobTurn:
        """Return the state of this box's own turn. A turn that goes on without a waiter gets one."""
        if (end := self._ends.get(job)) is not None:
            return end
        found = await look(link, job, state.attempt)
        if found.turn == "open":
            await self._do("start", job, self._requests[job], state, link)
        return found

    async def _do(self, deed: str, job: str, request: JobRequest, state: JobState, link: DaemonLink) -> None:
        if job in self._running:
            return
        cwd = self._directory(request) or "/"
        if deed == "start":
            self._running[job] = asyncio.create_task(self._wait(job, request, state.attempt, cwd, link))
        else:
            await refuse(link, request, state.attempt, cwd)
            self._news.set()

    async def _wait(self, job: str, request: JobRequest, attempt: int, cwd: str, link: DaemonLink) -> None:
        """Start the turn, or wait for the one that runs, and note its end."""
        try:
            self._ends[job] = await start(link, request, attempt, cwd)
            self._news.set()
            await close(link, job, attempt)
        except ClisupError as error:
            _log.warning("job waits for the daemon", job=job, error=error.message)
            await asyncio.sleep(AGAIN_S)
        finally:
            self._running.pop(job, None)
            self._news.set()

    async def _swap(self, job: str, before: JobState, revision: int, after: JobState) -> None:
        stored = await self._states.swap(job, revision, write_state(after))
        if stored is None:  # another box was faster, or the state here is an old one
            if (found := await self._states.get(job)) is not None:
                self._note(found)
            return
        _log.info("job", job=job, was=before.status, status=after.status, box=after.box, outcome=after.outcome)
        self._claims += after.status == "claimed"
        self._set(job, after, stored)
        self._news.set()

    # -- this box

    @property
    def _busy(self) -> int:
        beat = self._beat()
        return self._claims + (beat.running + beat.waiting if beat is not None else 0)

    def _facts(self, request: JobRequest) -> BoxFacts | None:
        """Return the facts of this box for a job, or None before its first beat."""
        beat, fleet = self._beat(), self._settings.fleet
        if beat is None or beat.daemon != "up":
            return None
        if beat is not self._counted:
            self._counted, self._claims = beat, 0
        mine = sum((state.box, state.status) in self._held for state, _ in self._open.values())
        free = beat.free - self._claims
        free = min(free, fleet.max_jobs - mine) if fleet.max_jobs else free
        accept = (*fleet.accept, request.submitter) if "*" in fleet.accept else fleet.accept
        cwd = [request.cwd] if request.cwd is not None and os.path.isdir(request.cwd) else []
        there = [name for name in fleet.workspaces if self._workspace(name)]
        return BoxFacts(self._settings.member.name, accept, free, fleet.labels, beat.backends, beat.held, cwd, there)

    @property
    def _held(self) -> tuple[tuple[str, str], ...]:
        me = self._settings.member.name
        return (me, "claimed"), (me, "started")

    def _directory(self, request: JobRequest) -> str | None:
        return request.cwd if request.cwd is not None else self._workspace(request.workspace or "")

    def _workspace(self, name: str) -> str | None:
        """Return the directory of a workspace, or None if it is not there."""
        path = os.path.expanduser(self._settings.fleet.workspaces.get(name, ""))
        return path if path and os.path.isdir(path) else None
