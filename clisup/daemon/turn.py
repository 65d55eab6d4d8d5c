"""One turn from its prompt to its `turn_completed`: the runs it needs, and what each of them means for it."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import structlog
import trio

from clisup.backends.base import Carried, LaunchRequest, LaunchSpec, RunEnd
from clisup.core.events import (
    Actor,
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
from clisup.core.verdict import ExitRecord, conclude, ended_by
from clisup.daemon.native import NativeSession
from clisup.daemon.recorder import Item
from clisup.daemon.run import Run, RunSettings
from clisup.errors import ClisupError, WorldError
from clisup.host import cgroups, clock
from clisup.host.failpoints import failpoint
from clisup.host.keepers import KEEPER_PROTO, start_keeper
from clisup.host.locks import FileLock
from clisup.host.session_dir import RunDir
from clisup.host.spool import tail_text

if TYPE_CHECKING:
    from clisup.daemon.session import Session

__all__ = ["TurnRunner"]

MAX_RUNS = (
    3  # one turn never starts a CLI more often: as asked, after a correction of the session id, after a lost start
)
PREVIEW = 200
WALL_SLACK_S = (
    10.0  # the keeper's own limit is for a run without a daemon: the daemon's comes first, in a follow-up too
)
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
        return Carried(cost_usd=cost, background=frozenset(self.turn.background))

    def record(self, items: Sequence[Item]) -> int:
        return self._session.recorder.record(items)

    def first_frame(self) -> None:
        self._session.advance(Cause.FIRST_FRAME)

    def ending(self) -> None:
        self._session.advance(Cause.END)

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
        return [self._session.completion(done, _carry(terminal)), started]

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
            correction = await self._follow(turn)
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
                _drop_cgroup(run_dir)
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
            await self._launch(turn, prompt)
            self.starting = None
            self._mode = await self._follow(turn)
            if self._mode is None:
                return
        await self._fail(
            self.turn,
            TurnError(kind="session_not_found", message="the CLI takes this session neither as new nor as old"),
        )

    async def _launch(self, turn: Turn, prompt: dict[str, Any]) -> None:
        """Journal the intent, then start the keeper: a crash between the two leaves no CLI that nobody knows of."""
        session, backend = self._session, self._backend
        argv, _ = await backend.ready()
        secrets = session.dir.secrets()
        launch = backend.adapter.launch(self._request(argv, prompt))
        number = session.dir.next_run(session.ledger.runs)
        markers = {"CLISUP_SESSION": session.id, "CLISUP_RUN": str(number)}
        env, _ = backend.environment(request_env=secrets, sets=launch.env, markers=markers)
        run_dir = session.dir.run(number)
        cgroup = session.services.cgroups.make(session.id, number)
        if cgroup is not None:
            limits = backend.config.limits
            cgroups.limit(cgroup, memory=limits.memory, pids=limits.pids)
        intent = {"turn_id": turn.id, "argv": list(launch.argv), "env_names": list(env), "cgroup": cgroup,
                  "transcript_at": self._native.written()}  # fmt: skip
        failpoint("intent.before")
        with self._storage.watched():
            await trio.to_thread.run_sync(run_dir.create, intent)
        failpoint("intent.after")
        self._announce(turn, number, prompt, launch)
        failpoint("announce.after")
        failpoint("spawn.before")
        keeper = start_keeper(session.services.keeper_file)
        failpoint("spawn.after")
        session.nursery.start_soon(keeper.reap)
        word = await keeper.hand_over({**self._spec(run_dir, launch, env, markers), "cgroup": cgroup})
        failpoint("handover.after")
        if word.get("error") and word.get("kind") != "spawn_failed":  # that one leaves an exit record
            _drop_cgroup(run_dir)
            raise _not_kept(word)
        _log.info("run started", session=session.id, turn=turn.id, run=number, keeper=keeper.pid, pid=word.get("pid"))

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

    def _request(self, argv: tuple[str, ...], prompt: dict[str, Any]) -> LaunchRequest:
        session, spec = self._session, self._session.spec
        native, resume = self._native.name(self._mode)
        return LaunchRequest(
            command=argv,
            prompt=str(prompt["text"]),
            native_session_id=native,
            resume=resume,
            cwd=spec.cwd,
            model=spec.model,
            permission_mode=spec.permission_mode,
            system_prompt_file=session.dir.system_prompt if spec.has_system_prompt else None,
            mcp_config_file=session.dir.mcp_config if spec.has_mcp_config else None,
            setting_sources=self._backend.config.setting_sources,
            expand=bool(prompt.get("expand")),
            args=tuple(self._backend.config.args),
        )

    def _spec(
        self, run_dir: RunDir, launch: LaunchSpec, env: dict[str, str], markers: dict[str, str]
    ) -> dict[str, Any]:
        """The keeper's launch spec. It passes through a pipe only: the environment in it holds what was set on purpose."""
        session, limits = self._session, self._backend.config.limits
        timeouts = session.timeouts
        return {
            "proto": KEEPER_PROTO,
            "run_dir": run_dir.path,
            "marker": markers,
            "argv": list(launch.argv),
            "env": env,
            "cwd": session.spec.cwd,
            "stdin": launch.stdin,
            "stdin_eof": launch.stdin_eof,
            "stdout_mode": launch.stdout_mode,
            "limits": {
                "spool_bytes": limits.spool_bytes,
                "stderr_bytes": limits.stderr_bytes,
                "memory": limits.memory,
                "pids": limits.pids,
            },
            "wall_s": 2 * timeouts.turn + WALL_SLACK_S if timeouts.turn else 0,
            "lease_s": session.services.config.daemon.lease_s,
            "term_grace_s": timeouts.term_grace,
            "int_grace_s": timeouts.int_grace,
            "orphans": self._backend.config.orphans,
            "orphan_grace_s": 0,
            "oom_score_adj": 300,
        }

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

    async def _follow(self, turn: Turn) -> str | None:
        """Drive the turn's run to its end. Gives the correction ("resume" or "fresh") where the turn needs another run."""
        session = self._session
        run_dir = session.dir.run(turn.run)
        limits = self._backend.config.limits
        settings = RunSettings(session.id, turn.run, session.timeouts, limits, session.native_id, self._storage)
        run = Run(self, run_dir, self._backend.adapter, settings, session.redact)
        word = await self._storage.surely(run_dir.start_record)
        if not turn.process_started and word and word.get("pid"):
            run.note(
                await self._process_started(word, run_dir)
            )  # from here on the run waits for a bad disk, not the turn
        self.run = run
        if self.cancelled:
            self.run.end("client", ladder_for("graceful", session.timeouts))
        record = await self.run.drive()
        return await self._close_run(self.run, record, run_dir)

    async def _close_run(self, run: Run, record: ExitRecord, run_dir: RunDir) -> str | None:
        turn = self.turn  # a follow-up may have taken the place of the turn that started the run
        record = _with_cgroup(record, (await self._storage.surely(run_dir.intent)).get("cgroup"))
        if not turn.process_exited:
            await self._session.recorder.record_surely(lambda: [Item(_process_exited(record, turn.ending), turn.id)])
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
        memo = _carry(run.terminal) | ({"native_lost": True} if lost else {})
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

    async def _fail(self, turn: Turn, error: TurnError) -> None:
        await self._end_with(turn, TurnCompleted(outcome="failed", error=error))

    async def _end_with(self, turn: Turn, done: TurnCompleted) -> None:
        await self._session.recorder.record_surely(lambda: [self._session.completion(done, {}, turn_id=turn.id)])


def _with_cgroup(record: ExitRecord, cgroup: str | None) -> ExitRecord:
    """The kernel's word on memory, and the end of the run's cgroup (one that still holds kept processes stays)."""
    if cgroup is None:
        return record
    starved = record.reason == "exit" and record.signal is not None and cgroups.oom_kills(cgroup) > 0
    cgroups.remove(cgroup)
    return dataclasses.replace(record, reason="oom") if starved else record


def _drop_cgroup(run_dir: RunDir) -> None:
    """A run that never came to be leaves no empty cgroup behind."""
    if (cgroup := run_dir.intent().get("cgroup")) is not None:
        cgroups.remove(cgroup)


def _process_exited(record: ExitRecord, ending: dict[str, Any] | None) -> ProcessExited:
    actor = (ending or {}).get("actor")
    return ProcessExited(
        exit_code=record.exit_code,
        signal=record.signal,
        ended_by=ended_by(record),
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


def _carry(terminal: Terminal | None) -> dict[str, Any]:
    if terminal is None or terminal.cost_total_usd is None:
        return {}
    return {"cost_total_usd": terminal.cost_total_usd}


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
