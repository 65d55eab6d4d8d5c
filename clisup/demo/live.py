"""Live process: many turns, with messages, control requests and answers from stdin, in the order of claude 2.1.329.

The process has one thread. Everything that waits calls `LiveProcess.wait`, which reads stdin. So an interrupt is raised only
where a player waits or breathes, never in the middle of a frame.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from clisup.demo.arguments import PERMISSION_MODES, BadArguments, CommandLine
from clisup.demo.directives import DIRECTIVES, FOLLOW_UP_ORIGIN, Player, fail_api
from clisup.demo.script import BadScript, ScriptStep, parse_script
from clisup.demo.stdio import (
    Inbox,
    Interrupted,
    Stopped,
    UserMessage,
    Wire,
    ignore_signals,
    nap,
    read_message,
)
from clisup.demo.tools import BackgroundTask, RunningCall, Start
from clisup.demo.turn import DemoSession, DemoTurn
from clisup.stream_json.frames import Frame, Frames
from clisup.stream_json.lines import BadInput, read_frame

if TYPE_CHECKING:
    from clisup.demo.permissions import PermissionDesk

__all__ = ["CONTROLS", "ControlRefused", "LiveProcess"]

_POLL_S = 0.005
_FOR_EVER_S = 3600.0
_FOLLOW_UP_S = 0.05  # between the end of a background task and its turn; claude takes 60 to 100 ms
_SIGINT_CODE = 130
_FINISHED = ("completed", "max_turns", "budget_exhausted")
_WINDOW = 200_000


class MessageQueue:
    """Messages, and ended background tasks, that wait for their turn."""

    def __init__(self) -> None:
        self.items: list[UserMessage | BackgroundTask] = []

    def messages(self) -> list[UserMessage]:
        return [item for item in self.items if isinstance(item, UserMessage)]

    def take_turn(self) -> BackgroundTask | list[UserMessage]:
        """Remove and return what the next turn is for: an ended task, a command, or all messages before one of these."""
        first = self.items.pop(0)
        if isinstance(first, BackgroundTask):
            return first
        batch = [first]
        while self.items and not first.command:
            item = self.items[0]
            if isinstance(item, BackgroundTask) or item.command:
                break
            batch.append(item)
            self.items.pop(0)
        return batch

    def take_for_running_turn(self) -> list[UserMessage | BackgroundTask]:
        """Remove and return what the running turn can receive: everything but commands."""
        taken = [item for item in self.items if isinstance(item, BackgroundTask) or not item.command]
        self.items = [item for item in self.items if isinstance(item, UserMessage) and item.command]
        return taken


class LiveProcess:
    """The turns of a live process. `init` makes the init frame of a turn in a permission mode."""

    def __init__(
        self, wire: Wire, command: CommandLine, session: DemoSession, frames: Frames, init: Callable[[str], Frame]
    ) -> None:
        self._wire, self.command, self.session, self.frames = wire, command, session, frames
        self._init = init
        self._default_model = frames.model
        self._state = "idle"
        self._reports_states = os.environ.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS") == "1"
        self._inbox = Inbox()
        self._queue = MessageQueue()
        self._seen: set[str] = set()
        self._watched: list[BackgroundTask] = []
        self._interrupted = self._running = False
        self._batch: list[UserMessage] = []
        self._added: list[UserMessage] = []  # to the running turn, after its begin
        self._is_follow_up = False
        self._results_before = 0
        self._message_state = "completed"  # of the turn's messages, at its end
        self._exit_code = 0
        self._desk: PermissionDesk | None = None
        self.turn = DemoTurn(wire, frames, session, prompt_length=0)
        self.turn.permission_mode = command.permission_mode
        self.turn.before_result = self._before_result
        self.player = Player(wire, self.turn, session, DIRECTIVES)
        self.player.wait = self.player.tools.wait = self.wait
        self.player.breathe = self._listen
        self.player.tools.after_answers = self._add_waiting_messages
        if command.values.get("--permission-prompt-tool") == "stdio":
            self.player.tools.ask = self._ask

    def run(self) -> int:
        """Play turns until stdin has ended and nothing is left to do. Return the exit code. Raises `BadInput`."""
        try:
            while self._has_work():
                self._report_running()
                self._play(self._queue.take_turn())
                self._interrupted = False  # an interrupt that came too late is not meant for the next turn
                self._watched += [task for task in self.player.tools.background if task not in self._watched]
                if not (self._queue.items or self._has_agents()):
                    self._report_state("idle")
            nap(self.player.linger_s)
            return self._exit_code
        except Stopped as stop:
            return self._stop(stop)
        except BadInput:
            self.player.tools.kill()
            raise

    def _has_work(self) -> bool:
        """Wait for work. Return False at the end of stdin, if nothing runs in the background either."""
        while not self._queue.items:
            if self._state == "running" and not self._has_agents():
                self._report_state("idle")  # all queued messages were cancelled
            self._watch()
            if self._queue.items:
                self._inbox.wait(_FOLLOW_UP_S)
                self._handle_next("user")
            elif self._inbox.lines:
                self._handle(self._inbox.lines.pop(0))
                self._handle_next("control_request")  # requests right behind a message are answered before its turn
            elif self._inbox.ended and not self._watched:
                return False
            else:
                self._inbox.wait(_POLL_S if self._watched else _FOR_EVER_S)
        return True

    def _stop(self, stop: Stopped) -> int:
        """End the process at a signal. SIGINT gives the running turn a result; other signals do not."""
        ignore_signals(stop.signum)
        interrupted = stop.exit_code == _SIGINT_CODE
        in_tool = self.player.tools.stop(interrupted=interrupted)
        if not interrupted:
            return stop.exit_code
        if self._running and self.turn.results == self._results_before:
            self.turn.interrupt(in_tool=in_tool)
            self._report_batch()
        return 0

    # Frames about the process and its messages

    def send(self, frame: Frame) -> None:
        """Send a frame that belongs to no turn."""
        self._wire.frame(frame)

    def _report_state(self, state: str) -> None:
        self._state = state
        if self._reports_states:
            self.send(self.frames.system("session_state_changed", state=state))

    def _report_running(self) -> None:
        if self._state == "idle":
            self._report_state("running")

    def _report(self, message: UserMessage, state: str) -> None:
        """Report the state of a message. claude does so for messages with a uuid."""
        if message.uuid:
            self.send(self.frames.lifecycle(message.uuid, state))

    def _report_batch(self) -> None:
        for message in self._batch:
            self._report(message, self._message_state)

    # Input

    def wait(self, seconds: float) -> None:
        """Let time pass, and handle input meanwhile."""
        deadline = time.monotonic() + seconds
        while True:
            self._listen()
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self._inbox.wait(min(left, _POLL_S if self._watched else left))

    def _listen(self) -> None:
        """Handle the input that has come. Raises `Interrupted`."""
        self._inbox.wait(0.0)
        self._watch()
        while self._inbox.lines:
            self._handle(self._inbox.lines.pop(0))
        self._raise_interrupt()

    def _raise_interrupt(self) -> None:
        if self._interrupted:
            self._interrupted = False
            raise Interrupted

    def _handle_next(self, kind: str) -> None:
        while self._inbox.lines and read_frame(self._inbox.lines[0]).get("type") == kind:
            self._handle(self._inbox.lines.pop(0))

    def _handle(self, line: bytes) -> None:
        frame = read_frame(line)
        kind = frame.get("type")
        if kind == "user":
            self._receive(read_message(frame))
        elif kind == "control_request":
            self._control(frame)
        elif kind == "control_response" and self._desk is not None and isinstance(frame.get("response"), dict):
            self._desk.answer(frame["response"])

    def _receive(self, message: UserMessage) -> None:
        if message.uuid in self.session.answered or message.uuid in self._seen:
            # Each message has one turn, also if that was in another process.
            if message.uuid not in self._seen:
                self._report(message, "completed")
            if not self._running:
                self._report_state("idle")
            return
        if message.uuid:
            self._seen.add(message.uuid)
        if not self._watched and not self._queue.items:  # beside background work claude reports this a little later
            self._report_running()
        self._report(message, "queued")
        self._queue.items.append(message)

    def _watch(self) -> None:
        """Queue the background tasks that have ended."""
        for task in list(self._watched):
            with self._wire.whole():
                is_over = task.is_over()
            if is_over:
                self._watched.remove(task)
                self.player.tools.close(task)
                self._queue.items.append(task)

    def _has_agents(self) -> bool:
        """Return whether sub-agents run. claude is not idle then (2.1.330)."""
        return any(task.report is not None for task in self._watched)

    # Turns

    def _play(self, item: BackgroundTask | list[UserMessage]) -> None:
        self._running, self._results_before = True, self.turn.results
        if isinstance(item, BackgroundTask):
            self._is_follow_up = True
            self._until_interrupted(lambda: self._follow_up(item))
        else:
            self._batch = item
            for message in item:
                self._report(message, "started")
            self._inbox.wait(0.0)
            self._handle_next("user")
            text = "\n".join(message.text for message in item)
            self.turn.begin(prompt_length=len(text), uuids=[message.uuid for message in item if message.uuid])
            self.player.images = sum(message.images for message in item)
            self._until_interrupted(lambda: self._compact() if item[0].command else self._reply(text))
            self._report_batch()
        self._running, self._batch, self._is_follow_up = False, [], False

    def _until_interrupted(self, play: Callable[[], None]) -> None:
        try:
            play()
        except Interrupted:
            self.turn.interrupt(in_tool=self.player.tools.stop_running(interrupted=True))

    def _follow_up(self, task: BackgroundTask) -> None:
        self.turn.begin(prompt_length=0, uuids=[])
        self._begin_frames()
        self._listen()
        self.turn.text(task.follow_up)
        self.turn.succeed()

    def _reply(self, text: str) -> None:
        self._begin_frames()
        self.session.add_prompt(text, self.turn.uuids)
        self.turn.renumber()
        steps, mistake = _parse(text)
        if mistake:
            fail_api(self.turn, "invalid_request", f"API Error: 400 demo script, {mistake}")
            return
        self._listen()
        self.player.script(steps)

    def _begin_frames(self) -> None:
        self.turn.send(self._init(self.turn.permission_mode))
        self.turn.request()

    def _compact(self) -> None:
        """Play `/compact`. The demo has no context, so the summary has nothing but a number."""
        frames, prompts = self.frames, self.session.prompts
        init = self._init(self.turn.permission_mode)
        if not prompts:
            self.turn.send(init)
            error = "Error: No messages to compact"
            note = f"<local-command-stderr>{error}</local-command-stderr>"
            self.send(frames.synthetic(error, local_command_source=note))
        else:
            self.turn.send(frames.system("status", status="compacting"))
            self.turn.send(frames.system("status", status=None, compact_result="success"))
            self.turn.send(init)
            before = _tokens(prompts)
            metadata = {"trigger": "manual", "pre_tokens": before, "post_tokens": min(before, 25)}
            self.turn.send(frames.system("compact_boundary", compact_metadata=metadata))
            summary = f"This session is being continued from a previous conversation. Summary:\n{len(prompts)} prompts."
            self.turn.send({**frames.replayed(summary), "isReplay": False, "isSynthetic": True})
            self.turn.send(frames.replayed("<local-command-stdout>Compacted </local-command-stdout>"))
        self.turn.finish(subtype="success", is_error=False, result="", local_command="compact")

    def _add_waiting_messages(self) -> None:
        """Add the waiting messages to the running turn, behind the tools of a message. The model is asked again."""
        self._raise_interrupt()
        for item in self._queue.take_for_running_turn():
            if isinstance(item, BackgroundTask):
                self.player.left.append(ScriptStep("text", (item.follow_up,), 0))
            else:
                self._add(item)
        self.turn.request()

    def _add(self, message: UserMessage) -> None:
        """Add a message to the running turn. Its script is played behind the running one."""
        self._report(message, "started")
        self._added.append(message)
        uuids = [message.uuid] if message.uuid else []
        self.turn.uuids += uuids
        self.player.images += message.images
        self.session.add_to_turn(message.text, uuids)
        steps, mistake = _parse(message.text)
        self.player.left += steps or [ScriptStep("text", (f"demo script, {mistake}",), 0)]

    def _before_result(self, result: Frame) -> None:
        """Note the end of the turn for its messages and for the exit code."""
        self._exit_code = int(result["is_error"])
        finished = result.get("terminal_reason", "completed") in _FINISHED
        self._message_state = "completed" if finished else "cancelled"
        added, self._added = self._added, []
        for message in added:
            self._report(message, self._message_state)
        if self._is_follow_up:
            result["origin"] = FOLLOW_UP_ORIGIN

    def _ask(self, name: str, arguments: Frame, start: Start) -> RunningCall:
        if self._desk is None:
            from clisup.demo.permissions import PermissionDesk  # most processes never ask

            inbox = self._inbox
            self._desk = PermissionDesk(self.turn, lambda: inbox.ended and not inbox.lines, self._report_state)
        return self._desk.call(name, arguments, start)

    # Control requests

    def _control(self, frame: Frame) -> None:
        """Carry out a control request and answer it. Raises `BadArguments` for one without a `request`, as claude does."""
        request = frame.get("request")
        if not isinstance(request, dict):
            raise BadArguments("Error: Missing request on control_request")
        known = {"request_id": frame["request_id"]} if "request_id" in frame else {}
        subtype = str(request.get("subtype"))
        try:
            if subtype not in CONTROLS:
                error = f"Unsupported control request subtype: {request.get('subtype')}"
                raise ControlRefused(error, error_code="unsupported_request")
            response = CONTROLS[subtype](self, request)
        except ControlRefused as refused:
            self.send({"type": "control_response", "response": {"subtype": "error", **known, **refused.fields}})
            return
        more = {} if response is None else {"response": response}
        self.send({"type": "control_response", "response": {"subtype": "success", **known, **more}})
        if subtype == "set_permission_mode":
            self.send(self.frames.system("status", status=None, permissionMode=self.turn.permission_mode))
        elif subtype == "interrupt" and self._state == "requires_action":
            self._report_state("running")

    def interrupt(self, request: Frame) -> Frame:
        """End the running turn, or the sub-agents of an ended one. Queued messages stay, unless `cancel_queued` is set."""
        if self._running:
            if self._desk is not None:
                self._desk.withdraw()
            self._interrupted = True
        elif self._has_agents():
            self._watched = [task for task in self._watched if task.report is None]
            self.player.tools.stop_agents()
        messages = self._queue.messages()
        uuids = [message.uuid for message in messages if message.uuid]
        if request.get("cancel_queued") is not True:
            return {"still_queued": uuids}
        for message in messages:
            self._queue.items.remove(message)
            self._report(message, "cancelled")
        return {"still_queued": [], "cancelled": uuids}

    def set_model(self, request: Frame) -> Frame:
        """Change the model. Any name is accepted, as by claude; none, or `default`, is the model of the start."""
        model = request.get("model")
        if model is not None and not isinstance(model, str):
            error = "set_model: model must be a string"
            raise ControlRefused(error, error_code="invalid_request", model=self.frames.model)
        old, self.frames.model = self.frames.model, self._default_model if model in (None, "default") else str(model)
        if self.session.prompts and old != self.frames.model:
            note = f"<local-command-stdout>Set model to `{self.frames.model}`</local-command-stdout>"
            self.send(self.frames.replayed(note))
        return {"model": self.frames.model}

    def set_permission_mode(self, request: Frame) -> Frame:
        mode = request.get("mode")
        if mode not in PERMISSION_MODES:
            error = f"Cannot set permission mode: must be one of {', '.join(PERMISSION_MODES)}"
            raise ControlRefused(error, error_code="invalid_mode")
        if mode == "bypassPermissions" and self.command.permission_mode != mode:
            error = "Cannot set permission mode to bypassPermissions because the session was not launched with "
            raise ControlRefused(error + "--dangerously-skip-permissions", error_code="bypass_not_launched")
        self.turn.permission_mode = mode
        return {"mode": mode}

    def context_usage(self, request: Frame) -> Frame:
        """Return a quarter of the characters of all prompts as the context's tokens."""
        used = _tokens(self.session.prompts)
        free = {"id": "free_space", "name": "Free space", "color": "promptBorder", "kind": "free"}
        messages = {"id": "messages", "name": "Messages", "tokens": used, "color": "purple", "kind": "used"}
        return {
            "categories": [messages, {**free, "tokens": _WINDOW - used}], "totalTokens": used, "maxTokens": _WINDOW,
            "rawMaxTokens": _WINDOW, "autocompactSource": "model-default", "percentage": used * 100 // _WINDOW, "gridRows": [],
            "model": self.frames.model, "memoryFiles": [], "mcpTools": [], "mcpInstructions": [], "agents": [],
            "isAutoCompactEnabled": False,
        }  # fmt: skip


class ControlRefused(Exception):
    """Error as the answer to a control request."""

    def __init__(self, error: str, **more: Any) -> None:
        super().__init__(error)
        self.fields = {"error": error, **more}


CONTROLS: dict[str, Callable[[LiveProcess, Frame], Frame | None]] = {
    "interrupt": LiveProcess.interrupt,
    "set_model": LiveProcess.set_model,
    "set_permission_mode": LiveProcess.set_permission_mode,
    "get_context_usage": LiveProcess.context_usage,
}


def _tokens(prompts: list[str]) -> int:
    return sum(-(-len(prompt) // 4) for prompt in prompts)


def _parse(text: str) -> tuple[list[ScriptStep], str]:
    """Return the steps, or the mistake in the script."""
    try:
        steps = parse_script(text, DIRECTIVES)
    except BadScript as error:
        return [], str(error)
    if any(step.name == "play" for step in steps):
        return [], "line 1: @play: a recording is a whole run and cannot be a turn of a live process"
    return steps, ""
