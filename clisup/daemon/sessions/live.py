"""Live processes: CLI processes for many turns, kept between turns. The number of live processes has a limit."""

from __future__ import annotations

import trio
from msgspec.structs import replace

from clisup.backends.base import Background, LaunchRequest
from clisup.daemon.approvals.queue import ApprovalQueue
from clisup.daemon.journal.recorder import Item
from clisup.daemon.limits.budgets import Budgets
from clisup.daemon.runs.leftovers import end_run
from clisup.daemon.runs.run import Run
from clisup.daemon.sessions.cli_session import CliSession
from clisup.daemon.sessions.context import SessionContext
from clisup.daemon.sessions.launch import Draft
from clisup.daemon.sessions.run_end import Correction, RunCloser
from clisup.daemon.sessions.steering import Steering
from clisup.daemon.sessions.turn_ends import GIVE_UP_PAUSE_S, TurnEnds
from clisup.daemon.sessions.turn_recorder import TurnRecorder
from clisup.host import clock
from clisup.host.log import event_logger
from clisup.host.shortage import shortage_of
from clisup.host.threads import in_thread
from clisup.model.events import Notice, ProcessExited
from clisup.model.lifecycle import Cause, SessionState
from clisup.model.sessions.turn_state import SpoolPlace, TurnState
from clisup.model.verdict import Terminal
from clisup.policy.fingerprint import differences, digest
from clisup.store.session_dir import RunDir
from clisup.store.spool import spool_size

__all__ = ["LivePool", "LiveRun"]

BACKGROUND_CHECK_S = 0.5  # the end of background work sends no notification
_AT_WORK = (SessionState.STARTING, SessionState.RUNNING, SessionState.ENDING)
_log = event_logger()


