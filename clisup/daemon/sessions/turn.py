"""One turn from its prompt to its `turn_completed`: the runs it needs, or its part of a live one."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
import trio

from clisup.backends.base import LaunchRequest
from clisup.daemon.runs.run import Run, RunSettings
from clisup.daemon.runs.run_end import Closer, Correction
from clisup.daemon.sessions.concurrent_writers import check_strangers
from clisup.daemon.sessions.launch import Draft, Launch, drop_cgroup
from clisup.daemon.sessions.live import LiveRun, LiveSink
from clisup.daemon.sessions.recorder import Item
from clisup.daemon.sessions.turn_recorder import TurnSink
from clisup.errors import ClisupError, WorldError
from clisup.host.failpoints import failpoint
from clisup.host.locks import FileLock
from clisup.host.process.stale_locks import remove_stale_locks
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
from clisup.model.sessions.ledger import Turn
from clisup.policy.ladder import LadderKind, ladder_for
from clisup.store.session_dir import RunDir

if TYPE_CHECKING:
    from clisup.daemon.sessions.session import Session

__all__ = ["TurnRunner"]

MAX_RUNS = (
    3  # one turn never starts a CLI more often: as asked, after a correction of the session id, after a lost start
)
PREVIEW = 200
LONG_WORD = 4096  # a path may be as long
NEVER_STARTED: dict[str, Any] = {
    "proto": 1,
    "exit_code": None,
    "signal": None,
    "reason": "never_started",
    "survivors": [],
}
_log = structlog.get_logger()


class TurnRunner:
    """Executes the session's next or current turn. One at a time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._backend = session.backend
        self._native, self._launcher = session.native, session.launcher
        self._storage = session.services.storage
        self.run: Run | None = None
        self.starting: str | None = None  # the turn that is being started, before its turn_started
        self._taken_back: tuple[str, LadderKind, dict[str, Any]] | None = None  # before there was a process to end
        self._patience: trio.CancelScope | None = None  # for what has to be over before the turn can begin
        self._closer = Closer(session, self._native)
        self._mode: str | None = None  # how the next run names the native session, where a first try was wrong

    # -- the turn ----------------------------------------------------------------------------------------------------

    def take_back(self, reason: str, mode: LadderKind, **why: Any) -> None:
        """End the turn that is being started, or adopted: before there is a process if that is possible, else as `Run.end`."""
        if self._taken_back is None or mode == "kill":
            self._taken_back = (reason, mode, why)
        if self._patience is not None:
            self._patience.cancel()

    @property
    def cancelled(self) -> bool:
        """The turn was taken back."""
        return self._taken_back is not None

    async def _patiently(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Wait for something that may take its time, for as long as the turn is not taken back."""
        if self._taken_back is None:
            with trio.CancelScope() as self._patience:
                await wait()
            self._patience = None

    def _end_if_taken_back(self, run: Run) -> None:
        if self._taken_back is not None:
            reason, mode, why = self._taken_back
            run.end(reason, ladder_for(mode, self._session.timeouts), **why)

    async def execute(self, turn: Turn) -> None:
        """Run a queued turn to its end. Every way out of here has journaled `turn_completed`."""
        # From here on a client that takes it back cancels it, also while its prompt cannot be read.
        self.starting = turn.id
        try:
            prompt = self._session.prompts.take(turn.id)
            if prompt is None:
                prompt = await self._storage.surely(lambda: self._session.dir.load_prompt(turn.id))
            if prompt is None:
                await self._fail(turn, TurnError(kind="protocol", message="the stored prompt of this turn is gone"))
                return
            await self._runs(turn, prompt)
        except ClisupError as error:
            await self._fail(turn, _turn_error(error))
        finally:
            self.run = self.starting = None

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
            if turn.live:
                correction = await self._end_in(await self.adopt_live(turn), turn)
            else:
                correction = await self._follow(turn, await self._launcher.again(run_dir, prompt))
            if correction is not None and prompt is not None:
                self._correct(correction)
                await self._runs(turn, prompt)
        except ClisupError as error:
            await self._fail(turn, _turn_error(error))
        finally:
            self.run = None

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
            way = self._live_run if self._session.live_mode else self._own_run
            correction = await way(turn, prompt)
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

    async def _own_run(self, turn: Turn, prompt: dict[str, Any]) -> Correction | None:
        why = "the process is let go, because each turn has one of its own now"
        while (live := self._session.live) is not None and not self.cancelled:  # since then its mode has changed
            await self._patiently(live.quiet)
            if not live.gone.is_set():
                await self._patiently(partial(live.replace, why))
        if self.cancelled:
            await self._session.end_turn(turn.id, _CANCELLED)
            return None
        launch = await self._launch(turn, prompt)
        self.starting = None
        return await self._follow(turn, launch.draft.request)

    async def _follow(self, turn: Turn, request: LaunchRequest) -> Correction | None:
        """Drive the turn's run to its end. Gives the correction where the turn needs another run."""
        sink = TurnSink(self._session)
        run = await self._run(turn, request, sink)
        self.run = run
        self._end_if_taken_back(run)
        record = await run.drive()
        run_dir = self._session.dir.run(turn.run)
        correction = await self._closer.close(run, record, run_dir, mode=self._mode, lap_s=sink.lap())
        self.run = None  # what another one starts descends from another keeper
        return correction

    async def _run(self, turn: Turn, request: LaunchRequest, sink: TurnSink) -> Run:
        session = self._session
        run_dir, adapter = session.dir.run(turn.run), self._backend.adapter
        settings = RunSettings(
            session.id,
            turn.run,
            session.timeouts,
            self._backend.config.limits,
            request,
            self._storage,
            session.services.drift.sample(adapter.fields),
            session.services.own,
            session.services.orphans,
            session.services.pace,
        )
        run = Run(sink, run_dir, adapter, settings, session.redact)
        if session.tools is not None:
            run.guard.hold(held=len(session.tools.calls) > 0)  # a bridge may have come back before us
        word = None if turn.process_started else await self._storage.surely(run_dir.start_record)
        if word and word.get("pid"):
            started = await self._process_started(word, run_dir)
            run.note(started)  # from here on the run waits for a bad disk, not the turn
        return run

    # -- a live process ----------------------------------------------------------------------------------------------

    async def _live_run(self, turn: Turn, prompt: dict[str, Any]) -> Correction | None:
        live = None if turn.started else await self._handed_over(turn, prompt)
        if live is None:
            await self._patiently(self._session.services.live.make_room)
            if self.cancelled:
                await self._session.end_turn(turn.id, _CANCELLED)
                return None
            launch = await self._launch(turn, prompt)
            live = await self.start_live(turn, launch.draft.request, launch.draft.fingerprint or {})
        self.starting = None
        return await self._end_in(live, turn)

    async def _end_in(self, live: LiveRun, turn: Turn) -> Correction | None:
        """Wait for the turn's end in a live process. It may have been taken back while there was none to interrupt."""
        self._end_if_taken_back(live.run)
        return await live.end_of(turn.id)

    async def _handed_over(self, turn: Turn, prompt: dict[str, Any]) -> LiveRun | None:
        """The process of an earlier turn, where there is one and it has taken the prompt."""
        while (live := self._session.live) is not None and not self.cancelled:
            await self._patiently(live.quiet)
            if live.gone.is_set() or self.cancelled:
                continue
            await check_strangers(self._session)
            named = (self._session.native_id, True)
            draft = await self._launcher.draft(turn.id, prompt, named, live.run.number)
            if changed := live.changed(draft):
                text = f"the process is started anew, because of another value for: {', '.join(changed)}"
                await self._patiently(partial(live.replace, text))
                continue
            event = self._started(turn, live.run.number, prompt, draft)
            if await live.begin(Item(event, turn.id, memo={"transcript_at": self._native.written()}), draft.spec.stdin):
                return live
        return None

    async def start_live(self, turn: Turn, request: LaunchRequest, mark: dict[str, str]) -> LiveRun:
        """Take hold of the live process of this turn; `mark` is the fingerprint that it was launched with."""
        session = self._session
        sink = LiveSink(session)
        run = await self._run(turn, request, sink)
        live = LiveRun(session, run, sink, session.dir.run(turn.run), self._closer, mark)
        live.mode = self._mode
        session.live = live
        session.nursery.start_soon(live.serve)
        return live

    async def adopt_live(self, turn: Turn) -> LiveRun:
        """As `start_live`, of a process that a daemon before this one had started."""
        run_dir = self._session.dir.run(turn.run)
        prompt = None if not turn.id else await self._storage.surely(lambda: self._session.dir.load_prompt(turn.id))
        intent = await self._storage.surely(run_dir.intent)
        return await self.start_live(turn, await self._launcher.again(run_dir, prompt), dict(intent.get("live") or {}))

    # -- how a run begins --------------------------------------------------------------------------------------------

    async def _launch(self, turn: Turn, prompt: dict[str, Any]) -> Launch:
        """Journal the intent, then start the keeper: a crash between the two leaves no CLI that nobody knows of."""
        session = self._session
        launch = await self._launcher.prepare(turn.id, prompt, self._mode)
        self._announce(turn, launch, prompt)
        if launch.spec.stale_locks:
            await trio.to_thread.run_sync(remove_stale_locks, launch.spec.stale_locks, launch.draft.env)
        keeper = await session.services.keepers.start(self._launcher.keeper_spec(launch), session.nursery)
        failpoint("handover.after")
        word = keeper.word
        if keeper.not_forked:
            _log.warning("keeper not forked", session=session.id, turn=turn.id, run=launch.number,
                         backend=session.spec.backend, error=keeper.not_forked)  # fmt: skip
        if word.get("error") and word.get("kind") != "spawn_failed":  # that one leaves an exit record
            drop_cgroup(launch.run_dir)
            raise _not_kept(word)
        _log.debug("keeper started", session=session.id, turn=turn.id, run=launch.number, backend=session.spec.backend,
                   keeper=keeper.pid, pid=word.get("pid"))  # fmt: skip
        return launch

    def _announce(self, turn: Turn, launch: Launch, prompt: dict[str, Any]) -> None:
        memo: dict[str, Any] = {"begin": {"out": 0, "err": 0}, "live": launch.draft.request.live}
        event: EventBase = Notice(code="run_replaced", message=f"the turn goes on with run {launch.number}")
        if turn.started:
            memo["run"] = launch.number
        else:
            event = self._started(turn, launch.number, prompt, launch.draft)
        self._session.recorder.record([Item(event, turn.id, memo=memo)])

    def _started(self, turn: Turn, number: int, prompt: dict[str, Any], draft: Draft) -> TurnStarted:
        text = str(prompt["text"])
        actor = prompt.get("actor")
        return TurnStarted(
            run=number,
            prompt_altered=draft.spec.prompt_altered,
            prompt_preview=self._session.redact(text[: 16 * PREVIEW])[:PREVIEW],
            prompt_bytes=len(text.encode()),
            prompt_images=sum(block["type"] == "image" for block in prompt.get("content", ())) or None,
            key=turn.key,
            actor=msgspec.convert(actor, Actor) if actor else None,
            prompt_ids=(draft.request.prompt_id,) if draft.request.live and draft.request.prompt_id else None,
        )

    async def _process_started(self, word: dict[str, Any], run_dir: RunDir) -> ProcessStarted:
        intent = await self._storage.surely(run_dir.intent)
        return ProcessStarted(
            pid=word["pid"],
            start_time=word.get("start_time"),
            argv=tuple(self._session.redact(_short(part)) for part in intent.get("argv", ())),
            env_names=tuple(intent.get("env_names", ())),
            env_attested=word.get("env_attested"),
            cgroup=intent.get("cgroup"),
        )

    async def _fail(self, turn: Turn, error: TurnError) -> None:
        await self._session.end_turn(turn.id, TurnCompleted(outcome="failed", error=error))


_CANCELLED = TurnCompleted(
    outcome="interrupted",
    error=TurnError(kind="cancelled", message="the turn was interrupted before its CLI was started"),
)


def _short(word: str) -> str:
    """A word of a command line as it is shown: an output schema may be one of 96 KiB."""
    return word if len(word) <= LONG_WORD else f"{word[:PREVIEW]}... ({len(word)} characters)"


def _not_kept(word: dict[str, Any]) -> WorldError:
    """The keeper left before its fork, so no CLI ran."""
    kind = "storage_failed" if word.get("kind") == "storage_failed" else "spawn_failed"
    return WorldError(f"cannot run the CLI, because its keeper says: {word['error']}", kind=kind, hint="see the log")


def _turn_error(error: ClisupError) -> TurnError:
    """A failure to start, as the turn's error."""
    other: TurnErrorKind = "spawn_failed" if isinstance(error, WorldError) else "invalid_request"
    kind = _KINDS.get(error.kind, other)
    return TurnError(kind=kind, message=str(error), retryable=error.to_wire()["data"]["retryable"])


_KINDS: dict[str, TurnErrorKind] = {
    "storage_failed": "storage_failed",
    "permission_denied": "permission",
    "session_busy": "session_busy",
}
