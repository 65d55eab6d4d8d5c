"""Run of a CLI process in the daemon: two spools, a decoder, a watchdog and the link to the keeper.

The same code serves a new run and a run that is adopted after a restart. From its last checkpoint on, the run decodes
journaled output again without journaling, up to the last place in the journal. The run journals every later event.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import trio
from msgspec.structs import replace

from clisup.backends.base import Adapter, Control, ControlAnswer, Decoded, Decoder, LaunchRequest
from clisup.daemon.journal.recorder import Item
from clisup.daemon.runs.batch import Batch, UnparsedLines
from clisup.daemon.runs.checkpoint import Checkpoint, Checkpoints
from clisup.daemon.runs.keeper_link import KeeperLink
from clisup.daemon.runs.reader import SpoolLines, SpoolReader, readable
from clisup.daemon.runs.requests import ApprovalRequests, has_approvals
from clisup.daemon.runs.run_limits import RunLimits
from clisup.daemon.runs.run_parts import (
    BEHIND_LINE,
    FOLLOW_UP_FIRST,
    STORAGE_BLOCKED,
    STORAGE_RECOVERED,
    RunSettings,
    RunSink,
)
from clisup.daemon.runs.stderr import StderrEvents
from clisup.daemon.runs.stdin_messages import ControlRequests, StdinMessages
from clisup.daemon.runs.termination import Termination
from clisup.daemon.runs.watchdog import WatchdogTask
from clisup.host import clock
from clisup.model.events import BackendStatus, EventBase, Notice, SessionInit
from clisup.model.journal import Source
from clisup.model.lines.framing import Line
from clisup.model.sessions.ledger import TurnRecord
from clisup.model.sessions.turn_state import SpoolPlace, Told, TurnEnding, TurnState
from clisup.model.verdict import ExitRecord, Terminal, begins_turn, behind, sum_of
from clisup.ops.drift import FrameSample
from clisup.policy.secrets.redact import Redactor
from clisup.policy.spill import spill
from clisup.policy.watchdog import Ladder, PhaseTracker, TurnTimeouts, ladder_for, only_heartbeats
from clisup.store.session_dir import RunDir
from clisup.store.spool import spool_size

__all__ = ["Run", "RunSettings"]


class Run:
    """Run of one CLI process. `drive` follows the process to the end, journals all output and returns the exit record."""

    def __init__(
        self, sink: RunSink, run_dir: RunDir, adapter: Adapter, settings: RunSettings, redact: Redactor
    ) -> None:
        self._sink, self._dir, self._adapter, self._settings = sink, run_dir, adapter, settings
        self._request, self._live, limits = settings.request, settings.request.live, settings.limits
        self._checkpoints = Checkpoints(run_dir)
        self._decoder: Decoder = adapter.decoder(sink.carried, self._request)
        at = self._checkpoints.load(sink.turn, self._decoder)
        self._out = SpoolLines(run_dir.out, at.place["out"], limits.line_bytes)
        self._err = SpoolLines(run_dir.err, at.place["err"], limits.line_bytes)
        self._batch = Batch(sink.record, run_dir, settings.storage, self._blocked)
        self._stderr = StderrEvents(self._batch, lambda: sink.turn, redact, run_dir, limits.stderr_events)
        self._decoded_to = at.place["out"]
        self._plain_bytes = min(limits.inline_bytes, limits.line_values)  # a line of this size exceeds neither limit
        self._reader = SpoolReader(
            self._out, self._err, self._stderr, self._batch, settings.storage, settings.read_turns,
            take_bytes=self.take_bytes, stored=self._stored, caught_up=self._caught_up, behind=spool_size(run_dir.out),
        )  # fmt: skip
        self._keeper = KeeperLink(
            run_dir, settings.session_id, settings.number, settings.storage, settings.own, settings.orphans,
            on_output=self._reader.take, on_change=self.check_spools, on_connected=self._rearm,
            on_blocked=partial(self._batch.set_blocked, "spool"), on_acknowledged=self._acknowledged,
        )  # fmt: skip
        self._heartbeat = False  # the last read held only heartbeats of a tool
        self._unparsed = UnparsedLines(limits.unparsed_events, at.unparsed)
        self._limits = RunLimits(settings.limits, settings.request.native_session_id, reset=at.reset)
        self.spoke = at.tracker is not None  # the CLI has printed something of the turn
        self._unseen = not self.spoke  # the session does not know the turn's first frame yet
        self._terminals: list[Terminal] = []  # terminal frames of the turn; each follow-up adds another
        self._waits = False  # the live process has reported the turn's end, but the end counts once the CLI is idle
        self._given_up: frozenset[str] = frozenset()  # prompts that the CLI dropped since its last idle state
        self.used_before = sink.turn.begin["out"] > 0  # an earlier turn has ended in this process
        self.terminal: Terminal | None = None
        self.tracker = at.tracker or PhaseTracker(self.used_before)
        self.tracker.follow(*self._decoder.open_work)
        if self._live and not sink.turn.id:
            self.tracker.rest()
        self._stdin = StdinMessages(sink, run_dir, self._keeper, self._batch, lambda: self._decoded_to)
        self.termination = Termination(
            sink, self._keeper, self._batch, self._stdin, settings.timeouts, live=self._live, note=self.note,
            interrupt_message=self._interrupt_message, cancel_approvals=self._cancel_approvals, told=self._told, tracker=self.tracker,
        )  # fmt: skip
        self.watchdog = WatchdogTask(
            sink, self._keeper, self.termination, self.tracker, settings.timeouts, limits, tells_work=adapter.tells_work,
            note=self.note, has_unread=self._has_unread, read=self.check_spools, settle=partial(self._reader.between_steps, self._settle),
        )  # fmt: skip
        self.requests = ApprovalRequests(
            sink, self.tracker, self._keeper, lambda: self._decoder, self.watchdog.phase_changed, limits.open_approvals
        )
        self._controls = ControlRequests()

    @property
    def keeper_pid(self) -> int | None:
        """Return the keeper's pid from its hello, or None before the first connection."""
        return self._keeper.keeper_pid

    @property
    def number(self) -> int:
        """Return the run's number in its session."""
        return self._settings.number

    @property
    def live(self) -> bool:
        """Tell whether the process serves many turns."""
        return self._live

    @property
    def resumes_session(self) -> bool:
        """Tell whether the process began with an existing native session."""
        return self._settings.request.resume

    @property
    def ending(self) -> bool:
        """Tell whether the whole run is being ended. The daemon can also end a single turn of a live process."""
        return self.termination.retired is not None or (self._keeper.ending and self._keeper.order_is_due)

    @property
    def frames(self) -> FrameSample:
        """Return the sample of frames for drift detection."""
        return self._settings.frames

    @property
    def turn(self) -> TurnRecord:
        """Return the running turn. Between two turns of a live process the turn has no id."""
        return self._sink.turn

    # -- the run as a whole ------------------------------------------------------------------------------------------

    async def drive(self, *tasks: Callable[[Run], Awaitable[None]]) -> ExitRecord:
        """Follow the run until the process has ended and all output is journaled. `tasks` run meanwhile."""
        if self.spoke:  # from a checkpoint
            self._sink.first_frame()
            self.watchdog.phase_changed()
        if (why := self._checkpoints.damage) is not None:
            text = f"the turn is decoded from its start, because its checkpoint cannot be used: {why}"
            self.note(Notice(code="checkpoint_ignored", message=text, data={"why": why}))
        self.termination.resume()
        await self._batch.with_retry(self._stdin.repeat)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keeper.listen)
                nursery.start_soon(self._keeper.deliver)
                nursery.start_soon(self.termination.send_when_ready)
                nursery.start_soon(self.watchdog.watch)
                nursery.start_soon(self.watchdog.check_limits)
                for task in tasks:
                    nursery.start_soon(task, self)
                await self._pump()
                nursery.cancel_scope.cancel()
        finally:
            self._controls.close()
            self._keeper.give_up()
            await self._keeper.aclose()
            self._out.close()
            self._err.close()
        assert self._keeper.exited is not None, "the pump ends with the exit"
        return self._keeper.exited

    def end(self, reason: str, ladder: Ladder, **why: Any) -> None:
        """End the running turn. Also end the whole run if the run serves one turn or does not obey."""
        self.termination.end(reason, ladder, **why)

    def set_timeouts(self, timeouts: TurnTimeouts) -> None:
        """Change the timers of a live process between two turns."""
        self.termination.set_timeouts(timeouts)
        self.watchdog.set_timeouts(timeouts)

    def _interrupt_message(self) -> str | None:
        """Return the request to end the turn in the CLI's protocol. None without a turn, or if only signals end a turn."""
        message = self._decoder.interrupt() if self.terminal is None and self._sink.turn.id else None
        return None if message is None else message + self.requests.cancellations()

    def _told(self) -> Told:
        """Return how far the CLI has come with the turn."""
        if self.terminal is not None:
            return "end"
        return "answer" if self.tracker.answer_is_whole else "part"

    def _cancel_approvals(self, ending: TurnEnding) -> None:
        for item in self.requests.cancel(ending):
            self._batch.add(item)

    async def send(self, text: str, item: Item, ready: Callable[[], bool] = lambda: True) -> bool:
        """Journal `item`, then send `text` (whole lines) to the CLI once, even if the daemon dies in between.

        Return False, without any effect, if the run has ended or `ready` refuses at the last moment.
        """
        return await self._stdin.send(text, lambda: item, ready)

    async def begin_turn(self, item: Item, text: str, request: LaunchRequest, ready: Callable[[], bool]) -> bool:
        """Begin another turn of a live process: journal the start (`item`) and send the prompt, as `send` does.

        The decoder of the turn reads by `request`.
        """

        def with_place() -> Item:
            return replace(item, memo={**(item.memo or {}), "begin": self._place()})

        if not await self._stdin.send(text, with_place, ready):
            return False
        self._request = request
        self._new_turn(seen=False)
        return True

    def steer_text(self, later: str, request: LaunchRequest) -> str | None:
        """Return text to send a prompt into the running turn, or None while the turn takes none. As `Decoder.steer`."""
        return self._decoder.steer(later, request) if self._sink.turn.id else None

    async def request(self, request_id: str, control: Control, value: str | None) -> ControlAnswer | None:
        """Send a control request to a live CLI. Return None if the run has ended or the CLI has no such request."""
        text = self._decoder.control(request_id, control, value)
        item = Item(Notice(code="asked", message=f"the CLI is asked for: {control}"), self._sink.turn.id)
        return await self._controls.request(request_id, lambda: self.send(text, item)) if text is not None else None

    def resumed(self, pause_s: float) -> None:
        """Begin a new window after a suspend of the machine, and journal a notice."""
        self.watchdog.alive()
        self.watchdog.rearm()
        text = f"the machine was suspended for {pause_s:.0f} s; a new window begins"
        self.note(Notice(code="resumed", message=text, data={"pause_s": round(pause_s, 3)}))

    # -- messages of the keeper --------------------------------------------------------------------------------------

    def check_spools(self) -> None:
        """Check for new output and for the exit."""
        self._reader.check_both()

    def _rearm(self) -> None:
        self.watchdog.rearm()

    def _acknowledged(self, number: int) -> None:
        self._stdin.acknowledged(number)

    def _caught_up(self) -> None:
        """Begin to send. All earlier output is decoded, so its replies are queued in order."""
        self._keeper.in_order()

    def _has_unread(self) -> bool:
        return bool(self._out.waiting) or spool_size(self._dir.out) > self._out.offset

    def _blocked(self, blocked: bool) -> None:
        """Stop the CLI's timers while the keeper or the journal cannot write."""
        self.tracker.blocked = blocked
        self.watchdog.phase_changed()
        self.note(STORAGE_BLOCKED if blocked else STORAGE_RECOVERED)

    # -- from bytes to the journal -----------------------------------------------------------------------------------

    async def _pump(self) -> None:
        """Read both spools until the run has ended. Then take last lines without a newline."""
        await self._reader.pump(lambda: self._keeper.exited is not None)
        if (line := self._out.framer.close()) is not None:
            await self._take_out(await readable(line, self._decoder, self._settings.limits))
        if (line := self._err.framer.close()) is not None:
            self._stderr.take(line)
        await self._settle()

    async def _settle(self) -> None:
        """Take the end of a turn whose CLI has told the end, and gives no sign that its answer is whole."""
        if (decoded := self._decoder.settle()) is not None:
            place = self._decoded_to
            await self._take_line(Line(place, place, b""), decoded, first=BEHIND_LINE)
        await self._batch.store()

    async def take_bytes(self, data: bytes, until: float) -> None:
        """Cut the data into lines and take lines until the time `until`. `data` is empty while lines wait."""
        out = self._out
        if data:
            out.cut(data)
        self._heartbeat = bool(out.waiting) and not out.framer.pending
        while out.waiting:
            turn = self._sink.turn
            chunk = self._decoder.decode_chunk(out.chunk(self._plain_bytes) if self._is_midway(turn) else ())
            if chunk.told:
                self._take_plain(chunk.told, turn)
                for _ in chunk.told:
                    out.waiting.popleft()
            if chunk.line is not None and chunk.decoded is not None:
                await self._take_line(chunk.line, chunk.decoded)
                out.waiting.popleft()
            elif not chunk.told:
                await self._take_out(await readable(out.waiting[0], self._decoder, self._settings.limits))
                out.waiting.popleft()
            if clock.monotonic() >= until:
                break
        self.watchdog.alive(heartbeat=self._heartbeat)

    def _stored(self) -> None:
        """Write a checkpoint if one is due, and if nothing but its parts has a state: nothing waits, and nothing ends."""
        if self._decoded_to < self._checkpoints.due_at or not self._is_midway(turn := self._sink.turn):
            return
        waits = turn.approvals or self._keeper.has_messages or self.tracker.blocked
        if not waits and not self._terminals and turn.ending is None:
            state = (self._decoder.state, self.tracker, self._unparsed.seen, self._limits.reset)
            self._checkpoints.save(Checkpoint(turn.id, self._place(), turn.position["out"], *state))

    def _is_midway(self, turn: TurnRecord) -> bool:
        """Tell whether a line may need no decision: the turn has begun its output and has not ended.

        The turn's first frame changes the session's state. A live process may begin a turn by itself, or wait for the end.
        """
        if self._unseen or not self.spoke or self._waits or self.terminal is not None:
            return False
        return not self._live or bool(turn.id and not turn.ending)

    def _take_plain(self, told: Sequence[tuple[Line, Sequence[EventBase]]], turn: TurnRecord) -> None:
        """Journal the events of lines that need no decision."""
        run, items = self._settings.number, []
        known = turn.has_journaled("out", told[0][0].start + 1)
        see, sample = self.tracker.see, self._settings.frames.see
        for line, events in told:
            sample(line, events)
            for k, event in enumerate(events):
                see(event)
                if type(event) is BackendStatus:
                    self._check_limits(event)
                if not known or not turn.has_journaled("out", line.end, k):
                    items.append(Item(event, turn.id, Source(run, "out", line.start, line.end, k)))
        self._batch.extend(items)
        self._decoded_to, self._heartbeat = told[-1][0].end, False
        self.tracker.follow(*self._decoder.open_work)
        if self._live:
            self._given_up |= self._decoder.given_up
        self.watchdog.phase_changed()

    async def _take_out(self, line: Line) -> None:
        if not line.is_blank:
            await self._take_line(line, self._decoder.decode(line))

    async def _take_line(self, line: Line, decoded: Decoded, first: int = 0) -> None:
        if begins_turn(decoded.events) and await self._goes_on(line, decoded.events):
            decoded = self._decoder.decode(line)
        self._settings.frames.see(line, decoded.events)
        self._decoded_to = line.end
        if decoded.replies:
            self._keeper.reply(decoded.replies, line.end)
        if self._live and begins_turn(decoded.events[:1]):
            self.termination.repeat_interrupt()
        self._controls.answered(decoded.answers)
        self._heartbeat = self._heartbeat and only_heartbeats(decoded.events)
        if asked := has_approvals(decoded.events):
            await self._batch.store()  # the journal knows the open approvals
        for k, event in enumerate(decoded.events, first):
            if self.requests.is_new(event):
                self._take_event(event, line, k)
        if asked:
            await self._batch.store()
            self._submit(decoded.events)
        self.spoke = self.spoke or bool(decoded.events)
        self.tracker.follow(*self._decoder.open_work)
        if decoded.terminal is not None:
            await self._take_terminal(decoded.terminal, line)
        if self._live:
            await self._note_idle(line)
        self.watchdog.phase_changed()

    def _submit(self, events: Sequence[EventBase]) -> None:
        """Submit the approval requests of a line. End a run with too many open requests."""
        self.requests.submit(events)
        if self.requests.too_many and self._sink.turn.ending is None and not self._keeper.ending:
            self.end("approvals", ladder_for("term", self.watchdog.timeouts))

    async def _note_idle(self, line: Line) -> None:
        if self._waits:
            self.tracker.wait()
        idle = self._decoder.idle
        self._given_up |= self._decoder.given_up
        if idle and self._waits:
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
            if not self._unparsed.join(item, self._batch):
                limit = self._settings.limits.inline_bytes
                small, blobs = spill(event, run=src.run, spool="out", line=line, k=k, limit=limit)
                self._batch.add(replace(item, event=small) if small is not event else item, blobs)
        self._check_limits(event)

    # -- turns of one process ------------------------------------------------------------------------------------------

    async def _goes_on(self, line: Line, events: Sequence[EventBase]) -> bool:
        """Record another request of the CLI to its model. Return True, and journal a turn, if another turn begins.

        A process for one turn continues its turn. A live process that waits for background work also continues its turn, except
        at the start of another prompt.
        """
        prompts = self._decoder.prompts
        if self._waits and prompts and any(isinstance(event, SessionInit) for event in events):
            await self._end_turn(self._place(line))
        if not self._live or self._sink.turn.id:
            if self._waits or self.terminal is not None:
                self._waits, self.terminal = False, None
                self.tracker.follow_up()
            return False
        starts = self._sink.begin_turn(self._place(line), self._decoder.background, prompts)
        await self._batch.store()
        for item in starts:
            self._batch.add(item)
        await self._batch.store()
        self.termination.turn_began()
        self._sink.turn_began()
        self._new_turn(seen=False)
        return True

    async def _take_terminal(self, terminal: Terminal, line: Line) -> None:
        """Take a terminal frame, which ends the turn as far as the daemon knows now."""
        turn = self._sink.turn
        if not self._live:
            self._terminals.append(terminal if self.terminal is None else behind(self.terminal, terminal))
            self.terminal = sum_of(self._terminals)
            self.tracker.finish()
            return
        if not turn.id:
            return
        self._terminals.append(terminal)
        if turn.origin == "prompt" and all(terminal.follow_up for terminal in self._terminals):
            # The CLI began a follow-up of its own just before the prompt arrived. The prompt's turn comes next.
            if not turn.has_journaled("out", line.end):
                self.note(FOLLOW_UP_FIRST)
        elif self._decoder.ends_when_idle:
            self._waits = True
        else:
            await self._end_turn(self._place(line, after=True))

    async def _end_turn(self, place: SpoolPlace) -> None:
        """Journal the end of a turn of a live process, and let the process rest."""
        await self._batch.store()
        whole = sum_of(self._terminals)
        self._terminals, self._waits = [], False
        for item in await self._batch.with_retry(lambda: self._sink.end_turn(whole, place, self._decoder.background)):
            self._batch.add(item)
        await self._batch.store()
        self.termination.turn_ended()
        self.used_before, self._request = True, self._settings.request
        self.tracker.rest()
        self._new_turn(seen=True)
        self._sink.turn_ended()

    def _place(self, line: Line | None = None, *, after: bool = False) -> SpoolPlace:
        """Return the place up to which both spools are decoded: before or after `line`.

        An adopted run may come to the end of a turn before it has read the stderr that the journal has.
        """
        out = self._decoded_to if line is None else line.end if after else line.start
        return {"out": out, "err": max(self._err.place, self._sink.turn.journaled_to("err"))}

    def _new_turn(self, *, seen: bool) -> None:
        """Begin another turn, or the rest after a turn, with a new decoder and new timers."""
        if not seen:
            self.tracker.follow_up()
        self._unseen, self.spoke = not seen, False
        self._unparsed.new_turn()
        self.tracker.unreadable = ""
        carried = dataclasses.replace(self._sink.carried, kept=self._decoder.kept)
        self._decoder = self._adapter.decoder(carried, self._request)
        self.watchdog.new_turn()

    # -- decisions of the daemon -------------------------------------------------------------------------------------

    def _check_limits(self, event: EventBase) -> None:
        """End a run with endless retries, or with answers from another session."""
        if self._sink.turn.ending is not None or self._keeper.ending or self.terminal is not None:
            return
        if (fault := self._limits.fault(event)) is not None:
            error = msgspec.to_builtins(fault.error)
            self.end(fault.reason, ladder_for("term", self.watchdog.timeouts), error=error)

    def note(self, event: EventBase, memo: TurnState | None = None) -> None:
        """Journal an event of the daemon with the next batch. A full disk delays this event like all others."""
        self._batch.add(Item(event, self._sink.turn.id, memo=memo))
        self._reader.wake()
