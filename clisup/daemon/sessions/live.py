"""Live processes: one CLI process for many turns, kept for a while between them, and at most so many of them at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog
import trio
from msgspec.structs import replace

from clisup.backends.base import Background
from clisup.daemon.ops.leftovers import end_run
from clisup.daemon.runs.run import Run
from clisup.daemon.runs.run_end import Closer, Correction
from clisup.daemon.sessions.recorder import Item
from clisup.daemon.sessions.turn_recorder import Place, TurnSink
from clisup.host import clock
from clisup.model.events import Notice, ProcessExited
from clisup.model.lifecycle import Cause, SessionState
from clisup.model.terminal import Terminal
from clisup.policy.fingerprint import differences, digest
from clisup.store.session_dir import RunDir
from clisup.store.spool import spool_size

if TYPE_CHECKING:
    from clisup.daemon.sessions.launch import Draft
    from clisup.daemon.sessions.session import Session

__all__ = ["LivePool", "LiveRun", "LiveSink"]

BACKGROUND_LOOK_S = 0.5  # the end of background work is no news of a turn
_AT_WORK = (SessionState.STARTING, SessionState.RUNNING, SessionState.ENDING)
_log = structlog.get_logger()


class LiveSink(TurnSink):
    """The sink of a live run: turns begin and end in it."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.on_rest: Callable[[], None] = _nothing
        self._unasked = False  # a turn that the CLI began by itself runs, and holds a slot

    def over(self, terminal: Terminal, place: Place, background: Background) -> list[Item]:
        """A CLI that names no prompts at all has taken what it was told."""
        items = super().over(terminal, place, background)
        if terminal.prompts is None and not terminal.follow_up:
            last = items[-1]
            items[-1] = replace(last, memo={**(last.memo or {}), "dropped": self._session.ledger.open_steers})
        return items

    def idle(self, given_up: frozenset[str]) -> list[Item]:
        """What was steered and taken back by the CLI is done with. What it has not read yet, it is going to begin."""
        return self._session.steering.dropped(given_up)

    def began(self) -> None:
        """Such a turn is journaled."""
        if self._session.state is SessionState.IDLE:
            self._unasked = True
            self._session.services.slots.force()
            self._session.advance(Cause.ADOPT)

    def first_frame(self) -> None:
        """A turn of the CLI's own may run while the session's next prompt waits for a slot."""
        if self._session.state in _AT_WORK:
            super().first_frame()

    def ending(self) -> None:
        """As `first_frame`."""
        if self._session.state in _AT_WORK:
            super().ending()

    def rested(self) -> None:
        if self._unasked:
            self._unasked = False
            self._session.services.slots.release()
            self._session.advance(Cause.TURN_OVER)
        self._session.steering.forget_stored()
        self.on_rest()


def _nothing() -> None:
    """Nobody is to be told."""


