"""One CLI process as the daemon sees it: its two spools, its decoder and its watchdog; `Leash` holds its keeper.

The same code serves a run just started and one adopted after a restart. What was journaled before is decoded again in
silence, up to the last place that the journal names; from there on every event is journaled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import structlog
import trio

from clisup.backends.base import END_OF_INPUT, Adapter, ApprovalAnswer, Carried, Decoder, LaunchRequest, Reply
from clisup.core.config import LimitsConfig
from clisup.core.drift import FrameSample
from clisup.core.events import (
    ApprovalResolved,
    BackendRetry,
    EventBase,
    Notice,
    SessionInit,
    StderrLine,
    ToolProgress,
    TurnError,
)
from clisup.core.framing import Line
from clisup.core.journal import Source
from clisup.core.ladder import Ladder, is_polite, ladder_for
from clisup.core.patience import Patience, out_of_patience
from clisup.core.redact import Redactor
from clisup.core.spill import Blob, spill
from clisup.core.terminal import Terminal, begins_turn
from clisup.core.verdict import ExitRecord, wrong_session
from clisup.core.watchdog import PhaseTracker, Timeouts
from clisup.daemon.asking import Asking, AskingSink, asks
from clisup.daemon.guard import Guard
from clisup.daemon.leash import END_SLOT, Leash, stdin_id
from clisup.daemon.recorder import Item
from clisup.daemon.storage import STORAGE_RETRY_S, Storage
from clisup.daemon.stream import Stream
from clisup.errors import WorldError
from clisup.host.failpoints import failpoint
from clisup.host.session_dir import RunDir
from clisup.host.spool import spool_size

__all__ = ["Run", "RunSettings", "RunSink"]

STDERR_TEXT_LIMIT = 2000

_STORAGE_BLOCKED = Notice(
    code="storage_blocked", message="the disk takes no more: nothing is lost, the CLI waits and its timers are frozen"
)
_STORAGE_RECOVERED = Notice(code="storage_recovered", message="the disk takes output again")
T = TypeVar("T")
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What a run needs from its session and backend."""

    session_id: str
    number: int
    timeouts: Timeouts
    limits: LimitsConfig
    request: LaunchRequest
    storage: Storage
    frames: FrameSample


class RunSink(AskingSink, Protocol):
    """What a run needs from its turn."""

    @property
    def carried(self) -> Carried: ...
    def record(self, items: Sequence[Item]) -> int: ...
    def first_frame(self) -> None: ...
    def ending(self) -> None: ...
    async def attend(self, run: Run) -> None: ...
    def split(self, terminal: Terminal, line: Line, err_offset: int, background: frozenset[str]) -> list[Item]: ...


