"""One turn from its prompt to its `turn_completed`: the runs it needs, and what each of them means for it."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import structlog
import trio

from clisup.backends.base import Carried, LaunchRequest, LaunchSpec, RunEnd, fields_of
from clisup.core.events import (
    Actor,
    ApprovalRequested,
    Notice,
    ProcessExited,
    ProcessStarted,
    TurnCompleted,
    TurnError,
    TurnStarted,
)
from clisup.core.framing import Line
from clisup.core.ladder import ladder_for
from clisup.core.ledger import Turn
from clisup.core.lifecycle import Cause
from clisup.core.terminal import Terminal
from clisup.core.usage import NO_USAGE, Usage
from clisup.core.verdict import ExitRecord, conclude, ended_by
from clisup.daemon.launching import Launcher, drop_cgroup
from clisup.daemon.native import NativeSession
from clisup.daemon.recorder import Item
from clisup.daemon.run import Run, RunSettings
from clisup.errors import ClisupError, WorldError
from clisup.host import cgroups, clock
from clisup.host.failpoints import failpoint
from clisup.host.keepers import start_keeper
from clisup.host.locks import FileLock
from clisup.host.session_dir import RunDir
from clisup.host.spool import tail_text
from clisup.host.stale_locks import remove_stale_locks

if TYPE_CHECKING:
    from clisup.daemon.session import Session

__all__ = ["TurnRunner"]

MAX_RUNS = (
    3  # one turn never starts a CLI more often: as asked, after a correction of the session id, after a lost start
)
PREVIEW = 200
STDERR_TAIL = 4096
NEVER_STARTED: dict[str, Any] = {
    "proto": 1,
    "exit_code": None,
    "signal": None,
    "reason": "never_started",
    "survivors": [],
}
_log = structlog.get_logger()


class TurnRunner:
    """Executes the session's current turn. One at a time; it is the sink of the turn's runs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._backend = session.backend
        self._native = NativeSession(session)
        self._launcher = Launcher(session, self._native)
        self._storage = session.services.storage
        self.run: Run | None = None
        self.starting: str | None = None  # the turn that is being started, before its turn_started
        self.cancelled = False  # a client took it back before there was a process to interrupt
        self._mode: str | None = None  # how the next run names the native session, where a first try was wrong
        self._began = clock.monotonic()

    # -- what a run asks of its turn ---------------------------------------------------------------------------------

    @property
    def turn(self) -> Turn:
        turn = self._session.ledger.current
        assert turn is not None, "a run belongs to the current turn"
        return turn

    @property
    def carried(self) -> Carried:
        ledger = self._session.ledger
        nothing_yet = 0.0 if self._session.spec.resume_native_id is None else None
        cost = nothing_yet if ledger.cost_total_usd is None else ledger.cost_total_usd
        unused = None if nothing_yet is None else NO_USAGE
        usage = unused if ledger.usage_total is None else Usage.model_validate(ledger.usage_total)
        return Carried(cost_usd=cost, usage=usage, background=frozenset(self.turn.background))

    def record(self, items: Sequence[Item]) -> int:
        for item in items:
            self._session.gate.account.see(item.event)
        return self._session.recorder.record(items)

    def first_frame(self) -> None:
        self._session.advance(Cause.FIRST_FRAME)

    def ending(self) -> None:
        self._session.advance(Cause.END)

    def asked(self, event: ApprovalRequested) -> None:
        self._session.approvals.asked(event)

    def give_up(self, ending: Mapping[str, Any]) -> list[Item]:
        actor = ending.get("actor")
        return self._session.approvals.cancelled("end", Actor.model_validate(actor) if actor else None)

    async def attend(self, run: Run) -> None:
        await self._session.approvals.attend(run)

    def split(self, terminal: Terminal, line: Line, err_offset: int, background: frozenset[str]) -> list[Item]:
        """The CLI began a turn of its own: the end of the one before it and the start of the new one, for one write."""
        old = self.turn
        done = conclude(
            terminal=terminal,
            record=ExitRecord(reason="exit"),
            ending=old.ending,
            explained=_unexplained(),
            duration_s=self._lap(),
        )
        new_id = self._session.next_turn_id()
        memo = {"begin": {"out": line.start, "err": err_offset}, "background": sorted(background), "pid": old.pid}
        started = Item(TurnStarted(run=old.run, origin="backend"), new_id, memo=memo)
        return [self._session.completion(done, self._carry(terminal, answered=True)), started]

    def _lap(self) -> float:
        now = clock.monotonic()
        lap, self._began = now - self._began, now
        return round(lap, 3)

    # -- the turn ----------------------------------------------------------------------------------------------------

    async def execute(self, turn: Turn) -> None:
        """Run a queued turn to its end. Every way out of here has journaled `turn_completed`."""
        prompt = await self._storage.surely(lambda: self._session.dir.load_prompt(turn.id))
        if prompt is None:
            await self._fail(turn, TurnError(kind="protocol", message="the stored prompt of this turn is gone"))
            return
        self.starting = turn.id
        try:
            await self._runs(turn, prompt)
        except ClisupError as error:
            await self._fail(turn, _turn_error(error))
        finally:
            self.run = self.starting = None
            self._session.dir.drop_prompt(turn.id)

    async def resume(self, turn: Turn) -> None:
        """Take up a turn that a daemon before this one had started."""
        run_dir = self._session.dir.run(turn.run)
        prompt = await self._storage.surely(lambda: self._session.dir.load_prompt(turn.id))
        try:
            if prompt is not None and await self._storage.surely(lambda: self._never_ran(run_dir)):
                text = "the daemon was gone before the CLI had been started: it is started now"
                replaced = Item(Notice(code="run_replaced", message=text), turn.id)
                await self._session.recorder.record_surely(lambda: [replaced])
                await self._runs(turn, prompt)
                return
            adopted = Item(Notice(code="adopted", message=f"a new daemon goes on with run {turn.run}"), turn.id)
            await self._session.recorder.record_surely(lambda: [adopted])  # its CLI runs: a full disk must not end it
            correction = await self._follow(turn, await self._launcher.again(run_dir, prompt))
            if correction is not None and prompt is not None:
                self._mode = correction
                await self._runs(turn, prompt)
        except ClisupError as error:
            await self._fail(self.turn, _turn_error(error))
        finally:
            self.run = None
            self._session.dir.drop_prompt(turn.id)

    def _never_ran(self, run_dir: RunDir) -> bool:
        """Did the keeper never come to its fork? Decided under the keeper's own lock, so that a late one finds the answer."""
        if (record := run_dir.exit_record()) is not None:
            return bool(record.get("reason") == NEVER_STARTED["reason"])  # a daemon that then died had found it out
        if run_dir.start_record() is not None:
            return False
        lock = FileLock(run_dir.lock)
        try:
            if lock.acquire() is not None:
                return False
            if run_dir.start_record() is None and run_dir.exit_record() is None:
                run_dir.declare_dead(NEVER_STARTED)
                drop_cgroup(run_dir)
                return True
            return False
        except WorldError as error:
            if error.data.get("errno") != errno.ENOENT:
                raise
            return True  # the directory itself is not there: the daemon died before it was made
        finally:
            lock.release()

    async def _runs(self, turn: Turn, prompt: dict[str, Any]) -> None:
        for _ in range(MAX_RUNS):
            if self.cancelled:
                await self._end_with(turn, _CANCELLED)
                return
            request = await self._launch(turn, prompt)
            self.starting = None
            self._mode = await self._follow(turn, request)
            if self._mode is None:
                return
        await self._fail(
            self.turn,
            TurnError(kind="session_not_found", message="the CLI takes this session neither as new nor as old"),
        )

    async def _launch(self, turn: Turn, prompt: dict[str, Any]) -> LaunchRequest:
        """Journal the intent, then start the keeper: a crash between the two leaves no CLI that nobody knows of."""
        session = self._session
        launch = await self._launcher.prepare(turn.id, prompt, self._mode)
        self._announce(turn, launch.number, prompt, launch.spec)
        await trio.to_thread.run_sync(remove_stale_locks, launch.spec.stale_locks, launch.env)
        failpoint("spawn.before")
        keeper = start_keeper(session.services.keeper_file)
        failpoint("spawn.after")
        session.nursery.start_soon(keeper.reap)
        word = await keeper.hand_over(self._launcher.keeper_spec(launch))
        failpoint("handover.after")
        if word.get("error") and word.get("kind") != "spawn_failed":  # that one leaves an exit record
            drop_cgroup(launch.run_dir)
            raise _not_kept(word)
        _log.info(
            "run started",
            session=session.id, turn=turn.id, run=launch.number, keeper=keeper.pid, pid=word.get("pid"),
        )  # fmt: skip
        return launch.request

    def _announce(self, turn: Turn, number: int, prompt: dict[str, Any], launch: LaunchSpec) -> None:
        if turn.started:
            notice = Notice(code="run_replaced", message=f"the turn goes on with run {number}")
            self.record([Item(notice, turn.id, memo={"run": number, "begin": {"out": 0, "err": 0}})])
            return
        text = str(prompt["text"])
        actor = prompt.get("actor")
        event = TurnStarted(
            run=number,
            prompt_altered=launch.prompt_altered,
            prompt_preview=self._session.redact(text[: 16 * PREVIEW])[:PREVIEW],
            prompt_bytes=len(text.encode()),
            key=turn.key,
            actor=Actor.model_validate(actor) if actor else None,
        )
        self.record([Item(event, turn.id, memo={"begin": {"out": 0, "err": 0}})])

    async def _process_started(self, word: dict[str, Any], run_dir: RunDir) -> ProcessStarted:
        intent = await self._storage.surely(run_dir.intent)
        return ProcessStarted(
            pid=word["pid"],
            start_time=word.get("start_time"),
            argv=tuple(self._session.redact(part) for part in intent.get("argv", ())),
            env_names=tuple(intent.get("env_names", ())),
            env_attested=word.get("env_attested"),
            cgroup=intent.get("cgroup"),
        )

    async def _follow(self, turn: Turn, request: LaunchRequest) -> str | None:
        """Drive the turn's run to its end. Gives the correction ("resume" or "fresh") where the turn needs another run."""
        session = self._session
        run_dir = session.dir.run(turn.run)
        limits = self._backend.config.limits
        adapter, drift = self._backend.adapter, session.services.drift
        frames = drift.sample(fields_of(adapter))
        settings = RunSettings(session.id, turn.run, session.timeouts, limits, request, self._storage, frames)
        run = Run(self, run_dir, adapter, settings, session.redact)
        word = await self._storage.surely(run_dir.start_record)
        if not turn.process_started and word and word.get("pid"):
            run.note(
                await self._process_started(word, run_dir)
            )  # from here on the run waits for a bad disk, not the turn
        self.run = run
        if self.cancelled:
            self.run.end("client", ladder_for("graceful", session.timeouts))
        record = await self.run.drive()
        drift.add(adapter.kind, frames, self._backend.version)
        return await self._close_run(self.run, record, run_dir)

    async def _close_run(self, run: Run, record: ExitRecord, run_dir: RunDir) -> str | None:
        turn = self.turn  # a follow-up may have taken the place of the turn that started the run
        run_dir.drop_scratch()
        record = _with_cgroup(record, (await self._storage.surely(run_dir.intent)).get("cgroup"))
        if not turn.process_exited:
            exited = Item(_process_exited(record, turn.ending), turn.id)
            await self._session.recorder.record_surely(lambda: [*self._session.approvals.cancelled("exit"), exited])
        self._session.approvals.over()
        end = RunEnd(record.exit_code, record.signal, self._session.redact(tail_text(run_dir.err, STDERR_TAIL)))
        explained = self._backend.adapter.explain_exit(end)
        duration = self._lap() if turn.origin == "backend" or record.duration_s is None else round(record.duration_s, 3)
        done = conclude(
            terminal=run.terminal, record=record, ending=turn.ending, explained=explained, duration_s=duration
        )
        correction = self._correction(done, end)
        if correction is not None:
            notice = Notice(code="session_corrected", message=_CORRECTIONS[correction])
            await self._session.recorder.record_surely(lambda: [Item(notice, turn.id)])
            return correction
        if not record.known and run.terminal is None and turn.ending is None and not turn.answered:
            evidence = await trio.to_thread.run_sync(self._native.evidence, turn, run_dir)
            done = done.model_copy(update={"delivery": "uncertain", "evidence": evidence})
        lost = done.error is not None and done.error.kind == "session_not_found"
        memo = self._carry(run.terminal, answered=turn.answered) | ({"native_lost": True} if lost else {})
        failpoint("end.before")
        await self._session.recorder.record_surely(lambda: [self._session.completion(done, memo)])
        failpoint("end.after")
        return None

    def _correction(self, done: TurnCompleted, end: RunEnd) -> str | None:
        """Another run can help only where this one did nothing: it was refused for the way it named the native session."""
        if self._mode is not None or done.outcome != "failed" or done.error is None:
            return None
        adapter = self._backend.adapter
        wanted = adapter.recovery(done.error) or adapter.recovery(end)
        ledger, spec = self._session.ledger, self._session.spec
        if wanted == "fresh" and (ledger.completed > 0 or spec.resume_native_id is not None):
            return None  # there was a history, and it is gone: the client has to know
        return wanted

    def _carry(self, terminal: Terminal | None, *, answered: bool) -> dict[str, Any]:
        """The CLI's running totals after this turn.

        Where the model had answered and the CLI did not live to tell its total of usage, that is unknown from here on: the next
        turn must not be charged for this one.
        """
        carried: dict[str, Any] = {}
        if terminal is not None and terminal.cost_total_usd is not None:
            carried["cost_total_usd"] = terminal.cost_total_usd
        if terminal is not None and terminal.usage_total is not None:
            carried["usage_total"] = terminal.usage_total.model_dump(exclude_none=True)
        elif answered and self._backend.adapter.capabilities.running_usage:
            carried["usage_total"] = Usage().model_dump(exclude_none=True)
        return carried

    async def _fail(self, turn: Turn, error: TurnError) -> None:
        await self._end_with(turn, TurnCompleted(outcome="failed", error=error))

    async def _end_with(self, turn: Turn, done: TurnCompleted) -> None:
        await self._session.recorder.record_surely(
            lambda: [*self._session.approvals.cancelled("exit"), self._session.completion(done, {}, turn_id=turn.id)]
        )
        self._session.approvals.over()