class LiveRun(TurnRecorder):
    """Live process of a session, and the recorder of the process's turns.

    `serve` is the task. `gone` is set when the process has ended and all output is journaled. The caller assigns `run`
    right after the construction, because the `Run` needs the `LiveRun` as its sink.
    """

    run: Run

    def __init__(
        self,
        context: SessionContext,
        run_dir: RunDir,
        mark: dict[str, str],
        *,
        pool: LivePool,
        approvals: ApprovalQueue,
        budgets: Budgets,
        ends: TurnEnds,
        steering: Steering,
        closer: RunCloser,
        mode: str | None,
    ) -> None:
        """`mark` is the fingerprint of the launch, and `mode` the correction at the start of the process."""
        super().__init__(context, approvals, ends)
        self.session_id = context.id
        self.mark = mark
        self.gone = trio.Event()
        self.correction: Correction | None = None
        self.rests_since: float | None = None
        self._dir = run_dir
        self._pool = pool
        self._budgets = budgets
        self._steering = steering
        self._closer = closer
        self._mode = mode
        self._news = trio.Event()
        self._has_own_turn = False  # the CLI began the running turn, and the turn has a slot of its own

    @property
    def resting(self) -> bool:
        """Tell whether the process only waits for its next turn, and may be ended."""
        turn, ledger = self._context.ledger.active_turn, self._context.ledger
        waits = self.rests_since is not None and turn is not None and not turn.id and not self.run.tracker.background
        return waits and not self.leaving and not ledger.open_steers

    @property
    def is_retiring(self) -> bool:
        """Tell whether the process is ending without a running turn."""
        return self.leaving and not self.gone.is_set() and not self._context.ledger.current

    @property
    def leaving(self) -> bool:
        """Tell whether the process is ending or gone."""
        return self.run.ending or self.gone.is_set()

    async def serve(self) -> None:
        """Follow the process to its end."""
        context = self._context
        try:
            if not self.turn.id:
                self.rests_since = clock.monotonic()
            self._pool.trim()
            record = await self.run.drive(self._budgets.watch, self._approvals.serve)
            lap = self.lap()
            self.correction = await self._closer.close(self.run, record, self._dir, mode=self._mode, lap_s=lap)
            await self._steering.process_gone()  # not if the daemon detaches: then the CLI still has its prompts
        except Exception as error:  # a fault of the daemon ends this process, never the daemon
            _log.exception("live process failed inside the daemon", session=context.id, backend=context.spec.backend)
            await self._failed(error)
        finally:
            self._pool.remove(self)
            self.gone.set()
            if context.run is self.run:
                context.run = None
            self.turn_ended()
            context.notify()

    async def _failed(self, error: Exception) -> None:
        """End the process and its turn after a fault of the daemon. Try again while descriptors or memory are short."""
        while (shortage := await self._try_to_fail(error)) is not None:
            _log.error("turn overloaded", session=self._context.id, backend=self._context.spec.backend, error=shortage)
            await trio.sleep(GIVE_UP_PAUSE_S)

    async def _try_to_fail(self, error: Exception) -> str | None:
        """Return the shortage that kept the process or the turn from its end, or None."""
        context = self._context
        try:
            if (turn := context.ledger.active_turn) is None:
                return None
            await end_run(context.dir.run(turn.run))
            gone = Item(ProcessExited(ended_by="unknown", note="the daemon could not follow it"), turn.id)
            await context.recorder.record_with_retry(lambda: self._approvals.closed_with(gone))
            if turn.id:
                await self._ends.give_up(error)
            await self._steering.process_gone()
        except Exception as failure:
            if (shortage := shortage_of(failure)) is not None:
                return shortage.message
            _log.exception("live process not ended inside the daemon", session=context.id, backend=context.spec.backend)
        return None

    # -- as the recorder of its run ----------------------------------------------------------------------------------

    def end_turn(self, terminal: Terminal, place: SpoolPlace, background: Background) -> list[Item]:
        """Return the end of a turn. A CLI that names no prompts has taken all steered prompts."""
        items = super().end_turn(terminal, place, background)
        if terminal.prompts is None and not terminal.follow_up:
            last = items[-1]
            memo = (last.memo or TurnState()) | TurnState(dropped=self._context.ledger.open_steers)
            items[-1] = replace(last, memo=memo)
        return items

    def idle(self, given_up: frozenset[str]) -> list[Item]:
        """Close the steers that the CLI has dropped. The CLI will still begin the steers that it has not read."""
        return self._steering.dropped(given_up)

    def turn_began(self) -> None:
        """Take a slot for a turn that the CLI began."""
        if self._context.state is SessionState.IDLE:
            self._has_own_turn = True
            self._context.services.slots.force()
            self._context.advance(Cause.ADOPT)

    def first_frame(self) -> None:
        """Note the first output, unless the session's next prompt waits for a slot beside a turn of the CLI's own."""
        if self._context.state in _AT_WORK:
            super().first_frame()

    def ending(self) -> None:
        """Note the ending, with the same exception as `first_frame`."""
        if self._context.state in _AT_WORK:
            super().ending()

    def turn_ended(self) -> None:
        """Return the slot of the CLI's own turn, and rest."""
        if self._has_own_turn:
            self._has_own_turn = False
            self._context.services.slots.release()
            self._context.advance(Cause.TURN_OVER)
        self._steering.forget_stored()
        self._notify()
        if self.gone.is_set():
            return
        self.rests_since = clock.monotonic()
        limit = self._context.backend.config.live.spool_bytes
        if limit and self.resting and spool_size(self._dir.out) >= limit:
            self.let_go("renewed")
        else:
            self._pool.trim()
        self._context.notify()

    def let_go(self, reason: str) -> None:
        """End the resting process, without a wait for its end."""
        if self.run.termination.mark_retired(reason):
            self._context.nursery.start_soon(self.run.termination.retire, reason)

    async def somebody_wrote(self) -> bool:
        """Tell whether another program wrote into the transcript while the process rested.

        Work in the background writes, too, so nothing is told of a process that has some.
        """
        turn, ledger = self._context.ledger.active_turn, self._context.ledger
        if turn is None or turn.id or self.run.tracker.background or ledger.open_steers:
            return False
        return await in_thread(CliSession(self._context).strange_messages) > 0

    def _notify(self) -> None:
        self._news.set()
        self._news = trio.Event()

    # -- turns -------------------------------------------------------------------------------------------------------

    async def begin(self, item: Item, text: str, request: LaunchRequest) -> bool:
        """Journal the start of a queued turn and send the prompt. Return False if the process can take no prompt."""
        self.lap()
        is_free = lambda: not self.turn.id and not self.leaving  # noqa: E731  the CLI may have begun a turn meanwhile
        if not await self.run.begin_turn(item, text, request, is_free):
            return False
        self.rests_since = None
        return True

    async def end_of(self, turn_id: str) -> Correction | None:
        """Wait for a turn's end. Return the correction if the process has ended and the turn needs another process."""
        while self._context.ledger.turn(turn_id) is not None and not self.gone.is_set():
            await self._news.wait()
        return self.correction if self._context.ledger.turn(turn_id) is not None else None

    def continued(self) -> None:
        """Note a turn that the CLI began before the session had finished the last turn."""
        self.turn_began()
        self.first_frame()

    async def quiet(self) -> None:
        """Wait until the process rests, or is gone."""
        while not self.gone.is_set() and (self.turn.id or self.leaving):
            await self._news.wait()

    async def keep_mark(self, name: str, value: str) -> None:
        """Note the new value of a setting. The process uses the value already, so the next turn needs no restart."""
        self.mark = {**self.mark, name: digest(value)}
        await self._context.services.storage.with_retry(lambda: self._dir.amend_intent(live=self.mark))

    # -- its end -----------------------------------------------------------------------------------------------------

    def changed(self, draft: Draft) -> list[str]:
        """Return the names of the launch values that must change for the next turn."""
        return differences(self.mark, draft.fingerprint or {})

    async def retire(self, reason: str) -> None:
        """End the process by the end of its stdin, then by the ladder. Wait for the exit. A running turn may end first."""
        while not self.gone.is_set():  # the CLI may just have begun a turn
            await self.run.termination.retire(reason)
            if not self.gone.is_set():
                await self._news.wait()

    async def replace(self, message: str) -> None:
        """End the process for the reason in `message`: the next turn needs another process. Let background work end first."""
        while self.run.tracker.background and not self.gone.is_set():
            with trio.move_on_after(BACKGROUND_CHECK_S):
                await self._news.wait()
        if not self.gone.is_set():
            self.run.note(Notice(code="process_restarted", message=message))
            await self.retire("changed")