class LiveRun:
    """One live process of a session. `serve` is its task; `gone` is set when it has ended, after all it said is journaled."""

    def __init__(
        self, session: Session, run: Run, sink: LiveSink, run_dir: RunDir, closer: Closer, mark: dict[str, str]
    ) -> None:
        self._session = session
        self._sink = sink
        self._dir = run_dir
        self._closer = closer
        self._news = trio.Event()
        self.mark = mark
        self.run = run
        self.mode: str | None = None  # how it named the native session, where a first try was wrong
        self.gone = trio.Event()
        self.correction: Correction | None = None
        self.rests_since: float | None = None
        sink.on_rest = self._rest

    @property
    def resting(self) -> bool:
        """It waits for its next turn and for nothing else, and can be let go."""
        waits = self.rests_since is not None and not self._sink.turn.id and not self.run.tracker.background
        return waits and not self.leaving and not self._session.ledger.open_steers

    @property
    def going(self) -> bool:
        """It is being let go, with no turn to end before that."""
        return self.leaving and not self.gone.is_set() and not self._session.ledger.current

    @property
    def leaving(self) -> bool:
        """It is being ended, or is gone."""
        return self.run.ending or self.gone.is_set()

    async def serve(self) -> None:
        """Follow the process to its end."""
        session = self._session
        try:
            if not self._sink.turn.id:
                self.rests_since = clock.monotonic()
            session.services.live.add(self)
            record = await self.run.drive()
            lap = self._sink.lap()
            self.correction = await self._closer.close(self.run, record, self._dir, mode=self.mode, lap_s=lap)
            await session.steering.process_gone()  # not where the daemon leaves: the CLI still has what it was told
        except Exception as error:  # a fault of the daemon's own ends this process, never the daemon
            _log.exception("live process failed inside the daemon", session=session.id, backend=session.spec.backend)
            await self._failed(error)
        finally:
            session.services.live.discard(self)
            self.gone.set()
            self._sink.rested()
            self._sink.on_rest = _nothing  # else these two keep each other
            session.live_gone(self)

    async def _failed(self, error: Exception) -> None:
        """What there is of the process is ended, and so is its turn."""
        session = self._session
        try:
            if (turn := session.ledger.held) is None:
                return
            await end_run(session.dir.run(turn.run))
            gone = Item(ProcessExited(ended_by="unknown", note="the daemon could not follow it"), turn.id)
            await session.recorder.record_surely(lambda: session.approvals.and_gone(gone))
            if turn.id:
                await session.surely_give_up(error)
            await session.steering.process_gone()
        except Exception:
            _log.exception("live process not ended inside the daemon", session=session.id, backend=session.spec.backend)

    # -- turns

    async def begin(self, item: Item, text: str) -> bool:
        """Journal the start of a queued turn and hand the process its prompt. False where it cannot take one any more."""
        self._sink.lap()
        ready = lambda: not self._sink.turn.id and not self.leaving  # noqa: E731  it may have begun one of its own meanwhile
        if not await self.run.begin_turn(item, text, ready):
            return False
        self.rests_since = None
        return True

    async def end_of(self, turn_id: str) -> Correction | None:
        """Wait for a turn's end; gives the correction where the process has ended and the turn needs another."""
        while self._session.ledger.turn(turn_id) is not None and not self.gone.is_set():
            await self._news.wait()
        return self.correction if self._session.ledger.turn(turn_id) is not None else None

    def goes_on(self) -> None:
        """It has begun a turn of its own before the session was done with the one before: that one is at work, too."""
        self._sink.began()
        self._sink.first_frame()

    async def quiet(self) -> None:
        """Wait until it rests, or is gone."""
        while not self.gone.is_set() and (self._sink.turn.id or self.leaving):
            await self._news.wait()

    def _rest(self) -> None:
        self._news.set()
        self._news = trio.Event()
        if self.gone.is_set():
            return
        self.rests_since = clock.monotonic()
        limit = self._session.backend.config.live.spool_bytes
        if limit and self.resting and spool_size(self._dir.out) >= limit:
            self.run.retire("renewed")
        else:
            self._session.services.live.trim()
        self._session.work_came()

    async def keep_mark(self, name: str, value: str) -> None:
        """The process has taken up another value of a setting: that is no reason to start it anew."""
        self.mark = {**self.mark, name: digest(value)}
        storage = self._session.services.storage
        await storage.surely(lambda: self._dir.amend_intent(live=self.mark))

    # -- how it is let go

    def changed(self, draft: Draft) -> list[str]:
        """What the next turn wants otherwise, in words."""
        return differences(self.mark, draft.fingerprint or {})

    async def retire(self, reason: str) -> None:
        """Let it go, by the end of its stdin and the ladder after that, and wait until it is gone. A turn that runs may end first."""
        while not self.gone.is_set():  # it may just have begun a turn of its own
            self.run.retire(reason)
            await self._news.wait()

    async def replace(self, message: str) -> None:
        """The next turn needs another process, and `message` says why. What this one does in the background may end first."""
        while self.run.tracker.background and not self.gone.is_set():
            with trio.move_on_after(BACKGROUND_LOOK_S):
                await self._news.wait()
        if not self.gone.is_set():
            self.run.note(Notice(code="process_restarted", message=message))
            await self.retire("changed")


class LivePool:
    """All live processes of the daemon: at most `limit`, and the one that has rested longest makes room."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._all: set[LiveRun] = set()

    def __len__(self) -> int:
        return len(self._all)

    def resize(self, limit: int) -> None:
        """Another limit, from now on."""
        self.limit = limit
        self.trim()

    def add(self, live: LiveRun) -> None:
        """One that has started, or was adopted."""
        self._all.add(live)
        self.trim()

    def discard(self, live: LiveRun) -> None:
        """One that is gone."""
        self._all.discard(live)

    def trim(self) -> None:
        """Where there are too many, the oldest idle ones go. All may be at work: then the first that rests goes."""
        for live in self._superfluous(self.limit):
            live.run.retire("room")

    async def make_room(self) -> None:
        """Before another one starts: wait until the oldest idle one is gone, where there would be too many."""
        for live in self._superfluous(self.limit - 1):
            await live.retire("room")
        while len(self._all) >= self.limit and (going := next((live for live in self._all if live.going), None)):
            await going.gone.wait()

    def _superfluous(self, limit: int) -> list[LiveRun]:
        staying = [live for live in self._all if not live.leaving]
        resting = sorted((live for live in staying if live.resting), key=lambda live: live.rests_since or 0.0)
        return resting[: max(0, len(staying) - limit)]
