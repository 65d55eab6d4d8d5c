"""The turns of a live process: what a message's turn says, what it takes in, and how it ends (claude 2.1.329)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from clisup.demo.player import Player
from clisup.demo.plays import PLAYS
from clisup.demo.script import BadScript, Step, parse_script
from clisup.demo.turn import Turn
from clisup.demo.waiting import FollowUp
from clisup.demo.wire import Interrupted

if TYPE_CHECKING:
    from clisup.demo.inbox import Message
    from clisup.demo.liveprocess import LiveProcess
    from clisup.demo.permission import AskedCall, Desk
    from clisup.demo.toolplay import Background, Start
    from clisup.stream_json.frames import Frame

__all__ = ["LiveTurns"]

_FINISHED = ("completed", "max_turns", "budget_exhausted")
_ORIGIN = {"kind": "task-notification", "producer": "session-task"}


class Hearing(NamedTuple):
    """Ways to hear what has come on stdin while a turn runs."""

    wait: Callable[[float], None]
    """Let time pass, and hear what comes meanwhile."""
    look: Callable[[], None]
    """Hear what has come. Raises `Interrupted` where that ends the running turn."""
    messages: Callable[[], None]
    """Queue the messages right behind the first."""
    raise_abort: Callable[..., None]
    """Raise `Interrupted` where the turn is to end; `in_tool` says that a tool ran."""


class LiveTurns:
    """Plays one turn after the other. `exit_code` is that of a process which ends after the latest of them."""

    def __init__(self, live: LiveProcess, hearing: Hearing) -> None:
        self._live, self._hearing = live, hearing
        self._batch: list[Message] = []
        self._taken_in: list[Message] = []
        self._origin: Frame | None = None
        self._fate = "completed"
        self._desk: Desk | None = None
        self._results_before = 0
        self.running = False
        self.exit_code = 0
        self.turn = Turn(live.wire, live.frames, live.session, prompt_length=0)
        self.turn.permission_mode = live.options.permission_mode
        self.turn.before_result = self._before_result
        self.player = Player(live.wire, self.turn, live.session, PLAYS)
        self.player.wait = self.player.tools.wait = hearing.wait
        self.player.breathe = hearing.look
        self.player.tools.after_answers = self._take_in
        self.player.tools.servers = live.servers
        if live.options.values.get("--permission-prompt-tool") == "stdio":
            self.player.tools.ask = self._ask

    def play(self, item: FollowUp | list[Message]) -> None:
        """A whole turn: of messages, or the one that a background task begins."""
        self.running, self._results_before = True, self.turn.results
        if isinstance(item, FollowUp):
            self._origin = _ORIGIN
            self._until_interrupted(lambda: self._follow_up(item.task))
        else:
            self._batch = item
            self._play_messages(item)
        self.running, self._batch, self._origin = False, [], None

    def give_up(self, *, in_tool: bool) -> None:
        """End the running turn, if one runs and has no result yet, because the process ends."""
        if self.running and self.turn.results == self._results_before:
            self.turn.interrupt(in_tool=in_tool)
            self._tell_batch()

    def answer(self, response: Any) -> None:
        """The answer to a question for a permission. Others are ignored, as by claude."""
        if self._desk is not None and isinstance(response, dict):
            self._desk.answer(response)

    def withdraw_question(self) -> None:
        if self._desk is not None:
            self._desk.withdraw()

    def _play_messages(self, batch: list[Message]) -> None:
        for message in batch:
            self._live.tell(message, "started")
        self._hearing.messages()
        text = "\n".join(message.text for message in batch)
        self.turn.begin(prompt_length=len(text), uuids=[message.uuid for message in batch if message.uuid])
        self.player.images = sum(message.images for message in batch)
        self._until_interrupted(lambda: self._reply(text, batch[0].command))
        self._tell_batch()

    def _tell_batch(self) -> None:
        for message in self._batch:
            self._live.tell(message, self._fate)

    def _follow_up(self, task: Background) -> None:
        self.turn.begin(prompt_length=0, uuids=[])
        self._ask_model()
        self._hearing.look()
        self.turn.text(task.follow_up)
        self.turn.succeed()

    def _until_interrupted(self, play: Callable[[], None]) -> None:
        try:
            play()
        except Interrupted as end:
            if end.preempted:
                self.turn.preempt(in_tool=end.in_tool)
            else:
                self.turn.interrupt(in_tool=self.player.tools.stop_running(interrupted=True))

    def _reply(self, text: str, command: str) -> None:
        session = self._live.session
        if command:
            from clisup.demo.compact import compact  # few processes ever do

            compact(self.turn, session, self._init())
            return
        self._ask_model()
        session.add_prompt(text, self.turn.uuids)
        self.turn.renumber()
        steps, mistake = _script(text)
        if mistake:
            from clisup.demo.failures import refuse_script  # only a mistaken script needs it

            refuse_script(self.turn, mistake)
            return
        if any(step.name == "no-transcript" for step in steps):
            session.forget()
        self._hearing.look()
        self.player.script(steps)

    def _init(self) -> Frame:
        return self._live.begin(self.turn.permission_mode)

    def _ask_model(self) -> None:
        self.turn.send(self._init())
        self.turn.request()

    def _take_in(self) -> None:
        """All tools of a message have answered, and the model is asked again: with what has come meanwhile."""
        self._hearing.raise_abort(in_tool=True)
        for item in self._live.waiting.take_in():
            if isinstance(item, FollowUp):
                self.player.left.append(Step("text", (item.task.follow_up,), 0))
            else:
                self._take_in_message(item)
        self.turn.request()

    def _take_in_message(self, message: Message) -> None:
        """Its script is played behind the one that runs."""
        self._live.tell(message, "started")
        self._taken_in.append(message)
        uuids = [message.uuid] if message.uuid else []
        self.turn.uuids += uuids
        self.player.images += message.images
        self._live.session.take_in(message.text, uuids)
        steps, mistake = _script(message.text)
        self.player.left += steps or [Step("text", (f"demo script, {mistake}",), 0)]

    def _before_result(self, fields: Frame) -> None:
        """How the turn ends decides what becomes of its messages, and of the process at its end."""
        self.exit_code = int(fields["is_error"])
        self._fate = "completed" if fields.get("terminal_reason", "completed") in _FINISHED else "cancelled"
        taken_in, self._taken_in = self._taken_in, []
        for message in taken_in:
            self._live.tell(message, self._fate)
        if self._origin is not None:
            fields["origin"] = self._origin

    def _ask(self, name: str, arguments: Frame, start: Start) -> AskedCall:
        if self._desk is None:
            from clisup.demo.permission import Desk  # with the first tool that needs it: it brings subprocess

            inbox = self._live.inbox
            self._desk = Desk(self.turn, lambda: inbox.ended and not inbox.lines, self._live.tell_state)
        return self._desk.call(name, arguments, start)


def _script(text: str) -> tuple[list[Step], str]:
    """The steps, or what is wrong with the script."""
    try:
        steps = parse_script(text)
    except BadScript as error:
        return [], str(error)
    if any(step.name == "play" for step in steps):
        return [], "line 1: @play: a recording is a whole process; it cannot be a turn of a live one"
    return steps, ""