class Run:
    """Drives one run to its end: `drive` gives the exit record after every byte of both spools was journaled."""

    def __init__(
        self, sink: RunSink, run_dir: RunDir, adapter: Adapter, settings: RunSettings, redact: Redactor
    ) -> None:
        self._sink = sink
        self._dir = run_dir
        self._adapter = adapter
        self._settings = settings
        self._redact = redact
        self._decoder: Decoder = adapter.decoder(sink.carried, settings.request)
        self._out = Stream(run_dir.out, sink.turn.begin["out"], settings.limits.line_bytes)
        self._err = Stream(run_dir.err, sink.turn.begin["err"], settings.limits.line_bytes)
        self._batch: list[Item] = []
        self._blobs: list[Blob] = []
        self._blocked_by: set[str] = set()
        self._decoded_to = self._sink.turn.begin["out"]
        self._heard = 0  # the highest id that the CLI's stdin has, as far as the keeper has told
        self._behind = spool_size(
            run_dir.out
        )  # what was said up to there is no news: it is decoded before anything is said
        self._heartbeat = False  # what was read last held nothing but heartbeats of a tool
        self._patience = Patience(settings.limits.retries, settings.limits.retry_wait_s)
        self._leash = Leash(self, run_dir, settings.session_id, settings.number, settings.storage)
        self._wake = trio.Event()
        self.tracker = PhaseTracker()
        self._asking = Asking(sink, self.tracker)
        self.guard = Guard(self, self._leash, self.tracker, settings.timeouts, settings.limits)
        self.terminal: Terminal | None = None

    @property
    def keeper_pid(self) -> int | None:
        """The keeper's pid, as it said in hello; None before the first link."""
        return self._leash.keeper_pid

    # -- the run as a whole ------------------------------------------------------------------------------------------

    async def drive(self) -> ExitRecord:
        """Follow the run until it has ended and everything it said is journaled."""
        if self._sink.turn.ending and not self._leash.ending:
            # A daemon before this one had decided to end the run; whether the keeper heard of it is not known.
            self._order_end(str(self._sink.turn.ending["reason"]), ladder_for("term", self._settings.timeouts))
        await self._surely(self._say_again)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._leash.listen)
                nursery.start_soon(self._leash.talk)
                nursery.start_soon(self.guard.watch)
                nursery.start_soon(self.guard.weigh)
                nursery.start_soon(self._sink.attend, self)
                await self._pump()
                nursery.cancel_scope.cancel()
        finally:
            await self._leash.aclose()
            self._out.close()
            self._err.close()
        assert self._leash.exited is not None, "the pump ends with the exit"
        return self._leash.exited

    def end(self, reason: str, ladder: Ladder, **why: Any) -> None:
        """End the run. The reason goes into the journal, so that a next daemon knows it; a second call only shortens.

        A CLI whose protocol has a word for it is asked first, in place of SIGINT and for as long; the rest of the ladder is
        for one that does not leave then.
        """
        if self._sink.turn.ending is None and not self._leash.ending:
            asked = self._decoder.interrupt() if is_polite(ladder) and self.terminal is None else None
            number = self._leash.take_id(self._decoded_to) if asked is not None else None
            message = Notice(code="ending", message=f"the run is being ended: {reason}")
            ending = {"reason": reason, **why} | ({"asked": reason} if number is not None else {})
            words = self._asking.last_words(self._decoder)
            self._batch += self._asking.give_up(ending)
            self.note(message, memo={"ending": ending})
            self._store_before_order()
            if asked is not None and number is not None:
                self._leash.say(number, asked + words)
                self._order_end(reason, ladder[1:], after_s=ladder[0][1])
                return
        self._order_end(reason, ladder)

    async def ready(self) -> None:
        """Wait until all that the CLI had said at the start is known again and something can be said, or the run has ended."""
        await self._leash.ready()

    def word(self, approval_id: str, answer: ApprovalAnswer) -> str | None:
        """How an answer is said to this CLI; None where it does not wait for one. Raises `UsageError(unsupported)`."""
        return self._decoder.answer(approval_id, answer)

    def resolved(self, event: ApprovalResolved) -> None:
        """An approval has its answer: the CLI goes on."""
        self.tracker.see(event)
        self.guard.phase_changed()

    async def say(self, text: str, item: Item, *, still: Callable[[], bool] = lambda: True) -> bool:
        """Journal `item`, then hand `text` (whole lines) to the CLI's stdin: once, also where the daemon dies in between.

        The text waits in a file until the CLI's stdin has it. False where the run has ended or it is not `still` wanted, and
        nothing was journaled.
        """
        await self._leash.ready()
        if not still():
            return False
        number = self._leash.take_id(self._decoded_to)
        if number is None:
            return False
        await self._surely(lambda: self._keep_said(number, text))
        self._batch.append(item._replace(memo={**(item.memo or {}), "say": number, "heard": self._heard}))
        await self._store()
        failpoint("say.journaled")
        self._leash.say(number, text)
        return True

    def _keep_said(self, number: int, text: str) -> None:
        with self._settings.storage.watched():
            self._dir.save_said(number, text)

    def _say_again(self) -> None:
        """What a daemon before this one had said. The keeper knows what of it the CLI has had."""
        for number in self._sink.turn.says:
            if (text := self._dir.load_said(number)) is not None:
                self._leash.say(number, text)

    def heard(self, number: int) -> None:
        """The CLI's stdin has every message up to this id: what was kept of them for a restart may go."""
        self._heard = max(self._heard, number)
        for said in self._sink.turn.says:
            if said <= number:
                self._dir.drop_said(said)

    def _store_before_order(self) -> None:
        """A daemon that dies right after the order leaves no other trace of who asked, and why. A full disk delays no end."""
        try:
            self._store_now()
        except WorldError:
            pass  # the pump tries again, and tells of it

    def _order_end(self, reason: str, ladder: Ladder, *, after_s: float = 0) -> None:
        self._sink.ending()
        self._leash.order_end(reason, ladder, after_s=after_s)

    def resumed(self, pause_s: float) -> None:
        """The machine was suspended: a new window, and a word in the journal."""
        self.guard.alive()
        self.guard.rearm()
        self.note(Notice(code="resumed", message=f"the machine was suspended for {pause_s:.0f} s; a new window begins"))

    # -- what the keeper says ----------------------------------------------------------------------------------------

    def grew(self) -> None:
        """There is something to read."""
        self._wake.set()

    def rearm(self) -> None:
        """A deadline may have come nearer."""
        self.guard.rearm()

    @property
    def cli_pid(self) -> int | None:
        """The CLI's own process."""
        return self._sink.turn.pid

    def unread(self) -> bool:
        """Are there bytes in the spool that nobody has read yet?"""
        return spool_size(self._dir.out) > self._out.reader.offset

    def spool_blocked(self, blocked: bool) -> None:
        """The keeper's disk is full, or no longer."""
        self._set_blocked("spool", blocked)

    def _set_blocked(self, by: str, blocked: bool) -> None:
        """A full disk is not the CLI's fault: its timers stand still until keeper and journal can write again."""
        was = bool(self._blocked_by)
        (self._blocked_by.add if blocked else self._blocked_by.discard)(by)
        now = bool(self._blocked_by)
        if now != was:
            self.tracker.blocked = now
            self.guard.phase_changed()
            self.note(_STORAGE_BLOCKED if now else _STORAGE_RECOVERED)

    # -- from bytes to the journal -----------------------------------------------------------------------------------

    async def _pump(self) -> None:
        """Read both spools to their ends, again and again, until the run has ended."""
        while True:
            last = self._leash.exited is not None
            self._wake = trio.Event()
            while await self._read_some():
                await trio.lowlevel.checkpoint()
            await self._store()
            self._caught_up()
            if last:
                break
            if self._leash.exited is None:
                await self._wake.wait()
        if (line := self._out.framer.close()) is not None:
            await self._take_out(line)
        if (line := self._err.framer.close()) is not None:
            self._take_err(line)
        await self._store()

    async def _read_some(self) -> bool:
        out = await self._surely(lambda: self._read(self._out))
        err = await self._surely(lambda: self._read(self._err))
        if out:
            lines = self._out.framer.feed(out)
            self._heartbeat = bool(lines) and not self._out.framer.pending
            for line in lines:
                await self._take_out(line)
            self.guard.alive(heartbeat=self._heartbeat)
        self._caught_up()
        for line in self._err.framer.feed(err):
            self._take_err(line)
        await self._store()
        return bool(out or err)

    def _caught_up(self) -> None:
        """Once all that was there at the start is decoded, the replies to it are in their places, and talking may begin."""
        if self._behind >= 0 and self._out.reader.offset >= self._behind:
            self._behind = -1
            self._leash.in_order()

    def _read(self, stream: Stream) -> bytes:
        with self._settings.storage.watched():
            return stream.read()

    async def _take_out(self, line: Line) -> None:
        if not line.data.strip() and not line.oversize:
            return
        decoded = self._decoder.decode(line)
        if self.terminal is not None and begins_turn(decoded.events):
            await self._begin_follow_up(self.terminal, line)
            decoded = self._decoder.decode(line)
        self._settings.frames.see(line, decoded.events)
        self._decoded_to = line.end
        self._answer(decoded.replies, line)
        self._heartbeat = self._heartbeat and _only_progress(decoded.events)
        if asks(decoded.events):
            await self._store()  # what is open is known by the journal
        for k, event in enumerate(decoded.events):
            if self._asking.is_news(event):
                self._take_event(event, line, k)
        self.tracker.background = self._decoder.background
        if decoded.terminal is not None and self.terminal is None:
            self.terminal = decoded.terminal
            self.tracker.finish()
        if asks(decoded.events):
            await self._store()
            self._asking.put(decoded.events)
        self.guard.phase_changed()

    def _answer(self, replies: Sequence[Reply], line: Line) -> None:
        """Say it on the CLI's stdin. Lines decoded again after a restart give the same ids, which the keeper takes once."""
        if text := "".join(reply for reply in replies if isinstance(reply, str)):
            self._leash.say(stdin_id(line.end), text)
        if END_OF_INPUT in replies:
            self._leash.say(stdin_id(line.end, END_SLOT), None)

    def _take_event(self, event: EventBase, line: Line, k: int) -> None:
        if not self.tracker.started:
            self._sink.first_frame()
        self.tracker.see(event)
        if not self._journaled("out", line, k):
            src = Source(self._settings.number, "out", line.start, line.end, k)
            limit = self._settings.limits.inline_bytes
            small, blobs = spill(event, run=src.run, spool="out", line=line, k=k, limit=limit)
            self._blobs += blobs
            self._batch.append(Item(small, self._sink.turn.id, src=src))
        self._judge(event)

    async def _begin_follow_up(self, terminal: Terminal, line: Line) -> None:
        """The CLI goes on by itself after its last word: that turn is over, and this is a new one."""
        await self._store()
        err_offset = self._err.framer.offset - self._err.framer.pending
        self._batch += await self._surely(
            lambda: self._sink.split(terminal, line, err_offset, self._decoder.background)
        )
        await self._store()
        self.terminal = None
        self.tracker.follow_up()
        self.guard.new_turn()
        self._decoder = self._adapter.decoder(self._sink.carried, self._settings.request)

    def _take_err(self, line: Line) -> None:
        turn = self._sink.turn
        if (
            self._journaled("err", line)
            or turn.stderr_events + self._pending_err() > self._settings.limits.stderr_events
        ):
            return
        src = Source(self._settings.number, "err", line.start, line.end, 0)
        if turn.stderr_events + self._pending_err() == self._settings.limits.stderr_events:
            text = f"more than {self._settings.limits.stderr_events} lines on stderr; the rest is in {self._dir.err}"
        else:
            # Redacted before it is cut, or half a secret would stay at the end.
            text = self._redact(line.data[: 16 * STDERR_TEXT_LIMIT].decode("utf-8", "replace"))[:STDERR_TEXT_LIMIT]
        self._batch.append(Item(StderrLine(text=text), turn.id, src=src))

    def _pending_err(self) -> int:
        return sum(isinstance(item.event, StderrLine) for item in self._batch)

    def _journaled(self, spool: str, line: Line, k: int = 0) -> bool:
        """Is this event in the journal already?"""
        at = self._sink.turn.position.get(spool)
        return at is not None and (line.end < at.end or (line.end == at.end and k <= at.k))

    async def _store(self) -> None:
        """Journal the batch, its blobs first."""
        while self._batch:
            await self._surely(self._store_now)

    def _store_now(self) -> None:
        with self._settings.storage.watched():
            for blob in self._blobs:
                self._dir.save_blob(blob.name, blob.data)
        self._sink.record(self._batch)
        self._batch = []
        self._blobs = []

    async def _surely(self, action: Callable[[], T]) -> T:
        """Do it; while the disk refuses, wait with frozen timers rather than lose or skip."""
        while True:
            try:
                done = action()
            except WorldError as error:
                if not self._blocked_by:
                    _log.error("turn waits for the disk", session=self._settings.session_id, error=str(error))
                self._set_blocked("journal", True)
                await trio.sleep(STORAGE_RETRY_S)
            else:
                self._set_blocked("journal", False)
                return done

    # -- what the daemon makes of it ---------------------------------------------------------------------------------

    def _judge(self, event: EventBase) -> None:
        """Endings that the CLI would drag out, and answers from a session that nobody asked for."""
        if self._sink.turn.ending is not None or self._leash.ending or self.terminal is not None:
            return
        if isinstance(event, BackendRetry) and (error := out_of_patience(event, self._patience)) is not None:
            self._end_soon(f"retry:{error.kind}", error)
        elif isinstance(event, SessionInit) and (
            error := wrong_session(event.native_session_id, self._settings.request.native_session_id)
        ):
            self._end_soon("wrong_session", error)

    def _end_soon(self, reason: str, error: TurnError) -> None:
        said = error.model_dump(mode="json", exclude_none=True)
        self.end(reason, ladder_for("term", self._settings.timeouts), error=said)

    def note(self, event: EventBase, memo: dict[str, Any] | None = None) -> None:
        """A word of the daemon's own, journaled by the pump: it waits there while the disk is full, as all events do."""
        self._batch.append(Item(event, self._sink.turn.id, memo=memo))
        self._wake.set()


def _only_progress(events: Sequence[EventBase]) -> bool:
    return bool(events) and all(isinstance(event, ToolProgress) for event in events)
