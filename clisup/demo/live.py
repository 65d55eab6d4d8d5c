"""A live process: many turns, and what is said to it meanwhile, in the order of claude 2.1.329 (`--input-format stream-json`).

One thread: who waits, waits in `Live.wait`, which hears what has come on stdin. So an interrupt is raised only where a
player waits or breathes, never in the middle of a frame.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from clisup.demo.args import Options
from clisup.demo.controls import control
from clisup.demo.frames import Frame, Frames
from clisup.demo.inbox import Inbox, Message, read_frame, read_message
from clisup.demo.player import Player
from clisup.demo.script import BadScript, Step, parse_script
from clisup.demo.session import Session
from clisup.demo.signals import tolerate
from clisup.demo.toolplay import Background
from clisup.demo.turn import Turn
from clisup.demo.wire import Interrupted, Stopped, Wire

__all__ = ["Live"]

_POLL_S = 0.005
_FOR_EVER_S = 3600.0
_SIGINT_CODE = 130
_FINISHED = ("completed", "max_turns", "budget_exhausted")


class FollowUp(NamedTuple):
    """A turn that the end of a background task starts."""

    task: Background
    priority: str = "next"


class Live:
    """One process. `waiting` holds what will have a turn: messages, and follow-ups of background tasks, as they came."""

    def __init__(
        self, wire: Wire, options: Options, session: Session, frames: Frames, begin: Callable[[str], Frame]
    ) -> None:
        self.wire, self.options, self.session, self.frames = wire, options, session, frames
        self._begin = begin
        self._default_model = frames.model
        self._tells_states = os.environ.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS") == "1"
        self.state = "idle"
        self.inbox = Inbox()
        self.waiting: list[Message | FollowUp] = []
        self._seen: set[str] = set()
        self._batch: list[Message] = []
        self._taken_in: list[Message] = []
        self._watched: list[Background] = []
        self._running = self._over = False
        self._abort: Interrupted | None = None
        self._exit_code = 0
        self._fate = "completed"
        self._origin: Frame | None = None
        self.turn = Turn(wire, frames, session, prompt_length=0)
        self.turn.permission_mode = options.permission_mode
        self.turn.before_result = self._before_result
        self.player = Player(wire, self.turn, session)
        self.player.wait = self.player.tools.wait = self.wait
        self.player.breathe = self.look
        self.player.tools.after_answers = self._take_in
        self.desk: Any = None
        if options.values.get("--permission-prompt-tool") == "stdio":
            self.player.tools.ask = self._ask

    def run(self) -> int:
        """Until stdin has ended and nothing is left to do; gives the exit code."""
        try:
            while not self._over and self._has_work():
                self._next_turn()
            for message in self._messages():
                self._tell(message, "discarded")
            return self.player.after(self._exit_code)
        except Stopped as stop:
            return self._stop(stop)

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
        self._raise_abort()

    def _raise_abort(self, *, in_tool: bool = False) -> None:
        abort = self._abort
        if abort is None or (abort.preempted and self.player.tools.running):
            return  # a tool may end before the turn makes way for a message
        self._abort = None
        abort.in_tool = in_tool
        raise abort

    def _hear(self, line: bytes) -> None:
        frame = read_frame(line)
        kind = frame.get("type")
        if kind == "user":
            self._hear_message(read_message(frame))
        elif kind == "control_request":
            control(self, frame)
        elif kind == "control_response" and self.desk is not None:
            self.desk.answer(frame.get("response") or {})

    def _hear_message(self, message: Message) -> None:
        if message.uuid in self.session.answered or message.uuid in self._seen:
            self._repeat(message)
            return
        if message.uuid:
            self._seen.add(message.uuid)
        if not self._running and not self._watched:  # beside a background task claude says so a little later
            self.tell_state("running")
        self._tell(message, "queued")
        self.waiting.append(message)
        if message.priority == "now" and self._running:
            self._abort = self._abort or Interrupted(preempted=True)

    def _repeat(self, message: Message) -> None:
        """A message that had its turn has no other one, also where that was in another process."""
        if message.uuid not in self._seen:
            self._tell(message, "completed")
        if not self._running:
            self.tell_state("idle")

    def _watch(self) -> None:
        for task in list(self._watched):
            with self.wire.whole():
                is_over = task.is_over()
            if is_over:
                self._watched.remove(task)
                self.player.tools.close(task)
                self.waiting.append(FollowUp(task))

    # What control requests do

    def send(self, frame: Frame) -> None:
        """A frame that is of no turn."""
        self.wire.frame(frame)

    def tell_state(self, state: str) -> None:
        self.state = state
        if self._tells_states:
            self.send(self.frames.system("session_state_changed", state=state))

    def interrupt(self) -> None:
        """The running turn is to end. Nothing where none runs: what waits is not meant."""
        if self._running:
            if self.desk is not None:
                self.desk.withdraw()
            self._abort = Interrupted()

    def after_control(self, subtype: str) -> None:
        """What claude says behind its answer."""
        if subtype == "set_permission_mode":
            self.send(self.frames.system("status", status=None, permissionMode=self.turn.permission_mode))
        elif subtype == "interrupt" and self.state == "requires_action":
            self.tell_state("running")
        elif subtype == "end_session":
            self._over = True

    def queued_uuids(self) -> list[str]:
        return [message.uuid for message in self._messages() if message.uuid]

    def cancel(self, uuid: str) -> bool:
        """Take a waiting message out. False where it is none, or has been started."""
        for message in self._messages():
            if message.uuid == uuid:
                self.waiting.remove(message)
                self._tell(message, "cancelled")
                return True
        return False

    def cancel_all(self) -> list[str]:
        """Take all waiting messages out; gives their uuids."""
        return [uuid for uuid in self.queued_uuids() if self.cancel(uuid)]

    def set_model(self, model: str | None) -> None:
        old, self.frames.model = self.frames.model, model or self._default_model
        if self.session.prompts and old != self.frames.model:
            said = f"<local-command-stdout>Set model to `{self.frames.model}`</local-command-stdout>"
            self.send(self.frames.replayed(said))

    def _messages(self) -> list[Message]:
        return [item for item in self.waiting if isinstance(item, Message)]

    def _tell(self, message: Message, state: str) -> None:
        if message.uuid:
            self.send(self.frames.lifecycle(message.uuid, state))

    # Turns

    def _has_work(self) -> bool:
        """Wait until something has to be done; false at the end of stdin, when nothing runs in the background either."""
        while not self.waiting:
            self._watch()
            if self.waiting:
                break
            if self.inbox.lines:
                self._hear(self.inbox.lines.pop(0))
                continue
            if self._over or (self.inbox.ended and not self._watched):
                return False
            self.inbox.wait(_POLL_S if self._watched else _FOR_EVER_S)
        self._hear_controls()
        if self.waiting:
            return True
        if self.state == "running":
            self.tell_state("idle")  # all that had come was taken back
        return self._has_work()

    def _hear_controls(self) -> None:
        """Requests right behind a message are answered before it is started."""
        while self.inbox.lines and not self._running and b'"control_request"' in self.inbox.lines[0]:
            self._hear(self.inbox.lines.pop(0))

    def _next_turn(self) -> None:
        """One turn, for what has waited: messages of one priority that lie beside each other are one."""
        order = {"now": 0, "next": 1, "later": 2}
        first = min(self.waiting, key=lambda item: order[item.priority])
        if isinstance(first, FollowUp):
            self.waiting.remove(first)
            self._play_follow_up(first.task)
        else:
            self._play(self._take_batch(first))
        self._watched += [task for task in self.player.tools.background if task not in self._watched]
        if not self.waiting or self._over:
            self.tell_state("idle")

    def _take_batch(self, first: Message) -> list[Message]:
        batch = [first]
        alike = [item for item in self.waiting if item.priority == first.priority]
        for item in alike[alike.index(first) + 1 :]:
            if first.command or not isinstance(item, Message) or item.command:
                break
            batch.append(item)
        for message in batch:
            self.waiting.remove(message)
        return batch

    def _play(self, batch: list[Message]) -> None:
        """The turn of these messages, from their start to their end."""
        self._wake()
        self._running, self._batch = True, batch
        for message in batch:
            self._tell(message, "started")
        self._hear_messages()
        text = "\n".join(message.text for message in batch)
        self.turn.begin(prompt_length=len(text), uuids=[message.uuid for message in batch if message.uuid])
        self.player.images = sum(message.images for message in batch)
        self._until_interrupted(lambda: self._answer(text, batch[0].command))
        for message in batch:
            self._tell(message, self._fate)
        self._running, self._batch, self._abort = False, [], None

    def _play_follow_up(self, task: Background) -> None:
        self._wake()
        self._running, self._origin = True, {"kind": "task-notification", "producer": "session-task"}
        self.turn.begin(prompt_length=0, uuids=[])

        def say() -> None:
            self._ask_model()
            self.look()
            self.turn.text(task.follow_up)
            self.turn.succeed()

        self._until_interrupted(say)
        self._running, self._origin, self._abort = False, None, None

    def _wake(self) -> None:
        if self.state != "running":
            self.tell_state("running")

    def _until_interrupted(self, play: Callable[[], object]) -> None:
        try:
            play()
        except Interrupted as end:
            if end.preempted:
                self.turn.preempt(in_tool=end.in_tool)
            else:
                self.turn.interrupt(in_tool=self.player.tools.stop_running(interrupted=True))

    def _answer(self, text: str, command: str) -> None:
        if command:
            from clisup.demo.compact import compact  # few processes ever do

            compact(self.turn, self.session, self._begin(self.turn.permission_mode))
            return
        self._ask_model()
        self.session.add_prompt(text, self.turn.uuids)
        self.turn.renumber()
        steps, mistake = _script(text)
        if mistake:
            from clisup.demo.failures import refuse_script  # only a mistaken script needs it

            refuse_script(self.turn, mistake)
            return
        if any(step.name == "no-transcript" for step in steps):
            self.session.forget()
        self.look()
        self.player.script(steps)

    def _ask_model(self) -> None:
        self.turn.send(self._begin(self.turn.permission_mode))
        self.turn.request()

    def _hear_messages(self) -> None:
        """Messages right behind the first are queued before the turn's first frame."""
        self.inbox.wait(0.0)
        while self.inbox.lines and read_frame(self.inbox.lines[0]).get("type") == "user":
            self._hear(self.inbox.lines.pop(0))

    def _take_in(self) -> None:
        """All tools of a message have answered, and the model is asked again: with what has come meanwhile."""
        self._raise_abort(in_tool=True)
        for item in list(self.waiting):
            if isinstance(item, FollowUp):
                self.waiting.remove(item)
                self.player.left.append(Step("text", (item.task.follow_up,), 0))
            elif item.priority != "later" and not item.command:
                self.waiting.remove(item)
                self._take_in_message(item)
        self.turn.request()

    def _take_in_message(self, message: Message) -> None:
        self._tell(message, "started")
        self._taken_in.append(message)
        uuids = [message.uuid] if message.uuid else []
        self.turn.uuids += uuids
        self.session.take_in(message.text, uuids)
        steps, mistake = _script(message.text)
        self.player.left += steps or [Step("text", (f"demo script, {mistake}",), 0)]

    def _before_result(self, fields: Frame) -> None:
        """How the turn ends decides what becomes of its messages, and of the process at its end."""
        self._exit_code = int(fields["is_error"])
        self._fate = "completed" if fields.get("terminal_reason", "completed") in _FINISHED else "cancelled"
        taken_in, self._taken_in = self._taken_in, []
        for message in taken_in:
            self._tell(message, self._fate)
        if self._origin is not None:
            fields["origin"] = self._origin

    def _ask(self, name: str, arguments: Frame) -> Any:
        if self.desk is None:
            from clisup.demo.permission import Desk  # with the first tool that needs it: it brings subprocess

            self.desk = Desk(self.turn, lambda: self.inbox.ended and not self.inbox.lines, self.tell_state)
        return self.desk.call(name, arguments)

    def _stop(self, stop: Stopped) -> int:
        """A signal ends the process: SIGINT with the result of a running turn, the others without a word about it."""
        tolerate(stop.signum)
        interrupted = stop.exit_code == _SIGINT_CODE
        in_tool = self.player.tools.stop(interrupted=interrupted)
        if not interrupted:
            return stop.exit_code
        if self._running:
            self.turn.interrupt(in_tool=in_tool)
            for message in self._batch:
                self._tell(message, "cancelled")
        return 0


def _script(text: str) -> tuple[list[Step], str]:
    """The steps, or what is wrong with the script."""
    try:
        steps = parse_script(text)
    except BadScript as error:
        return [], str(error)
    if any(step.name == "play" for step in steps):
        return [], "line 1: @play: a recording is a whole process; it cannot be a turn of a live one"
    return steps, ""
