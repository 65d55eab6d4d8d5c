"""Jobs of this box: it claims those that fit, starts them in its daemon, and reports their ends.

No process places jobs. Each box looks at the pending ones and decides for itself; the order of their claims in the engine
decides between two boxes. The rules are in `clisup.fleet.jobs` and `clisup.fleet.job_log`.
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
from clisup.fleet.agent.ended_file import EndedFile
from clisup.fleet.agent.job_turns import JobTurn, close, look, refuse, start
from clisup.fleet.agent.records import BoxBeat
from clisup.fleet.agent.settings import AgentSettings
from clisup.fleet.agent.table import Table
from clisup.fleet.agent.waiting import wait_at_most
from clisup.fleet.engine import Bucket, BucketEntry, Engine
from clisup.fleet.job_log import FINAL, JobLog
from clisup.fleet.jobs import (
    GONE_S,
    BoxFacts,
    BoxView,
    JobRequest,
    JobState,
    claim_delay,
    misfit,
    next_deed,
    next_step,
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
MAX_OVER = 100_000
"""Ended jobs whose ids a box keeps in memory."""
_log = event_logger()


class Placing:
    """Jobs as this box sees them. `beat` returns its last beat, which says what is free."""

    def __init__(
        self, engine: Engine, settings: AgentSettings, table: Table, beat: Callable[[], BoxBeat | None]
    ) -> None:
        self._engine, self._settings, self._table, self._beat = engine, settings, table, beat
        self._steps = Bucket(engine, "JOBS")
        self._open: dict[str, JobLog] = {}
        self._over: dict[str, None] = {}
        self._heard: dict[str, float] = {}  # when the last step of a job arrived here, on the monotonic clock
        self._seen = 0  # position of the last step that was read
        self._sent: dict[str, int] = {}  # position of this box's own last step of a job
        self._requests: dict[str, JobRequest] = {}
        self._ends: dict[str, JobTurn] = {}
        self._ended = EndedFile(settings.state_dir)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._counted: BoxBeat | None = None
        self._claims = 0  # since the last beat, which does not count them
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Take jobs until cancelled. Raises `WorldError` when the daemon ends."""
        self._forget()
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

    # -- the log

    async def _watch(self) -> None:
        while True:
            async with aclosing(self._steps.watch(self._seen)) as entries:
                async for entry in entries:
                    self._note(entry)
            self._forget()  # the engine lost what this box has read

    def _forget(self) -> None:
        self._seen = 0
        for known in (self._open, self._over, self._heard, self._sent):
            known.clear()

    def _note(self, entry: BucketEntry) -> None:
        """Take a step of the log. An unreadable one changes no job, and neither does one that its writer may not make."""
        job, self._seen = entry.key, entry.revision
        if job in self._over:
            return
        log = self._open.get(job) or JobLog()
        try:
            counts = log.take(entry.role, entry.writer, read_state(entry.value), entry.at)
        except WorldError as error:
            _log.warning("job not read", job=job[:64], box=entry.writer, error=error.message)
            return
        if not counts:
            _log.debug("step of a job ignored", job=job[:64], box=entry.writer)
        elif log.state is not None and log.state.status in FINAL:
            self._close(job)
        elif job in self._open or len(self._open) < MAX_OPEN:
            self._open[job], self._heard[job] = log, time.monotonic()
        self._news.set()

    def _close(self, job: str) -> None:
        for known in (self._open, self._heard, self._sent, self._requests, self._ends):
            known.pop(job, None)
        self._over[job] = None
        if len(self._over) > MAX_OVER:
            del self._over[next(iter(self._over))]

    async def _write(self, job: str, before: JobState, step: JobState) -> None:
        """Write a step of this box. It counts when it comes back in the log, behind the steps before it."""
        self._sent[job] = await self._steps.put(job, write_state(step)) or 0
        _log.info("job", job=job, was=before.status, status=step.status, box=step.box, outcome=step.outcome)
        self._claims += step.status == "claimed"

    # -- one job

    async def _consider(self, job: str, link: DaemonLink) -> None:
        """Make the next step of a job, if it is this box's to make."""
        try:
            state = self._open[job].state
            if state is None or self._sent.get(job, 0) > self._seen or state.is_stale(time.time()):
                return
            request = await self._request(job, state)
            if request is None:
                return
            view = await self._view(job, state, request, link)
            if state.status == "pending":
                if not view.fits:
                    return
                await asyncio.sleep(claim_delay(self._busy, random.random()))
                if self._open[job].state != state:  # another box was faster
                    return
            if (deed := next_deed(state, view)) is not None:
                await self._do(deed, job, request, state, link)
            elif (step := next_step(state, view)) is not None:
                await self._write(job, state, step)
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
            _log.warning("job not read", job=job[:64], error=error.message)
            self._close(job)
            return None
        return request

    async def _view(self, job: str, state: JobState, request: JobRequest, link: DaemonLink) -> BoxView:
        me, incarnation, now = self._settings.member.name, self._settings.incarnation, time.monotonic()
        mine, silent = (state.box, state.incarnation) == (me, incarnation), now - self._heard[job] > GONE_S + 1
        gone, found = False, JobTurn("absent")
        if state.status in ("started", "lost") and mine:
            found = (
                self._ends.get(job) or JobTurn("open") if job in self._running else await self._look(job, state, link)
            )
        elif state.status != "pending" and not mine:
            gone = self._table.beats.is_gone(state.box, state.incarnation, now)
        away = self._table.beats.was_away(now)
        fits = self._fits(job, state, request, mine=mine)
        return BoxView(me, incarnation, fits, found.turn, found.outcome, found.error, gone, silent, away)

    def _fits(self, job: str, state: JobState, request: JobRequest, *, mine: bool) -> bool:
        """Tell whether this box may start the next attempt of a job. A claim of its own has its slot already."""
        facts = self._facts(request)
        if facts is None or state.attempt < self._ended.ended(job) or state.attempt >= request.runs:
            return False
        if request.not_after and time.time() > request.not_after:
            return False
        return not misfit(request, facts._replace(free=max(1, facts.free)) if mine else facts)

    async def _look(self, job: str, state: JobState, link: DaemonLink) -> JobTurn:
        """Return the state of this box's own turn. A turn that goes on without a waiter gets one."""
        if (end := self._ends.get(job)) is not None:
            return end
        found = await look(link, job, state.attempt)
        if found.turn == "absent" and state.attempt <= self._ended.ended(job):
            return JobTurn("ended", "failed", "this box has ended this attempt before, and its session is gone")
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
            end = await start(link, request, attempt, cwd)
            await self._ended.add(job, attempt)
            self._ends[job] = end
            self._news.set()
            await close(link, job, attempt)
        except ClisupError as error:
            _log.warning("job waits for the daemon", job=job, error=error.message)
            await asyncio.sleep(AGAIN_S)
        finally:
            self._running.pop(job, None)
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
        states = [log.state for log in self._open.values() if log.state is not None]
        mine = sum((state.box, state.status) in self._held for state in states)
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