class LivePool:
    """Live processes of the daemon, at most `limit`. The longest resting process makes room."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._all: dict[str, LiveRun] = {}  # by session id

    def __len__(self) -> int:
        return len(self._all)

    def get(self, session_id: str) -> LiveRun | None:
        """Return the live process of a session, or None."""
        return self._all.get(session_id)

    def resize(self, limit: int) -> None:
        """Change the limit."""
        self.limit = limit
        self.trim()

    def add(self, live: LiveRun) -> None:
        """Add a started or adopted process."""
        self._all[live.session_id] = live

    def remove(self, live: LiveRun) -> None:
        """Remove an ended process."""
        if self._all.get(live.session_id) is live:
            del self._all[live.session_id]

    def trim(self) -> None:
        """End the longest resting processes beyond the limit. If all are at work, end the first process at rest."""
        for live in self._excess(self.limit):
            live.let_go("room")

    async def make_room(self) -> None:
        """Wait until another process may start."""
        for live in self._excess(self.limit - 1):
            await live.retire("room")
        while len(self._all) >= self.limit and (
            retiring := next((live for live in self._all.values() if live.is_retiring), None)
        ):
            await retiring.gone.wait()

    def _excess(self, limit: int) -> list[LiveRun]:
        staying = [live for live in self._all.values() if not live.leaving]
        resting = sorted((live for live in staying if live.resting), key=lambda live: live.rests_since or 0.0)
        return resting[: max(0, len(staying) - limit)]
