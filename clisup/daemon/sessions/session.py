"""Session: the queue of prompts, the single running turn, and the requests of clients."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import trio
from msgspec.structs import asdict

from clisup.daemon.approvals.queue import ApprovalQueue
from clisup.daemon.backends import Backend
from clisup.daemon.journal.recorder import Item
from clisup.daemon.limits.budgets import Budgets
from clisup.daemon.limits.rate_limit_gate import RateLimitGate
from clisup.daemon.runs.run import Run
from clisup.daemon.services import Services
from clisup.daemon.sessions.cli_session import CliSession
from clisup.daemon.sessions.context import SessionContext
from clisup.daemon.sessions.launch import Launcher
from clisup.daemon.sessions.live import LivePool, LiveRun
from clisup.daemon.sessions.prompts import PromptQueue
from clisup.daemon.sessions.run_end import RunCloser
from clisup.daemon.sessions.session_log import SessionLog
from clisup.daemon.sessions.settings import Settings
from clisup.daemon.sessions.steering import Steering, stored_name
from clisup.daemon.sessions.turn import TurnRunner
from clisup.daemon.sessions.turn_ends import TurnEnds
from clisup.daemon.tools.calls import SessionTools
from clisup.errors import UsageError, WorldError
from clisup.host.log import LOG, event_logger
from clisup.host.shortage import shortage_of
from clisup.model.envelope import writable
from clisup.model.events import Actor, Notice, SessionForked, SessionSeeded, TurnCompleted, TurnError
from clisup.model.lifecycle import Cause, SessionState
from clisup.model.sessions.ledger import Ledger, TurnRecord
from clisup.model.sessions.turn_state import TurnState
from clisup.model.structs import JsonObject
from clisup.policy.watchdog import LadderKind, ladder_for
from clisup.store.opened import SPEC_FILE, Opened, opening
from clisup.wire.params import NoteParams
from clisup.wire.results import NoteResult

__all__ = ["Session"]

CRASH_LIMIT = 5
"""Failed starts in a row before a session shows `failed` and backs off."""
BACK_OFF_S = (0.0, 0.0, 0.5, 1.0, 2.0)
_log = event_logger()


class Session:
    """Session of a backend. `serve` is the session's task. Connections call everything else."""

    def __init__(
        self, opened: Opened, backend: Backend, services: Services, pool: LivePool, nursery: trio.Nursery
    ) -> None:
        spec = opened.spec
        context = self.context = SessionContext(opened, backend, services, nursery)
        self.id, self.spec = context.id, spec
        self.dir, self.recorder = context.dir, context.recorder
        self.tools = SessionTools(context) if spec.tools else None
        secrets = [*context.request_env.values(), *(context.dir.server_secrets() if spec.has_mcp_config else [])]
        context.hide([*secrets, *([self.tools.token] if self.tools is not None and self.tools.token else [])])
        self._pool = pool
        self.cli = CliSession(context)
        self.launcher = Launcher(context, self.cli, self.tools)
        self.approvals = ApprovalQueue(context)
        self.gate = RateLimitGate(context)
        self.budgets = Budgets(context)
        self._ends = TurnEnds(context, self.budgets, self.gate, self.approvals)
        self.steering = Steering(context, self.launcher)
        self.prompts = PromptQueue(context, self.steering, self.budgets, self.gate)
        self.settings = Settings(context, pool, self.prompts)
        self._new_runner = partial(
            TurnRunner,
            context,
            pool=pool,
            prompts=self.prompts,
            cli=self.cli,
            launcher=self.launcher,
            steering=self.steering,
            approvals=self.approvals,
            budgets=self.budgets,
            ends=self._ends,
            closer=RunCloser(context, self.cli, self.approvals, self._ends),
            tools=self.tools,
        )
        self._runner: TurnRunner | None = None
        self._slot_wait: trio.CancelScope | None = None
        self._waits_for_slot: str | None = None  # the turn
        self._failures = 0  # failed starts in a row
        self._new_backend: Backend | None = None  # of a reload, from the next turn on
        self._closed = trio.Event()
        self._close_notice = Notice(code="closed", message="the session was closed")
        context.recorder.on_recorded = SessionLog(self.id, spec.backend, context.recorder).log

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        return self.recorder.ledger

    @property
    def backend(self) -> Backend:
        """Return the backend of the present configuration."""
        return self.context.backend

    @property
    def state(self) -> SessionState:
        return self.context.state

    @property
    def visible_state(self) -> SessionState:
        """Return the state for clients. A turn is over with its `turn_completed`, although the session still syncs."""
        over = self.ledger.current is None and self.state in (SessionState.RUNNING, SessionState.ENDING)
        return SessionState.IDLE if over else self.state

    @property
    def run(self) -> Run | None:
        """Return the session's process, or None."""
        return self.context.run

    @property
    def live(self) -> LiveRun | None:
        """Return the session's live process, or None."""
        return self._pool.get(self.id)

    @property
    def at_work(self) -> bool:
        """Tell whether a turn is running or starting, or whether the daemon is adopting a turn."""
        return self._runner is not None or self.ledger.current is not None

    @property
    def adoptable(self) -> bool:
        """Tell whether an earlier daemon left a running turn or a live process."""
        return self.ledger.active_turn is not None

    def load(self) -> None:
        """Fold the journal. Raises `WorldError(storage_failed)` if the journal is damaged."""
        self.recorder.load()
        turns = [turn.id for turn in (self.ledger.current, *self.ledger.queue) if turn is not None]
        self.dir.keep_prompts([*turns, *map(stored_name, self.ledger.open_steers)])
        if self.ledger.closed:
            self.context.state = SessionState.CLOSED
            self.ledger.forget_turns()

    def record_origin(self) -> None:
        """Journal the origin of a fork or of a history as the first event. An earlier daemon may have died too soon."""
        if self.recorder.next_seq != 1:
            return
        if self.spec.forked_from is not None:
            self.recorder.record([Item(msgspec.convert(self.spec.forked_from, SessionForked))])
        elif self.spec.seeded is not None:
            self.recorder.record([Item(msgspec.convert(self.spec.seeded, SessionSeeded))])

    def hold(self, opened: Opened) -> None:
        """Report what was refused of the session's files: the journal's values hold.

        Record the opening of a session of an earlier version: from now on its files are compared with that.
        """
        if self.ledger.closed:
            return
        with suppress(WorldError):  # a bad disk: the next daemon reports again
            if opened.refused:
                self.context.refuse_file(SPEC_FILE, opened.refused)
                self.dir.save_spec(self.spec)
            if opened.files is None:
                self._record_opening()
        for name in self.dir.spoiled():
            self.context.refuse_file(name)

    def _record_opening(self) -> None:
        self.context.spec = self.spec = self.spec.model_copy(update={"journaled": True})
        files = self.dir.seal()
        text = "the session was opened by an earlier version: its settings are recorded in the journal now"
        notice = Notice(code="opening_recorded", message=text)
        self.recorder.record([Item(notice, memo=TurnState(opened=opening(self.spec, files)))])
        self.dir.proofs = files
        self.dir.save_spec(self.spec)

    # -- the session's task ------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Run the turns in order until the session is closed."""
        context, ledger = self.context, self.ledger
        if self.adoptable:
            await self._adopt()
        elif ledger.open_steers:  # an earlier daemon journaled the exit of the process, and nothing afterwards
            await self.steering.process_gone()
        while context.state is not SessionState.CLOSED:
            context.work.clear()
            self._apply_backend()
            if not ledger.queue:
                self.gate.account.leave(self.id)
            if context.closing and not context.busy:
                await self._finish_close()
            elif ledger.current is not None:  # the CLI has begun a turn
                await context.work.wait()
            elif ledger.open_steers and self.live is not None:
                await self.steering.wait_until_closed()
            elif ledger.queue and not context.draining:
                if await self._may_begin(ledger.queue[0]):
                    await self._next_turn(ledger.queue[0])
            else:
                self.recorder.rest()
                await context.work.wait()

    async def _may_begin(self, turn: TurnRecord) -> bool:
        """Tell whether the next turn may begin now. If not, end the turn or wait for a while."""
        end = self.budgets.exhausted()
        if end is None:
            if (held := self.gate.held()) is None:
                return True
            end = await self.gate.wait(turn, held)
        if end is not None:
            await self._ends.end_queued(turn, end)
        return False

    async def _adopt(self) -> None:
        turn = self.ledger.active_turn
        assert turn is not None
        runner = self._runner = self._new_runner()
        if not turn.id:
            await self._guarded(runner.adopt_live(turn))
            self._runner = None
            return
        self.context.services.slots.force()
        self.context.advance(Cause.ADOPT)
        try:
            await self._guarded(runner.resume(turn), turn)
        finally:
            self._runner = None
            self.context.services.slots.release()
        self._turn_over()

    def _turn_over(self) -> None:
        """Leave the turn's state. The CLI may have begun another turn already."""
        self.context.advance(Cause.TURN_OVER)
        if self.ledger.current is not None and self.live is not None:
            self.live.continued()

    async def _next_turn(self, turn: TurnRecord) -> None:
        context, slots = self.context, self.context.services.slots
        await trio.sleep(BACK_OFF_S[min(self._failures, len(BACK_OFF_S) - 1)])
        if self.ledger.turn(turn.id) is None or self.ledger.current is not None:  # the CLI may have begun a turn
            return
        context.advance(Cause.PROMPT)
        self._waits_for_slot = turn.id
        self.recorder.rest()
        with trio.CancelScope() as self._slot_wait:
            await slots.acquire()
        acquired = not self._slot_wait.cancelled_caught
        # A cancellation in the same step as the slot's assignment comes too late, so check again.
        wanted = self.ledger.turn(turn.id) is not None and not context.draining
        starts = acquired and wanted and self.gate.held() is None
        if acquired and not starts:
            slots.release()
        if not starts:
            self._turn_over()
            return
        try:
            context.advance(Cause.SLOT)
            self.gate.account.turn_started(self.id)
            self._runner = self._new_runner()
            await self._guarded(self._runner.execute(turn), turn)
        finally:
            self.gate.account.turn_ended(self.id)
            self._runner = None
            slots.release()
        self._turn_over()
        self._count_failure()

    async def _guarded(self, work: Awaitable[Any], turn: TurnRecord | None = None) -> None:
        """Contain a fault of the daemon in this session: the fault ends the turn, never the daemon.

        Remove the prompt of `turn` once the turn's end is on disk. The prompt stays if the daemon stops before the end.
        """
        try:
            await work
        except Exception as error:
            if (shortage := shortage_of(error)) is not None:
                _log.error("turn overloaded", session=self.id, backend=self.spec.backend, error=shortage.message)
            elif isinstance(error, WorldError):
                _log.error("turn not stored", session=self.id, backend=self.spec.backend, error=error.message)
            else:
                _log.exception("turn failed inside the daemon", session=self.id, backend=self.spec.backend)
            await self._ends.give_up(error)
        with suppress(WorldError):  # the daemon stops
            await self.context.sync(None if turn is None else lambda: self.dir.drop_prompt(turn.id))

    def _count_failure(self) -> None:
        """Back off after repeated failed starts of the CLI (fault 18)."""
        end = self.ledger.last_error
        self._failures = self._failures + 1 if end in ("spawn_failed", "crashed", "startup_timeout") else 0
        if self._failures >= CRASH_LIMIT and self.state is SessionState.IDLE:
            _log.error(
                "session backs off", session=self.id, backend=self.spec.backend, error=end, failures=self._failures
            )
            self.context.advance(Cause.CRASH_LOOP)

    # -- reload ------------------------------------------------------------------------------------------------------

    def change_backend(self, backend: Backend) -> None:
        """Use another configuration of the backend: from the next turn on, or at once if no turn runs."""
        if backend is not self.backend or self._new_backend is not None:
            self._new_backend = backend
            self._apply_backend()
            self.context.notify()

    def _apply_backend(self) -> None:
        """Apply the new configuration between two turns. A resting live process gets the new timers at once."""
        if self._new_backend is None or self.at_work:
            return
        self.context.change_backend(self._new_backend)
        self._new_backend = None
        self.gate.backend_changed()
        if self.live is not None:
            self.live.run.set_timeouts(self.context.timeouts)

    # -- requests of clients -----------------------------------------------------------------------------------------

    async def finished(self, turn_id: str) -> int:
        """Wait for the end of the turn, as `SessionContext.finished`."""
        return await self.context.finished(turn_id)

    async def interrupt(self, turn_id: str | None, mode: LadderKind, actor: Actor) -> tuple[str, int]:
        """End a turn and wait for the end. Return the turn id and the seq of `turn_completed`.

        Raises `UsageError(turn_not_found)` without a turn to interrupt.
        """
        turn = self.ledger.turn(turn_id) if turn_id else self.ledger.current or next(iter(self.ledger.queue), None)
        if turn is None:
            raise UsageError(
                "no such turn is running or queued",
                kind="turn_not_found",
                hint="see what runs: session/get, or clisup status",
            )
        if turn is self.ledger.current:
            self._end_current("client", mode, actor)
        elif self._runner is not None and self.context.starting == turn.id:
            self._runner.cancel("client", mode, actor=asdict(actor))
        else:
            self._drop_queued(turn, actor)
        return turn.id, await self.finished(turn.id)

    def _end_current(self, reason: str, mode: LadderKind, actor: Actor | None = None) -> None:
        """End the running or starting turn."""
        why = {"actor": asdict(actor)} if actor else {}
        if self.run is not None:
            self.run.end(reason, ladder_for(mode, self.context.timeouts), **why)
        elif self._runner is not None:
            self._runner.cancel(reason, mode, **why)

    def _drop_queued(self, turn: TurnRecord, actor: Actor) -> None:
        """Remove a turn from the queue. Raises `WorldError(storage_failed)`."""
        error = TurnError(kind="cancelled", message=f"taken out of the queue by uid {actor.uid}")
        done = TurnCompleted(outcome="interrupted", error=error)
        self.recorder.record([self._ends.completion(done, TurnState(), turn_id=turn.id)])
        self.dir.drop_prompt(turn.id)
        self.context.notify()  # the gate may hold this turn
        if self._waits_for_slot == turn.id:  # another turn keeps its place
            self._stop_slot_wait()

    def _stop_slot_wait(self) -> None:
        if self._slot_wait is not None:
            self._slot_wait.cancel()

    async def set_title(self, title: str, actor: Actor) -> None:
        """Change the title. Raises `UsageError(session_closed)`, `WorldError(storage_failed)`."""
        self.context.check_open()
        event = Notice(code="title_set", message=f"the title is now {title!r}", actor=actor)
        self.recorder.record([Item(event, memo=TurnState(title=title))])
        await self.context.sync()

    async def note(self, params: NoteParams, actor: Actor) -> NoteResult:
        """Journal a client's own notice. The notice belongs to no turn, even during a turn.

        Raises `UsageError(session_closed)`, `WorldError(storage_failed)`.
        """
        if self.state is SessionState.CLOSED:
            raise UsageError(
                f"session {self.id} is closed, so it takes no note",
                kind="session_closed",
                hint="add notes before the session is closed",
            )
        event = Notice(code=params.code, message=params.message, data=writable(params.data), actor=actor)
        seq = self.recorder.record([Item(event)])
        await self.context.sync()
        return NoteResult(seq=seq)

    def tools_to_serve(self) -> SessionTools:
        """Return the session's tools. Raises `UsageError`: unsupported (without tools), session_closed."""
        if self.tools is None:
            raise UsageError(
                f"session {self.id} was opened without any tools",
                kind="unsupported",
                hint="give `tools` to session/new",
            )
        if self.state is SessionState.CLOSED:
            raise UsageError(
                f"session {self.id} is closed, so its tools cannot be served",
                kind="session_closed",
                hint="open a new session",
            )
        return self.tools

    def timers(self) -> list[dict[str, Any]]:
        """Return every armed timer."""
        return self.run.watchdog.timers() if self.run else []

    def watch(self) -> dict[str, Any] | None:
        """Return why the running turn is still alive and what happens next, or None."""
        return self.run.watchdog.describe() if self.run else None

    def worktree(self) -> JsonObject | None:
        """Return the session's worktree and its state, or None."""
        return self.context.services.worktrees.describe(self.spec, closed=self.state is SessionState.CLOSED)

    # -- close -------------------------------------------------------------------------------------------------------

    def idle_since(self) -> str | None:
        """Return the time of the last event of a session at rest. Return None for a session with work, or a closed one."""
        at_rest = self.state in (SessionState.IDLE, SessionState.FAILED) and not self.context.busy and not self.at_work
        background = self.run is not None and bool(self.run.tracker.background)
        if not at_rest or background or self.context.closing:
            return None
        return self.ledger.last_event["ts"] if self.ledger.last_event else self.spec.created_at

    async def close_idle(self, actor: Actor, why: str) -> None:
        """Close a session that has rested for too long. `why` stands in the journal."""
        self._close_notice = Notice(code="closed", message=f"the session was closed: {why}", data={"by": "idle"})
        await self.close(actor)

    async def close(self, actor: Actor) -> None:
        """Interrupt the running turn, drop the queue, and remove private data. Closing twice is no error."""
        context = self.context
        if self.state is SessionState.CLOSED:
            return
        context.closing = True
        try:
            for turn in list(self.ledger.queue):
                if context.starting != turn.id:
                    self._drop_queued(turn, actor)
        except WorldError:  # the client gets the error, so the session must not close later
            context.closing = False
            raise
        while not self._closed.is_set():
            news = self.recorder.news
            if context.busy:  # the CLI may begin another turn after the first
                turn_id = self.ledger.current.id if self.ledger.current else self.ledger.queue[0].id
                await self.interrupt(turn_id, "graceful", actor)
            else:
                context.notify()
                await news.wait()

    async def _finish_close(self) -> None:
        """Close the session when no turn is left. Retire the live process first: the caller then checks again."""
        if self.live is not None:
            await self.live.retire("client")
            return
        await self.recorder.record_with_retry(lambda: [Item(self._close_notice)])
        with suppress(WorldError):  # the daemon stops
            await self.context.sync()
        self.context.advance(Cause.CLOSE)
        if self.tools is not None:
            self.tools.close()
        self.context.services.opened.remove(self.id)
        self.dir.forget_secrets()
        LOG.forget_brought(self.id)
        self.recorder.close()
        await self.context.services.worktrees.closed(self.id, self.spec.worktree)
        self._closed.set()
        self.recorder.wake()
        for _ in range(2):  # after two steps of the scheduler, all tasks that waited for a turn have its end
            await trio.lowlevel.checkpoint()
        self.ledger.forget_turns()

    # -- stop of the daemon ------------------------------------------------------------------------------------------

    async def drain(self, mode: str) -> None:
        """Start no more turns, and wait for the end of the running turn. `kill` ends the turn."""
        context = self.context
        context.draining = True
        self._stop_slot_wait()
        while (turn_id := context.active_turn_id) is not None:  # the CLI may begin another turn after the first
            if mode == "kill":
                self._end_current("operator", "term")
            await self.finished(turn_id)
        if self.live is not None:
            await self.live.retire("operator")

    def detach(self) -> None:
        """Leave the running CLI to the next daemon, and end the waits of clients."""
        self.context.detached = True
        self.approvals.detach()
        self.recorder.wake()