def _with_cgroup(record: ExitRecord, cgroup: str | None) -> ExitRecord:
    """The kernel's word on memory, and the end of the run's cgroup (one that still holds kept processes stays)."""
    if cgroup is None:
        return record
    starved = record.reason == "exit" and record.signal is not None and cgroups.oom_kills(cgroup) > 0
    cgroups.remove(cgroup)
    return dataclasses.replace(record, reason="oom") if starved else record


def _process_exited(record: ExitRecord, ending: dict[str, Any] | None) -> ProcessExited:
    actor = (ending or {}).get("actor")
    return ProcessExited(
        exit_code=record.exit_code,
        signal=record.signal,
        ended_by=ended_by(record, (ending or {}).get("asked")),
        actor=Actor.model_validate(actor) if actor else None,
        survivors=_named(record.survivors),
        kept=_named(record.kept) or None,
        left=_named(record.left) or None,
        duration_s=record.duration_s,
        max_rss_kb=record.max_rss_kb,
        note=None if record.known else "the keeper was gone; a process that cleared its environment cannot be seen",
    )


def _named(processes: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """What clients learn of a process: never its command line."""
    return tuple({"pid": process.get("pid"), "comm": process.get("comm")} for process in processes)


_CANCELLED = TurnCompleted(
    outcome="interrupted",
    error=TurnError(kind="cancelled", message="the turn was interrupted before its CLI was started"),
)
_CORRECTIONS = {
    "resume": "the CLI has a transcript of this session already: the prompt is sent again as a resume",
    "fresh": "the CLI had not yet kept anything of this session: the prompt is sent again under the same id",
}


def _not_kept(word: dict[str, Any]) -> WorldError:
    """The keeper left before its fork, so no CLI ran."""
    kind = "storage_failed" if word.get("kind") == "storage_failed" else "spawn_failed"
    return WorldError(f"cannot run the CLI, because its keeper says: {word['error']}", kind=kind, hint="see the log")


def _unexplained() -> TurnError:
    return TurnError(kind="crashed", message="the CLI ended without a last word")


def _turn_error(error: ClisupError) -> TurnError:
    """A failure to start, as the turn's error."""
    kinds = {"storage_failed": "storage_failed", "permission_denied": "permission"}
    kind = kinds.get(error.kind, "spawn_failed" if isinstance(error, WorldError) else "invalid_request")
    return TurnError(kind=kind, message=str(error), retryable=error.to_wire()["data"]["retryable"])
