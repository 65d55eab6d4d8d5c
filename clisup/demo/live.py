"""A live process: many turns, and what is said to it meanwhile, in the order of claude 2.1.329 (`--input-format stream-json`).

One thread: who waits, waits in `Live.wait`, which hears what has come on stdin. So an interrupt is raised only where a
player waits or breathes, never in the middle of a frame.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from clisup.demo.args import BadArguments, Options
from clisup.demo.inbox import Message, read_frame, read_message
from clisup.demo.liveprocess import LiveProcess
from clisup.demo.liveturns import Hearing, LiveTurns
from clisup.demo.session import Session
from clisup.demo.signals import tolerate
from clisup.demo.toolplay import Background
from clisup.demo.waiting import FollowUp
from clisup.demo.wire import Interrupted, Stopped, Wire
from clisup.stream_json.frames import Frame, Frames

if TYPE_CHECKING:
    from clisup.demo.mcp import Servers

__all__ = ["Live"]

_POLL_S = 0.005
_FOR_EVER_S = 3600.0
_FOLLOW_UP_S = 0.05  # between the end of a background task and the turn that it begins; claude takes 60 to 100 ms
_SIGINT_CODE = 130


class Live(LiveProcess):
    """One process: what it hears, its turns, and its end. `control` carries out a control request and answers it."""

    def __init__(
        self,
        wire: Wire,
        options: Options,
        session: Session,
        frames: Frames,
        begin: Callable[[str], Frame],
        control: Callable[[Live, Frame], None],
        servers: Servers | None = None,
    ) -> None:
        super().__init__(wire, options, session, frames, begin, servers)
        self._control = control
        self._default_model = frames.model
        self._seen: set[str] = set()
        self._watched: list[Background] = []
        self._over = False
        self._withdrawn: Message | None = None
        self._abort: Interrupted | None = None
        self.turns = LiveTurns(self, Hearing(self.wait, self.look, self.hear_messages, self.raise_abort))

    def run(self) -> int:
        """Until stdin has ended and nothing is left to do; gives the exit code. Raises `BadArguments` for a line that ends claude."""
        try:
            while not self._over and self._has_work():
                self._next_turn()
            for message in self.waiting.messages():
                self.tell(message, "discarded")
            return self.turns.player.after(self.turns.exit_code)
        except Stopped as stop:
            return self._stop(stop)
        except BadArguments:
            self.turns.player.tools.kill()
            raise

    def _next_turn(self) -> None:
        self.wake()
        self.turns.play(self.waiting.take_next())
        self._abort = None  # it came too late for the turn, and is not meant for the next one
        self._watched += [task for task in self.turns.player.tools.background if task not in self._watched]
        if self._over or not (self.waiting or self._delegates):
            self.tell_state("idle")

    def _has_work(self) -> bool:
        """Wait until something has to be done; false at the end of stdin, when nothing runs in the background either."""
        while not self.waiting:
            if self.state == "running" and not self._delegates:
                self.tell_state("idle")  # all that had come was taken back
            self._watch()
            if self.waiting:
                self.inbox.wait(_FOLLOW_UP_S)
                self._hear_while("user")
                break
            if self.inbox.lines:
                self._hear(self.inbox.lines.pop(0))
                self._hear_while("control_request")  # those right behind a message are answered before it is started
                continue
            if self._over or (self.inbox.ended and not self._watched):
                return False
            self.inbox.wait(_POLL_S if self._watched else _FOR_EVER_S)
        return True

    def _stop(self, stop: Stopped) -> int:
        """A signal ends the process: SIGINT with the result of a running turn, the others without a word about it."""
        tolerate(stop.signum)
        interrupted = stop.exit_code == _SIGINT_CODE
        in_tool = self.turns.player.tools.stop(interrupted=interrupted)
        if not interrupted:
            return stop.exit_code
        self.turns.give_up(in_tool=in_tool)
        return 0

    # What has come

    def wait(self, seconds: float) -> None:
        """Let time pass, and hear what comes meanwhile."""
        deadline = time.monotonic() + seconds
        while True:
            self.look()
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self.inbox.wait(min(left, _POLL_S if self._watched else left))

    def look(self) -> None:
        """Hear what has come. Raises `Interrupted` where that ends the running turn."""
        self.inbox.wait(0.0)
        self._watch()
        while self.inbox.lines:
            self._hear(self.inbox.lines.pop(0))
        self.raise_abort()

    def hear_messages(self) -> None:
        """Messages right behind the first are queued before the turn's first frame."""
        self.inbox.wait(0.0)
        self._hear_while("user")

    def raise_abort(self, *, in_tool: bool = False) -> None:
        """Raise `Interrupted` where the turn is to end. A tool may end before a turn makes way for a message."""
        abort = self._abort
        if abort is None or (abort.preempted and self.turns.player.tools.running):
            return
        self._abort = None
        abort.in_tool = in_tool
        raise abort

    def _hear_while(self, kind: str) -> None:
        while self.inbox.lines and read_frame(self.inbox.lines[0]).get("type") == kind:
            self._hear(self.inbox.lines.pop(0))

    def _hear(self, line: bytes) -> None:
        frame = read_frame(line)
        kind = frame.get("type")
        if kind == "user":
            self._hear_message(read_message(frame))
        elif kind == "control_request":
            self._control(self, frame)
        elif kind == "control_response":
            self.turns.answer(frame.get("response"))

    def _hear_message(self, message: Message) -> None:
        if message.uuid in self.session.answered or message.uuid in self._seen:
            self._repeat(message)
            return
        if message.uuid:
            self._seen.add(message.uuid)
        if not self._watched and not self.waiting:  # beside background work claude says so a little later
            self.wake()
        self.tell(message, "queued")
        self.waiting.add(message)
        if message.priority == "now" and self.turns.running:
            self._abort = self._abort or Interrupted(preempted=True)

    def _repeat(self, message: Message) -> None:
        """A message that had its turn gets no other one, also where that was in another process."""
        if message.uuid not in self._seen:
            self.tell(message, "completed")
        if not self.turns.running:
            self.tell_state("idle")

    def _watch(self) -> None:
        """Background tasks that have ended begin a turn of their own."""
        for task in list(self._watched):
            with self.wire.whole():
                is_over = task.is_over()
            if is_over:
                self._watched.remove(task)
                self.turns.player.tools.close(task)
                self.waiting.add(FollowUp(task))

    # What control requests do

    @property
    def _delegates(self) -> bool:
        """Sub-agents are at work: claude is not idle then (2.1.330)."""
        return any(task.report is not None for task in self._watched)

    def interrupt(self) -> None:
        """The running turn is to end, or the sub-agents that it left at work. What waits is not meant."""
        if self.turns.running:
            self.turns.withdraw_question()
            self._abort = Interrupted()
        elif self._delegates:
            self._watched = [task for task in self._watched if task.report is None]
            self.turns.player.tools.stop_agents()

    def after_control(self, subtype: str) -> None:
        """What claude says behind its answer."""
        if subtype == "set_permission_mode":
            mode = self.turns.turn.permission_mode
            self.send(self.frames.system("status", status=None, permissionMode=mode))
        elif subtype == "interrupt" and self.state == "requires_action":
            self.tell_state("running")
        elif subtype == "end_session":
            self._over = True
        elif self._withdrawn is not None:
            self.tell(self._withdrawn, "cancelled")
            self._withdrawn = None

    def queued_uuids(self) -> list[str]:
        return [message.uuid for message in self.waiting.messages() if message.uuid]

    def cancel(self, uuid: str) -> bool:
        """Take a waiting message out. False where it is none, or has been started; and where it is about to be started: then it is
        taken out all the same, which claude says behind its answer.
        """
        message = self.waiting.withdraw(uuid)
        if message is not None and not self.turns.running:
            self._withdrawn = message
            return False
        if message is not None:
            self.tell(message, "cancelled")
        return message is not None

    def cancel_all(self) -> list[str]:
        """Take all waiting messages out; gives their uuids."""
        return [uuid for uuid in self.queued_uuids() if self.cancel(uuid)]

    def set_model(self, model: str | None) -> None:
        """None is the model that the process began with."""
        old, self.frames.model = self.frames.model, model or self._default_model
        if self.session.prompts and old != self.frames.model:
            said = f"<local-command-stdout>Set model to `{self.frames.model}`</local-command-stdout>"
            self.send(self.frames.replayed(said))
