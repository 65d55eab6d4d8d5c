"""Execution of a turn, from the prompt to `turn_completed`: in runs of its own, or in a live process."""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import trio

from clisup.backends.base import LaunchRequest
from clisup.daemon.approvals.queue import ApprovalQueue
from clisup.daemon.journal.recorder import Item
from clisup.daemon.limits.budgets import Budgets
from clisup.daemon.runs.run import Run, RunSettings
from clisup.daemon.runs.run_parts import RunSink
from clisup.daemon.sessions.cli_session import CliSession
from clisup.daemon.sessions.context import SessionContext
from clisup.daemon.sessions.launch import Draft, Launch, Launcher, drop_cgroup
from clisup.daemon.sessions.live import LivePool, LiveRun
from clisup.daemon.sessions.prompts import PromptQueue
from clisup.daemon.sessions.run_end import Correction, RunCloser
from clisup.daemon.sessions.steering import Steering
from clisup.daemon.sessions.turn_ends import TurnEnds
from clisup.daemon.sessions.turn_recorder import TurnRecorder
from clisup.daemon.tools.calls import SessionTools
from clisup.errors import ClisupError, WorldError
from clisup.host.failpoints import failpoint
from clisup.host.locks import FileLock
from clisup.host.log import event_logger
from clisup.host.process.cli_processes import remove_stale_locks
from clisup.host.shortage import is_shortage, overloaded
from clisup.host.threads import in_thread
from clisup.model.events import (
    Actor,
    EventBase,
    Notice,
    ProcessStarted,
    TurnCompleted,
    TurnError,
    TurnErrorKind,
    TurnStarted,
)
from clisup.model.prompts.options import StoredPrompt
from clisup.model.sessions.ledger import TurnRecord
from clisup.model.sessions.turn_state import SpoolPlace, StartRecord, TurnState
from clisup.policy.watchdog import LadderKind, ladder_for
from clisup.store.session_dir import RunDir

__all__ = ["TurnRunner"]

MAX_RUNS = 3
"""Most runs of a turn: as asked, after a correction of the session id, after a lost start."""
PREVIEW = 200
LONG_WORD = 4096  # a path may have this length
NEVER_STARTED: dict[str, Any] = {
    "proto": 1,
    "exit_code": None,
    "signal": None,
    "reason": "never_started",
    "survivors": [],
}
_log = event_logger()


