"""One CLI process as the daemon sees it: its two spools, its decoder and its watchdog; `Leash` holds its keeper.

The same code serves a run just started and one adopted after a restart. What was journaled before is decoded again in
silence, up to the last place that the journal names; from there on every event is journaled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast
from weakref import proxy

import msgspec
import trio
from msgspec.structs import replace

from clisup.backends.base import (
    Adapter,
    Control,
    ControlAnswer,
    Decoded,
    Decoder,
)
from clisup.daemon.approvals.questions import Asking, asks
from clisup.daemon.runs.batch import Batch
from clisup.daemon.runs.control_requests import Answers
from clisup.daemon.runs.keeper_link import Leash
from clisup.daemon.runs.long_lines import readable
from clisup.daemon.runs.pace import TimeSlice
from clisup.daemon.runs.run_limits import Judge
from clisup.daemon.runs.run_parts import FOLLOW_UP_FIRST, STORAGE_BLOCKED, STORAGE_RECOVERED, RunSettings, RunSink
from clisup.daemon.runs.spool_reader import Intake
from clisup.daemon.runs.spool_stream import Stream
from clisup.daemon.runs.stderr import Stderr
from clisup.daemon.runs.stdin_messages import Speech
from clisup.daemon.runs.termination import Ending
from clisup.daemon.runs.unparsed import UnparsedLines
from clisup.daemon.runs.watchdog import Guard
from clisup.daemon.sessions.recorder import Item
from clisup.daemon.sessions.turn_recorder import Place
from clisup.model.events import BackendStatus, EventBase, Notice, SessionInit
from clisup.model.journal import Source
from clisup.model.lines.framing import Line
from clisup.model.sessions.ledger import Turn
from clisup.model.terminal import Terminal, begins_turn, sum_of
from clisup.model.verdict import ExitRecord
from clisup.ops.drift import FrameSample
from clisup.policy.ladder import Ladder, ladder_for
from clisup.policy.secrets.redact import Redactor
from clisup.policy.spill import spill
from clisup.policy.watchdog import PhaseTracker, Timeouts, only_heartbeats
from clisup.store.session_dir import RunDir
from clisup.store.spool import spool_size

__all__ = ["Run", "RunSettings"]


class Run:
    """Drives one run to its end: `drive` gives the exit record after every byte of both spools was journaled."""

    def __init__(
        self, sink: RunSink, run_dir: RunDir, adapter: Adapter, settings: RunSettings, redact: Redactor
    ) -> None:
        self._sink = sink
        self._dir = run_dir
        self._adapter = adapter
        self._settings = settings
        self._decoder: Decoder = adapter.decoder(sink.carried, settings.request)
        self._out = Stream(run_dir.out, sink.turn.begin["out"], settings.limits.line_bytes)
        me = cast("Run", proxy(self))  # its parts know it and must not keep it: searches for garbage in cycles are rare
        self._batch = Batch(sink, run_dir, settings.storage, lambda blocked: me._blocked(blocked))  # noqa: PLW0108
        limits, begin = settings.limits, sink.turn.begin["err"]
        self._err = Stderr(run_dir.err, begin, limits.line_bytes, run=settings.number, max_events=limits.stderr_events,
                           redact=redact, batch=self._batch, turn=lambda: sink.turn)  # fmt: skip
        self._decoded_to = self._sink.turn.begin["out"]
        self._plain_bytes = min(limits.inline_bytes, limits.line_values)  # no payload is longer, and no values are more
        # Up to where it is now, nothing is news: it is decoded before anything is said.
        behind = spool_size(run_dir.out)
        self._intake = Intake(me, self._out, self._err, self._batch, settings.storage, settings.pace, behind=behind)
        self._heartbeat = False  # what was read last held nothing but heartbeats of a tool
        self._unparsed = UnparsedLines(limits.unparsed_events)
        self._judge_of = Judge(settings.limits, settings.request.native_session_id)
        self._leash = Leash(me, run_dir, settings.session_id, settings.number, settings.storage, settings.own,
                            settings.orphans)  # fmt: skip
        self._speech = Speech(me, run_dir, self._leash, self._batch)
        self._ending = Ending(me, self._leash, self._batch, settings.timeouts, live=settings.request.live)
        self._live = settings.request.live
        self._unseen = True  # the session has not been told of the turn's first frame
        self._answers = Answers()
        self._words: list[
            Terminal
        ] = []  # the CLI's last words on the turn so far: one more for each time that it goes on
        self._waits = False  # the turn of a live process has its last word, and goes on until the CLI is idle
        self._given_up: frozenset[str] = frozenset()  # prompts that the CLI has taken back since it was idle
        self.used_before = self._decoded_to > 0  # a turn has ended in this process
        self.spoke = False  # the CLI has said something of the turn
        self.tracker = PhaseTracker(started=self.used_before, background=self._decoder.background)
        if self._live and not sink.turn.id:
            self.tracker.rest()
        self.guard = Guard(me, self._leash, self.tracker, settings.timeouts, settings.limits)
        most, changed = limits.open_approvals, self.guard.phase_changed
        self.asking = Asking(sink, self.tracker, self._leash, lambda: me._decoder, changed, most)
        self.terminal: Terminal | None = None

    @property
    def keeper_pid(self) -> int | None:
        """The keeper's pid, as it said in hello; None before the first link."""
        return self._leash.keeper_pid

    @property
    def number(self) -> int:
        """The run's number in its session."""
        return self._settings.number

    @property
    def ending(self) -> bool:
        """It is being ended as a whole; a turn of a live process can be ended without that."""
        return self._ending.retired is not None or (self._leash.ending and self._leash.order_is_due)

    @property
    def frames(self) -> FrameSample:
        """What it said, for the watch over drift."""
        return self._settings.frames

    # -- the run as a whole ------------------------------------------------------------------------------------------

    async def drive(self) -> ExitRecord:
        """Follow the run until it has ended and everything it said is journaled."""
        self._ending.resume()
        await self._batch.surely(self._speech.repeat)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._leash.listen)
                nursery.start_soon(self._leash.talk)
                nursery.start_soon(self._ending.when_ready)
                nursery.start_soon(self.guard.watch)
                nursery.start_soon(self.guard.weigh)
                nursery.start_soon(self._sink.attend, self)
                await self._pump()
                nursery.cancel_scope.cancel()
        finally:
            self._answers.close()
            self._leash.give_up()
            await self._leash.aclose()
            self._out.close()
            self._err.close()
        assert self._leash.exited is not None, "the pump ends with the exit"
        return self._leash.exited

    def end(self, reason: str, ladder: Ladder, **why: Any) -> None:
        """End the turn that runs, and with it the run where it serves one turn or does not listen."""
        self._ending.end(reason, ladder, **why)

    def renew(self, timeouts: Timeouts) -> None:
        """Other limits between two turns of a live process, for the rest and for what comes after it."""
        self._ending.renew(timeouts)
        self.guard.renew(timeouts)

    def retire(self, reason: str) -> None:
        """Let a live process go that waits for its next turn."""
        self._ending.retire(reason)

    def polite_word(self) -> str | None:
        """How to ask the CLI, in its own protocol, to end its turn; None where only signals do that, or there is no turn."""
        word = self._decoder.interrupt() if self.terminal is None and self._sink.turn.id else None
        return None if word is None else word + self.asking.last_words()

    def give_up(self, ending: dict[str, Any]) -> None:
        """The turn is being ended: what its CLI asks is not waited for any longer."""
        for item in self.asking.give_up(ending):
            self._batch.add(item)

    async def say(self, text: str, item: Item, ready: Callable[[], bool] = lambda: True) -> bool:
        """Journal `item`, then hand `text` (whole lines) to the CLI's stdin: once, also where the daemon dies in between.

        The text waits in a file until the CLI's stdin has it. False where the run has ended, or `ready` says no in the last
        moment; then nothing has happened.
        """
        return await self._speech.say(text, lambda: item, ready)

    async def begin_turn(self, item: Item, text: str, ready: Callable[[], bool]) -> bool:
        """Begin another turn of a live process: journal `item`, its start, and hand over its prompt, as `say` does.

        False where the run has ended or `ready` says no in the last moment; then nothing has happened.
        """

        def place() -> Item:
            return replace(item, memo={**(item.memo or {}), "begin": self._place()})

        if not await self._speech.say(text, place, ready):
            return False
        self._renew(seen=False)
        return True

    async def ask(self, request_id: str, control: Control, value: str | None) -> ControlAnswer | None:
        """Ask a live CLI for something, and wait for its answer; None where the run has ended or knows no such word."""
        text = self._decoder.control(request_id, control, value)
        item = Item(Notice(code="asked", message=f"the CLI is asked for: {control}"), self._sink.turn.id)
        return await self._answers.ask(request_id, lambda: self.say(text, item)) if text is not None else None

    @property
    def says(self) -> list[list[Any]]:
        """What was said, as the ledger knows it: [id, name of the text's file]."""
        return self._sink.turn.says

    @property
    def decoded_to(self) -> int:
        """The end of the last stdout line that was decoded."""
        return self._decoded_to

    def record(self, item: Item) -> None:
        """Journal one item at once. Raises `WorldError(storage_failed)`."""
        self._sink.record([item])

    def heard(self, number: int) -> None:
        """The CLI's stdin has every message up to this id."""
        self._speech.heard(number)

    @property
    def turn(self) -> Turn:
        """The turn that runs; between two turns of a live process, one without an id."""
        return self._sink.turn

    def turn_ends(self) -> None:
        """The turn is being ended."""
        self._sink.ending()

    def resumed(self, pause_s: float) -> None:
        """The machine was suspended: a new window, and a word in the journal."""
        self.guard.alive()
        self.guard.rearm()
        text = f"the machine was suspended for {pause_s:.0f} s; a new window begins"
        self.note(Notice(code="resumed", message=text, data={"pause_s": round(pause_s, 3)}))

    # -- what the keeper says ----------------------------------------------------------------------------------------

    def grew(self) -> None:
        """There may be something to read."""
        self._intake.grew()

    async def take(self, out_size: int, err_size: int) -> None:
        """There is something to read."""
        await self._intake.take(out_size, err_size)

    def rearm(self) -> None:
        """A deadline may have come nearer."""
        self.guard.rearm()

    @property
    def cli_pid(self) -> int | None:
        """The CLI's own process."""
        return self._sink.turn.pid

    def unread(self) -> bool:
        """Are there bytes in the spool that nobody has read yet?"""
        return self._out.waits or spool_size(self._dir.out) > self._out.reader.offset

    def spool_blocked(self, blocked: bool) -> None:
        """The keeper's disk is full, or no longer."""
        self._batch.blocked("spool", blocked)

    def _blocked(self, blocked: bool) -> None:
        """A full disk is not the CLI's fault: its timers stand still until keeper and journal can write again."""
        self.tracker.blocked = blocked
        self.guard.phase_changed()
        self.note(STORAGE_BLOCKED if blocked else STORAGE_RECOVERED)

    # -- from bytes to the journal -----------------------------------------------------------------------------------

    async def _pump(self) -> None:
        """Take both spools to their ends, until the run has ended; then what had no newline."""
        await self._intake.pump(lambda: self._leash.exited is not None)
        if (line := self._out.framer.close()) is not None:
            await self._take_out(await readable(line, self._decoder, self._settings.limits))
        self._err.finish()
        await self._batch.store()

    async def take_bytes(self, data: bytes, step: TimeSlice) -> None:
        """Cut the data and take lines until the step is over. `data` is empty while lines wait."""
        out = self._out
        if data:
            out.cut(data)
        self._heartbeat = out.waits and not out.framer.pending
        while out.waits:
            chunk = self._decoder.decode_chunk(out.chunk(self._plain_bytes) if self._is_midway else ())
            if chunk.told:
                self._take_told(chunk.told)
                out.passed(len(chunk.told))
            if chunk.line is not None and chunk.decoded is not None:
                await self._take_line(chunk.line, chunk.decoded)
                out.passed(1)
            elif not chunk.told:
                await self._take_out(await readable(out.next(), self._decoder, self._settings.limits))
                out.passed(1)
            if step.is_over:
                break
        self.guard.alive(heartbeat=self._heartbeat)

    def caught_up(self) -> None:
        """All that was there at the start is decoded, so the replies to it are in their places, and talking may begin."""
        self._leash.in_order()

    @property
    def _is_midway(self) -> bool:
        """Tell whether a line may need no decision: the turn has spoken and has not ended.

        The turn's first frame changes the session's state. A live process may begin a turn by itself, or wait for the end.
        """
        if self._unseen or not self.spoke or self._waits or self.terminal is not None:
            return False
        turn = self._sink.turn
        return not self._live or bool(turn.id and not turn.ending)

    def _take_told(self, told: Sequence[tuple[Line, Sequence[EventBase]]]) -> None:
        """Journal the events of lines that need no decision."""
        turn, run, items = self._sink.turn, self._settings.number, []
        known = turn.has_journaled("out", told[0][0].start + 1)
        see, sample = self.tracker.see, self._settings.frames.see
        for line, events in told:
            sample(line, events)
            for k, event in enumerate(events):
                see(event)
                if type(event) is BackendStatus:
                    self._judge(event)
                if not known or not turn.has_journaled("out", line.end, k):
                    items.append(Item(event, turn.id, Source(run, "out", line.start, line.end, k)))
        self._batch.extend(items)
        self._decoded_to, self._heartbeat = told[-1][0].end, False
        self.tracker.background = self._decoder.background
        if self._live:
            self._given_up |= self._decoder.given_up
        self.guard.phase_changed()

    async def _take_out(self, line: Line) -> None:
        if not line.is_blank:
            await self._take_line(line, self._decoder.decode(line))

    async def _take_line(self, line: Line, decoded: Decoded) -> None:
        if begins_turn(decoded.events) and await self._goes_on(line, decoded.events):
            decoded = self._decoder.decode(line)
        self._settings.frames.see(line, decoded.events)
        self._decoded_to = line.end
        if decoded.replies:
            self._leash.reply(decoded.replies, line.end)
        if self._live and begins_turn(decoded.events[:1]):
            self._ending.insist()
        self._answers.take(decoded.answers)
        self._heartbeat = self._heartbeat and only_heartbeats(decoded.events)
        if asked := asks(decoded.events):
            await self._batch.store()  # what is open is known by the journal
        for k, event in enumerate(decoded.events):
            if self.asking.is_news(event):
                self._take_event(event, line, k)
        if asked:
            await self._batch.store()
            self._put(decoded.events)
        self.spoke = self.spoke or bool(decoded.events)
        self.tracker.background = self._decoder.background
        if decoded.terminal is not None:
            await self._last_word(decoded.terminal, line)
        if self._live:
            await self._note_idle(line)
        self.guard.phase_changed()

    def _put(self, questions: Sequence[EventBase]) -> None:
        """Put the questions of a line, and end a run that has too many of them."""
        self.asking.put(questions)
        if self.asking.too_many and self._sink.turn.ending is None and not self._leash.ending:
            self.end("approvals", ladder_for("term", self.guard.timeouts))

    async def _note_idle(self, line: Line) -> None:
        if self._waits:
            self.tracker.wait()
        idle = self._decoder.idle
        self._given_up |= self._decoder.given_up
        if idle and self._waits:
            if self._sink.turn.ending:  # what it has said is no answer to its background work, which was stopped
                self._words.append(replace(self._words.pop(), is_error=True, interrupted=True, text=""))
            await self._end_turn(self._place(line, after=True))
        if idle and not self._sink.turn.id:
            for item in self._sink.idle(self._given_up):
                self._batch.add(item)
            self._given_up = frozenset()

    def _take_event(self, event: EventBase, line: Line, k: int) -> None:
        if self._unseen and self._sink.turn.id:
            self._unseen = False
            self._sink.first_frame()
        self.tracker.see(event)
        self._unparsed.count(event)
        if not self._sink.turn.has_journaled("out", line.end, k):
            src = Source(self._settings.number, "out", line.start, line.end, k)
            item = Item(event, self._sink.turn.id, src=src)
            if not self._unparsed.fold(item, self._batch):
                limit = self._settings.limits.inline_bytes
                small, blobs = spill(event, run=src.run, spool="out", line=line, k=k, limit=limit)
                self._batch.add(replace(item, event=small) if small is not event else item, blobs)
        self._judge(event)

    # -- turns of one process ------------------------------------------------------------------------------------------

    async def _goes_on(self, line: Line, events: Sequence[EventBase]) -> bool:
        """Note that the CLI asks its model again. Return whether it begins another turn, which is journaled then.

        A process that serves one turn goes on with that turn. So does a live one that waits for its background work, unless
        it begins with another prompt.
        """
        prompts = self._decoder.prompts
        if self._waits and prompts and any(isinstance(event, SessionInit) for event in events):
            await self._end_turn(self._place(line))
        if not self._live or self._sink.turn.id:
            if self._waits or self.terminal is not None:
                self._waits, self.terminal = False, None
                self.tracker.follow_up()
            return False
        starts = self._sink.begins(self._place(line), self._decoder.background, prompts)
        await self._batch.store()
        for item in starts:
            self._batch.add(item)
        await self._batch.store()
        self._ending.turn_began()
        self._sink.began()
        self._renew(seen=False)
        return True

    async def _last_word(self, terminal: Terminal, line: Line) -> None:
        """The CLI's last word on a turn, for all that is known now."""
        turn = self._sink.turn
        if not self._live:
            self._words.append(terminal)
            self.terminal = sum_of(self._words)
            self.tracker.finish()
            return
        if not turn.id:
            return
        self._words.append(terminal)
        if turn.origin == "prompt" and all(word.follow_up for word in self._words):
            # It had begun a follow-up of its own in the very moment in which it was handed a prompt, which comes next.
            if not turn.has_journaled("out", line.end):
                self.note(FOLLOW_UP_FIRST)
        elif self._decoder.ends_when_idle:
            self._waits = True
        else:
            await self._end_turn(self._place(line, after=True))

    async def _end_turn(self, place: Place) -> None:
        """Journal the end of a turn of a live process, which rests from here on."""
        await self._batch.store()
        whole = sum_of(self._words)
        self._words, self._waits = [], False
        for item in await self._batch.surely(lambda: self._sink.over(whole, place, self._decoder.background)):
            self._batch.add(item)
        await self._batch.store()
        self._ending.turn_over()
        self.used_before = True
        self.tracker.rest()
        self._renew(seen=True)
        self._sink.rested()

    def _place(self, line: Line | None = None, *, after: bool = False) -> Place:
        """Where both spools are, with all that was decoded behind it; before a line, or after it."""
        out = self._decoded_to if line is None else line.end if after else line.start
        return {"out": out, "err": self._err.place}

    def _renew(self, *, seen: bool) -> None:
        """Another turn, or the rest after one, begins: its own decoder, its own time."""
        if not seen:
            self.tracker.follow_up()
        self._unseen, self.spoke = not seen, False
        self._unparsed.new_turn()
        self._decoder = self._adapter.decoder(self._sink.carried, self._settings.request)
        self.guard.new_turn()

    # -- what the daemon makes of it ---------------------------------------------------------------------------------

    def _judge(self, event: EventBase) -> None:
        """Endings that the CLI would drag out, and answers from a session that nobody asked for."""
        if self._sink.turn.ending is not None or self._leash.ending or self.terminal is not None:
            return
        if (fault := self._judge_of.fault(event)) is not None:
            said = msgspec.to_builtins(fault.error)
            self.end(fault.reason, ladder_for("term", self.guard.timeouts), error=said)

    def note(self, event: EventBase, memo: dict[str, Any] | None = None) -> None:
        """A word of the daemon's own, journaled by the pump: it waits there while the disk is full, as all events do."""
        self._batch.add(Item(event, self._sink.turn.id, memo=memo))
        self._intake.wake()
