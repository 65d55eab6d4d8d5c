"""A session: its queue of prompts, its one running turn, and what clients may ask of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog
import trio
from msgspec.structs import asdict, replace

from clisup.config.session_spec import SessionSpec
from clisup.daemon.approvals.desk import ApprovalDesk, with_denied
from clisup.daemon.backends import Backend
from clisup.daemon.limits.budgets import Budgets
from clisup.daemon.limits.rate_limit_gate import Gate
from clisup.daemon.notification import Wake
from clisup.daemon.ops.leftovers import end_run
from clisup.daemon.ops.session_log import SessionLog
from clisup.daemon.ops.status import keeper_pid_of, summary_of
from clisup.daemon.runs.run import Run
from clisup.daemon.services import Services
from clisup.daemon.sessions.cli_session import NativeSession
from clisup.daemon.sessions.launch import Launcher
from clisup.daemon.sessions.live import LiveRun
from clisup.daemon.sessions.prompts import PromptDesk
from clisup.daemon.sessions.reconfigure import Renewal, timeouts_of
from clisup.daemon.sessions.recorder import Item, Recorder
from clisup.daemon.sessions.settings import Controls
from clisup.daemon.sessions.shutdown import Shutdown
from clisup.daemon.sessions.steering import Steering, stored_name
from clisup.daemon.sessions.turn import TurnRunner
from clisup.daemon.tools.calls import ToolDesk
from clisup.errors import UsageError, WorldError
from clisup.host import clock
from clisup.host.log import LOG
from clisup.model.events import Actor, TurnCompleted, TurnError
from clisup.model.lifecycle import Cause, SessionState, advance
from clisup.model.sessions.ledger import Ledger, Turn
from clisup.ops.figures import Meter
from clisup.policy.ladder import LadderKind, ladder_for
from clisup.policy.rate_limit import with_wait
from clisup.policy.spill import Blob
from clisup.store.journal_store import JournalStore
from clisup.store.session_dir import SessionDir

__all__ = ["Session"]

CRASH_LIMIT = 5  # failed starts in a row; then the session shows `failed` and backs off
GIVE_UP_PAUSE_S = 1.0  # before another try to end a turn that the daemon cannot go on with
BACK_OFF_S = (0.0, 0.0, 0.5, 1.0, 2.0)
_log = structlog.get_logger()


class Session:
    """One session of one backend. `serve` is its task; everything else is called from connections."""

    def __init__(self, spec: SessionSpec, backend: Backend, services: Services, nursery: trio.Nursery) -> None:
        self.id = spec.session_id
        self.spec = spec
        self.backend = backend
        self.services = services
        self.nursery = nursery
        self.dir = SessionDir(services.state_dir, self.id)
        config = services.config.daemon
        store = JournalStore(self.dir.journal, segment_bytes=config.segment_bytes, durable=config.fsync != "none")
        self.recorder = Recorder(
            self.dir,
            store,
            services.storage,
            max_keys=config.retention.keys,
            everywhere=services.everywhere,
            at_ends=services.at_ends,
            meter=Meter(services.figures, spec.backend),
            shelf=services.shelf,
        )
        self.timeouts = timeouts_of(spec, backend)
        self.state = SessionState.IDLE
        self.tools = ToolDesk(self) if spec.tools else None
        brought = self.dir.secrets() if spec.env_names else {}
        hidden = [*brought.values(), *(self.dir.server_secrets() if spec.has_mcp_config else [])]
        hidden += [self.tools.token] if self.tools is not None and self.tools.token else []
        self.redact = backend.redactor(hidden) if hidden else backend.plain
        self._runner: TurnRunner | None = None
        self.live: LiveRun | None = None
        self.work = Wake()
        self._waiting: trio.CancelScope | None = None  # for a slot
        self._waits_for: str | None = None  # the turn that does
        self._failures = 0  # starts in a row that came to nothing
        self._last_turn = 0  # the number in the id that was given last
        self.prompts = PromptDesk(self)
        self.steering = Steering(self)
        self.controls = Controls(self)
        self.native = NativeSession(self)
        self.launcher = Launcher(self, self.native)
        self.approvals = ApprovalDesk(self)
        self.gate = Gate(self, brought)
        self.budgets = Budgets(self)
        self.recorder.on_recorded = SessionLog(self).tell
        LOG.hide_brought(self.id, hidden)
        self.renewal = Renewal(self)
        self.shutdown = Shutdown(self)

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        return self.recorder.ledger

    @property
    def native_id(self) -> str:
        """The CLI's own id of this session, as far as it is known: the next turn writes there."""
        known = self.ledger.native_session_id or self.spec.resume_native_id
        return known or self.backend.adapter.capabilities.native_id_prefix + self.id

    @property
    def live_mode(self) -> bool:
        """Are its turns to run in one process that is kept?"""
        return (self.spec.mode or self.backend.mode) == "live"

    @property
    def run(self) -> Run | None:
        """The process that there is."""
        if self.live is not None:
            return self.live.run
        return self._runner.run if self._runner is not None else None

    def setting(self, name: str) -> str | None:
        """The model or permission mode: as opened, or as a client has changed it since."""
        changed: str | None = self.ledger.settings.get(name) or getattr(self.spec, name)
        return changed

    @property
    def busy(self) -> bool:
        return self.ledger.current is not None or bool(self.ledger.queue)

    @property
    def at_work(self) -> bool:
        """A turn runs, or is just being started or adopted."""
        return self._runner is not None or self.ledger.current is not None

    @property
    def seen_state(self) -> SessionState:
        """The state that others see. A turn is over with its `turn_completed`; that its end has still to be synced holds up the
        next turn alone."""
        over = self.ledger.current is None and self.state in (SessionState.RUNNING, SessionState.ENDING)
        return SessionState.IDLE if over else self.state

    @property
    def starting(self) -> str | None:
        """The turn that is just being started: its `turn_started` is still to come."""
        return self._runner.starting if self._runner is not None else None

    @property
    def adoptable(self) -> bool:
        """A daemon before this one left a turn running, or a live process waiting."""
        return self.ledger.held is not None

    def next_turn_id(self) -> str:
        """An id for a new turn, taken at once: the CLI may begin one of its own before this one's prompt is journaled."""
        self._last_turn = max(self._last_turn, self.ledger.turns) + 1
        return f"t{self._last_turn}"

    def load(self) -> None:
        """Fold the journal. Raises `WorldError(storage_failed)` where it is damaged."""
        self.recorder.load()
        turns = [turn.id for turn in (self.ledger.current, *self.ledger.queue) if turn is not None]
        self.dir.keep_prompts([*turns, *map(stored_name, self.ledger.open_steers)])
        if self.ledger.closed:
            self.state = SessionState.CLOSED

    def advance(self, cause: Cause) -> None:
        """Go on in the lifecycle table, by one cause."""
        self.state = advance(self.state, cause)

    def completion(self, done: TurnCompleted, memo: dict[str, Any], *, turn_id: str | None = None) -> Item:
        """A turn's one end, to be journaled. Raises `WorldError(storage_failed)` where a long text cannot be kept."""
        current = self.ledger.current
        turn = turn_id or (current.id if current else None)
        done, memo = self.budgets.settled(done, memo, current if current and current.id == turn else None)
        done = with_denied(self._spilled(done, current.run if current else 0), turn, current)
        account = self.gate.account
        account.see(done)
        done = with_wait(done, account.limit, clock.wall())
        return Item(done, turn, memo=memo or None)

    def _spilled(self, done: TurnCompleted, run: int) -> TurnCompleted:
        """The final text obeys the inline limit too."""
        if len(done.text) <= self.backend.config.limits.inline_bytes:
            return done
        blob = Blob(f"blob-{run}-out-final.{self.ledger.turns}", done.text.encode())
        with self.services.storage.watched():
            self.dir.run(run).save_blob(blob.name, blob.data)
        return replace(done, text=done.text[:4096], blob=blob.name)

    # -- the session's task ------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Run turns, one after the other, until the session is closed."""
        if self.adoptable:
            await self._adopt()
        elif self.ledger.open_steers:
            # A daemon before this one journaled the exit of their process, and nothing after it.
            await self.steering.process_gone()
        while self.state is not SessionState.CLOSED:
            self.work.begin()
            self.renewal.take_up()
            if not self.ledger.queue:
                self.gate.account.leave(self)
            if self.shutdown.closing and not self.busy:
                await self.shutdown.finish_close()
            elif self.ledger.current is not None:  # the CLI has begun a turn by itself
                await self.work.wait()
            elif self.ledger.open_steers and self.live is not None:
                await self.steering.settle()
            elif self.ledger.queue and not self.shutdown.draining:
                if await self.gate.opens(self.ledger.queue[0]):
                    await self._next_turn(self.ledger.queue[0])
            else:
                await self.work.wait()

    async def _adopt(self) -> None:
        turn = self.ledger.held
        assert turn is not None
        self._runner = TurnRunner(self)
        if not turn.id:
            await self._guarded(self._runner.adopt_live(turn))
            self._runner = None
            return
        self.services.slots.force()
        self.advance(Cause.ADOPT)
        try:
            await self._guarded(self._runner.resume(turn), turn)
        finally:
            self._runner = None
            self.services.slots.release()
        self._turn_over()

    def _turn_over(self) -> None:
        """Its turn has ended, and the CLI may have begun another one by itself."""
        self.advance(Cause.TURN_OVER)
        if self.ledger.current is not None and self.live is not None:
            self.live.goes_on()

    async def _next_turn(self, turn: Turn) -> None:
        await trio.sleep(BACK_OFF_S[min(self._failures, len(BACK_OFF_S) - 1)])
        if self.ledger.turn(turn.id) is None or self.ledger.current is not None:  # the CLI may have begun one by itself
            return
        self.advance(Cause.PROMPT)
        self._waits_for = turn.id
        with trio.CancelScope() as self._waiting:
            await self.services.slots.acquire()
        given = not self._waiting.cancelled_caught
        # While it waited for the slot, or in the very step that gave it: then the cancellation came too late.
        waits = self.ledger.turn(turn.id) is not None and not self.shutdown.draining
        stays = given and waits and self.gate.held() is None
        if given and not stays:
            self.services.slots.release()
        if not stays:
            self._turn_over()
            return
        try:
            self.advance(Cause.SLOT)
            self.gate.account.start(self)
            self._runner = TurnRunner(self)
            await self._guarded(self._runner.execute(turn), turn)
        finally:
            self.gate.account.stop(self)
            self._runner = None
            self.services.slots.release()
        self._turn_over()
        self._count_failure()

    async def _guarded(self, work: Any, turn: Turn | None = None) -> None:
        """A fault of the daemon's own ends this turn, never the daemon: the session's edge is where it stops.

        The prompt of `turn` goes once its end is on disk, and not where a daemon leaves that the turn outlives.
        """
        try:
            await work
        except Exception as error:
            _log.exception("turn failed inside the daemon", session=self.id, backend=self.spec.backend)
            await self.surely_give_up(error)
        with suppress(WorldError):  # the daemon stops
            await self.sync(None if turn is None else lambda: self.dir.drop_prompt(turn.id))

    async def surely_give_up(self, error: Exception) -> None:
        """End the turn that runs, or the next one: the daemon could not go on with it. Where that fails, try again."""
        while True:
            try:
                return await self._give_up(error)
            except Exception:  # no memory is left, for one
                _log.exception("turn not ended inside the daemon", session=self.id, again_in_s=GIVE_UP_PAUSE_S)
            await trio.sleep(GIVE_UP_PAUSE_S)

    async def _give_up(self, error: Exception) -> None:
        turn = self.ledger.current or (self.ledger.queue[0] if self.ledger.queue else None)
        if turn is None:
            return
        if turn.run:  # nobody follows it any more, and the next turn must not meet it on the same native session
            await end_run(self.dir.run(turn.run))
        message = "the daemon could not go on with this turn; its log says why"
        failure = TurnError(kind="storage_failed" if isinstance(error, WorldError) else "protocol", message=message)
        done = TurnCompleted(outcome="failed", error=failure)
        await self.end_turn(turn.id, done)

    async def end_turn(self, turn_id: str, done: TurnCompleted) -> None:
        """Journal the end of a turn that no run tells of, and before it of what its CLI still asks."""
        await self.recorder.record_surely(lambda: self.approvals.and_gone(self.completion(done, {}, turn_id=turn_id)))
        self.approvals.over()

    def live_gone(self, live: LiveRun) -> None:
        """The live process has ended."""
        if self.live is live:
            self.live = None
        self.work_came()

    def _count_failure(self) -> None:
        """A CLI that cannot even be started must not be started in a tight loop (fault 18)."""
        end = self.ledger.last_error
        self._failures = self._failures + 1 if end in ("spawn_failed", "crashed", "startup_timeout") else 0
        if self._failures >= CRASH_LIMIT and self.state is SessionState.IDLE:
            _log.error(
                "session backs off", session=self.id, backend=self.spec.backend, error=end, failures=self._failures
            )
            self.advance(Cause.CRASH_LOOP)

    async def sync(self, then: Callable[[], None] | None = None) -> None:
        """Make the journal survive a power loss; `then` is for a file that is not wanted any more after that."""
        if self.services.config.daemon.fsync == "turn":
            await self.recorder.sync(then)
        elif then is not None:
            then()

    # -- what clients ask --------------------------------------------------------------------------------------------

    def work_came(self) -> None:
        """There is something to do, or to look at again."""
        self.work.set()

    async def finished(self, turn_id: str) -> int:
        """Wait until the turn has ended; give the seq of its turn_completed.

        Raises `UsageError(turn_not_found)`, `WorldError(shutting_down)` where the daemon leaves before the turn has ended.
        """
        while True:
            news = self.recorder.news
            if (seq := self.ledger.ends.get(turn_id)) is not None:
                return seq
            if self.ledger.turn(turn_id) is None:
                raise UsageError(
                    f"cannot find turn {turn_id} in session {self.id}", kind="turn_not_found", hint="see clisup logs"
                )
            if self.shutdown.left:
                raise WorldError(
                    f"cannot wait for turn {turn_id} any longer, because the daemon is stopping",
                    kind="shutting_down",
                    hint="the turn goes on or is still queued: ask again after the restart, with the prompt's key",
                )
            await news.wait()

    async def interrupt(self, turn_id: str | None, mode: LadderKind, actor: Actor) -> tuple[str, int]:
        """End a turn and wait for its end. Gives the turn and the seq of its turn_completed.

        Raises `UsageError(turn_not_found)` where there is nothing to interrupt.
        """
        turn = self.ledger.turn(turn_id) if turn_id else self.ledger.current or next(iter(self.ledger.queue), None)
        if turn is None:
            raise UsageError(
                "cannot interrupt, because no such turn is running or queued",
                kind="turn_not_found",
                hint="see what runs: session/get, or clisup status",
            )
        if turn is self.ledger.current:
            self.end_current("client", mode, actor)
        elif self._runner is not None and self._runner.starting == turn.id:
            self._runner.take_back("client", mode, actor=asdict(actor))
        else:
            self.drop_queued(turn, actor)
        return turn.id, await self.finished(turn.id)

    def end_current(self, reason: str, mode: LadderKind, actor: Actor | None = None) -> None:
        """End the turn that runs, or is just being started: its end is still to come."""
        why = {"actor": asdict(actor)} if actor else {}
        if self.run is not None:
            self.run.end(reason, ladder_for(mode, self.timeouts), **why)
        elif self._runner is not None:
            self._runner.take_back(reason, mode, **why)

    def drop_queued(self, turn: Turn, actor: Actor) -> None:
        """Take a turn out of the queue. Raises `WorldError(storage_failed)`."""
        error = TurnError(kind="cancelled", message=f"taken out of the queue by uid {actor.uid}")
        done = TurnCompleted(outcome="interrupted", error=error)
        self.recorder.record([self.completion(done, {}, turn_id=turn.id)])
        self.dir.drop_prompt(turn.id)
        self.work.set()  # it may be the one that is held
        if self._waits_for == turn.id:  # another turn keeps its place
            self.leave_line()

    def leave_line(self) -> None:
        """Whichever turn waits for a slot does so no longer."""
        if self._waiting is not None:
            self._waiting.cancel()

    # -- what people look at -----------------------------------------------------------------------------------------

    def summary(self) -> dict[str, Any]:
        """A row of `session/list` and `daemon/status`."""
        return summary_of(self)

    def resumed(self, pause_s: float) -> None:
        """The machine was suspended for so long."""
        run = self.run
        if run is not None:
            run.resumed(pause_s)

    def keeper_pid(self) -> int | None:
        """The keeper of the process that there is: its descendants have no say in the daemon."""
        return keeper_pid_of(self)

    def timers(self) -> list[dict[str, Any]]:
        """Every armed timer."""
        return self.run.guard.timers() if self.run else []

    def watch(self) -> dict[str, Any] | None:
        """Why the running turn is still alive and what happens next; None where nothing runs."""
        return self.run.guard.describe() if self.run else None