class TurnRunner:
    """Executes the next or running turn of a session. Each turn has a new runner, and a session one runner at a time."""

    def __init__(
        self,
        context: SessionContext,
        *,
        pool: LivePool,
        prompts: PromptQueue,
        cli: CliSession,
        launcher: Launcher,
        steering: Steering,
        approvals: ApprovalQueue,
        budgets: Budgets,
        ends: TurnEnds,
        closer: RunCloser,
        tools: SessionTools | None,
    ) -> None:
        self._context = context
        self._pool = pool
        self._prompts = prompts
        self._cli, self._launcher = cli, launcher
        self._steering, self._approvals, self._budgets = steering, approvals, budgets
        self._ends, self._closer = ends, closer
        self._tools = tools
        self._storage = context.services.storage
        self._cancellation: tuple[str, LadderKind, dict[str, Any]] | None = None  # before the start of the process
        self._wait: trio.CancelScope | None = None  # for slow work before the turn's beginning
        self._timeouts = context.timeouts  # of this turn
        self._mode: str | None = None  # way to name the native session in the next run, after a first try

    # -- the turn ----------------------------------------------------------------------------------------------------

    def cancel(self, reason: str, mode: LadderKind, **why: Any) -> None:
        """End the starting or adopted turn: before the start of the process if possible, else as `Run.end`."""
        if self._cancellation is None or mode == "kill":
            self._cancellation = (reason, mode, why)
        if self._wait is not None:
            self._wait.cancel()

    @property
    def cancelled(self) -> bool:
        """Tell whether the turn was cancelled."""
        return self._cancellation is not None

    async def _unless_cancelled(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Wait for something slow until the turn is cancelled."""
        if self._cancellation is None:
            with trio.CancelScope() as self._wait:
                await wait()
            self._wait = None

    def _end_if_cancelled(self, run: Run) -> None:
        if self._cancellation is not None:
            reason, mode, why = self._cancellation
            run.end(reason, ladder_for(mode, self._context.timeouts), **why)

    async def execute(self, turn: TurnRecord) -> None:
        """Run a queued turn to its end. Every return has journaled `turn_completed`."""
        context = self._context
        context.starting = turn.id  # from here on a client can cancel the turn, even while its prompt cannot be read
        try:
            prompt = self._prompts.take_newest(turn.id)
            if prompt is None:
                prompt = await self._load_prompt(turn)
            if prompt is None:
                await self._fail(turn, self._context.without_prompt(turn.id))
                return
            self._timeouts = context.timeouts_of(prompt)
            await self._runs(turn, prompt)
        except ClisupError as error:
            await self._fail(turn, _turn_error(error))
        finally:
            context.starting = None

    async def _load_prompt(self, turn: TurnRecord) -> StoredPrompt | None:
        return await self._storage.with_retry(lambda: self._context.load_prompt(turn.id))

    async def resume(self, turn: TurnRecord) -> None:
        """Adopt a turn that an earlier daemon started."""
        run_dir = self._context.dir.run(turn.run)
        prompt = await self._load_prompt(turn)
        self._timeouts = self._context.timeouts_of(prompt)
        try:
            if prompt is not None and await self._storage.with_retry(lambda: self._never_ran(run_dir)):
                text = "the daemon was gone before the CLI had been started: it is started now"
                replaced = Item(Notice(code="run_replaced", message=text), turn.id)
                await self._context.recorder.record_with_retry(lambda: [replaced])
                await self._runs(turn, prompt)
                return
            adopted = Item(Notice(code="adopted", message=f"a new daemon goes on with run {turn.run}"), turn.id)
            await self._context.recorder.record_with_retry(
                lambda: [adopted]
            )  # the CLI runs: a full disk must not end the CLI
            if turn.live:
                correction = await self._end_in(await self.adopt_live(turn), turn)
            else:
                correction = await self._follow(turn, await self._launcher.relaunch_request(run_dir, prompt))
            if correction is not None and prompt is not None:
                self._correct(correction)
                await self._runs(turn, prompt)
        except ClisupError as error:
            await self._fail(turn, _turn_error(error))

    def _never_ran(self, run_dir: RunDir) -> bool:
        """Tell whether the keeper never forked. The keeper's own lock guards the decision against a late keeper.

        A run that has started is never one, whatever its exit record says: a process of the CLI can write the record, too.
        """
        if run_dir.may_have_started():
            return False
        lock = FileLock(run_dir.lock)
        try:
            if lock.acquire() is not None:
                return False
            if run_dir.may_have_started():
                return False
            if (record := run_dir.exit_record()) is not None:
                # An earlier daemon found it out, then died.
                return bool(record.get("reason") == NEVER_STARTED["reason"])
            run_dir.declare_dead(NEVER_STARTED)
            drop_cgroup(run_dir)
            return True
        except WorldError as error:
            if error.data.get("errno") != errno.ENOENT:
                raise
            return True  # no directory: the daemon died before its creation
        finally:
            lock.release()

    async def _runs(self, turn: TurnRecord, prompt: StoredPrompt) -> None:
        for _ in range(MAX_RUNS):
            run_once = self._live_run if self._context.live_mode else self._own_run
            correction = await run_once(turn, prompt)
            if correction is None:
                return
            self._correct(correction)
        await self._fail(
            turn, TurnError(kind="session_not_found", message="the CLI takes this session neither as new nor as old")
        )

    def _correct(self, correction: Correction) -> None:
        if correction != "again":
            self._mode = correction

    # -- a process for this turn -------------------------------------------------------------------------------------

    async def _own_run(self, turn: TurnRecord, prompt: StoredPrompt) -> Correction | None:
        why = "the process is let go, because each turn has one of its own now"
        while (
            live := self._pool.get(self._context.id)
        ) is not None and not self.cancelled:  # since then its mode has changed
            await self._unless_cancelled(live.quiet)
            if not live.gone.is_set():
                await self._unless_cancelled(partial(live.replace, why))
        if self.cancelled:
            await self._ends.end(turn.id, _CANCELLED)
            return None
        launch = await self._launch(turn, prompt)
        self._context.starting = None
        return await self._follow(turn, launch.draft.request)

    async def _follow(self, turn: TurnRecord, request: LaunchRequest) -> Correction | None:
        """Drive the turn's run to its end. Return the correction if the turn needs another run."""
        context = self._context
        recorder = TurnRecorder(context, self._approvals, self._ends)
        run = await self._run(turn, request, recorder)
        context.run = run
        try:
            self._end_if_cancelled(run)
            record = await run.drive(self._budgets.watch, self._approvals.serve)
            run_dir = context.dir.run(turn.run)
            return await self._closer.close(run, record, run_dir, mode=self._mode, lap_s=recorder.lap())
        finally:
            context.run = None  # processes of another run descend from another keeper

    async def _run(self, turn: TurnRecord, request: LaunchRequest, sink: RunSink) -> Run:
        context = self._context
        services, backend = context.services, context.backend
        run_dir, adapter = context.dir.run(turn.run), backend.adapter
        settings = RunSettings(
            context.id,
            turn.run,
            self._timeouts,
            backend.config.limits,
            request,
            self._storage,
            services.drift.sample(adapter.fields),
            services.own,
            services.orphans,
            services.read_turns,
        )
        run = Run(sink, run_dir, adapter, settings, context.redact)
        if self._tools is not None:
            run.watchdog.hold(held=len(self._tools.calls) > 0)  # a bridge may have reconnected first
        record = None if turn.process_started else await self._storage.with_retry(run_dir.start_record)
        if record and (pid := record.get("pid")) is not None:
            started = await self._process_started(record, pid, run_dir)
            run.note(started)  # the run waits for a bad disk from here on, not the turn
        return run

    # -- a live process ----------------------------------------------------------------------------------------------

    async def _live_run(self, turn: TurnRecord, prompt: StoredPrompt) -> Correction | None:
        live = None if turn.started else await self._handed_over(turn, prompt)
        if live is None:
            await self._unless_cancelled(self._pool.make_room)
            if self.cancelled:
                await self._ends.end(turn.id, _CANCELLED)
                return None
            launch = await self._launch(turn, prompt)
            live = await self.start_live(turn, launch.draft.request, launch.draft.fingerprint or {})
        self._context.starting = None
        return await self._end_in(live, turn)

    async def _end_in(self, live: LiveRun, turn: TurnRecord) -> Correction | None:
        """Wait for the turn's end in a live process. A client may have cancelled the turn before the process's start."""
        self._end_if_cancelled(live.run)
        live.run.set_timeouts(self._timeouts)
        try:
            return await live.end_of(turn.id)
        finally:
            live.run.set_timeouts(self._context.timeouts)  # of turns that the CLI begins by itself

    async def _handed_over(self, turn: TurnRecord, prompt: StoredPrompt) -> LiveRun | None:
        """Send the prompt to the live process of an earlier turn. Return None if no process takes the prompt."""
        while (live := self._pool.get(self._context.id)) is not None and not self.cancelled:
            await self._unless_cancelled(live.quiet)
            if live.gone.is_set() or self.cancelled:
                continue
            await self._cli.check_writers()
            if await live.somebody_wrote():
                await self._unless_cancelled(partial(live.retire, "changed"))  # the next process tells why
                continue
            draft = await self._launcher.later(turn.id, prompt, live.run.number, resumed=live.run.resumes_session)
            if changed := live.changed(draft):
                text = f"the process is started anew, because of another value for: {', '.join(changed)}"
                await self._unless_cancelled(partial(live.replace, text))
                continue
            event = self._started(turn, live.run.number, prompt, draft)
            item = Item(event, turn.id, memo={"transcript_at": self._cli.transcript_size()})
            if await live.begin(item, draft.spec.stdin, draft.request):
                return live
        return None

    async def start_live(self, turn: TurnRecord, request: LaunchRequest, mark: dict[str, str]) -> LiveRun:
        """Follow the live process of this turn. `mark` is the fingerprint of its launch."""
        context = self._context
        live = LiveRun(
            context,
            context.dir.run(turn.run),
            mark,
            pool=self._pool,
            approvals=self._approvals,
            budgets=self._budgets,
            ends=self._ends,
            steering=self._steering,
            closer=self._closer,
            mode=self._mode,
        )
        live.run = context.run = await self._run(turn, request, live)
        self._pool.add(live)
        context.nursery.start_soon(live.serve)
        return live

    async def adopt_live(self, turn: TurnRecord) -> LiveRun:
        """Follow the live process of an earlier daemon."""
        run_dir = self._context.dir.run(turn.run)
        prompt = await self._load_prompt(turn) if turn.id else None
        intent = await self._storage.with_retry(run_dir.intent)
        later = turn.id if turn.id and turn.begin["out"] > 0 else None
        request = await self._launcher.relaunch_request(run_dir, prompt, later=later)
        return await self.start_live(turn, request, dict(intent.get("live") or {}))

    # -- the start of a run --------------------------------------------------------------------------------------------

    async def _launch(self, turn: TurnRecord, prompt: StoredPrompt) -> Launch:
        """Record the intent, then start the keeper: a crash in between leaves no unknown CLI."""
        context = self._context
        launch = await self._launcher.prepare(turn.id, prompt, self._mode)
        self._announce(turn, launch, prompt)
        if launch.spec.stale_locks:
            await in_thread(remove_stale_locks, launch.spec.stale_locks, launch.draft.env)
        keeper = await context.services.keepers.start(
            self._launcher.keeper_spec(launch, self._timeouts), context.nursery
        )
        failpoint("handover.after")
        word = keeper.word
        if keeper.not_forked:
            _log.warning("keeper not forked", session=context.id, turn=turn.id, run=launch.number,
                         backend=context.spec.backend, error=keeper.not_forked)  # fmt: skip
        if word.get("error") and word.get("kind") != "spawn_failed":  # a failed spawn leaves an exit record
            drop_cgroup(launch.run_dir)
            raise _not_kept(word)
        _log.debug("keeper started", session=context.id, turn=turn.id, run=launch.number, backend=context.spec.backend,
                   keeper=keeper.pid, pid=word.get("pid"))  # fmt: skip
        return launch

    def _announce(self, turn: TurnRecord, launch: Launch, prompt: StoredPrompt) -> None:
        memo = TurnState(begin=SpoolPlace(out=0, err=0), live=launch.draft.request.live)
        event: EventBase = Notice(code="run_replaced", message=f"the turn goes on with run {launch.number}")
        if turn.started:
            memo["run"] = launch.number
        else:
            event = self._started(turn, launch.number, prompt, launch.draft)
        self._context.recorder.record([Item(event, turn.id, memo=memo)])

    def _started(self, turn: TurnRecord, number: int, prompt: StoredPrompt, draft: Draft) -> TurnStarted:
        text = str(prompt["text"])
        actor = prompt.get("actor")
        return TurnStarted(
            run=number,
            prompt_altered=draft.spec.prompt_altered,
            prompt_preview=self._context.redact(text[: 16 * PREVIEW])[:PREVIEW],
            prompt_bytes=len(text.encode()),
            prompt_images=sum(block["type"] == "image" for block in prompt.get("content", ())) or None,
            key=turn.key,
            actor=msgspec.convert(actor, Actor) if actor else None,
            prompt_ids=(draft.request.prompt_id,) if draft.request.live and draft.request.prompt_id else None,
        )

    async def _process_started(self, word: StartRecord, pid: int, run_dir: RunDir) -> ProcessStarted:
        intent = await self._storage.with_retry(run_dir.intent)
        return ProcessStarted(
            pid=pid,
            start_time=word.get("start_time"),
            argv=tuple(self._context.redact(_short(part)) for part in intent.get("argv", ())),
            env_names=tuple(intent.get("env_names", ())),
            env_attested=word.get("env_attested"),
            cgroup=intent.get("cgroup"),
            newer_than=self._context.backend.newer_than,
        )

    async def _fail(self, turn: TurnRecord, error: TurnError) -> None:
        await self._ends.end(turn.id, TurnCompleted(outcome="failed", error=error))


_CANCELLED = TurnCompleted(
    outcome="interrupted",
    error=TurnError(kind="cancelled", message="the turn was interrupted before its CLI was started"),
)


def _short(word: str) -> str:
    """Shorten a long part of a command line: an output schema may have 96 KiB."""
    return word if len(word) <= LONG_WORD else f"{word[:PREVIEW]}... ({len(word)} characters)"


def _not_kept(word: dict[str, Any]) -> WorldError:
    """Return the error of a keeper that exited before its fork: no CLI ran."""
    number = word.get("errno")
    if isinstance(number, int) and is_shortage(number):
        return overloaded("start the CLI", OSError(number, os.strerror(number)))
    kind = "storage_failed" if word.get("kind") == "storage_failed" else "spawn_failed"
    return WorldError(f"the keeper could not start the CLI: {word['error']}", kind=kind, hint="see the log")


def _turn_error(error: ClisupError) -> TurnError:
    """Return the turn's error for a failure to start."""
    other: TurnErrorKind = "spawn_failed" if isinstance(error, WorldError) else "invalid_request"
    kind = _KINDS.get(error.kind, other)
    return TurnError(kind=kind, message=str(error), retryable=error.to_wire()["data"]["retryable"])


_KINDS: dict[str, TurnErrorKind] = {
    "storage_failed": "storage_failed",
    "overloaded": "overloaded",
    "permission_denied": "permission",
    "session_busy": "session_busy",
}
