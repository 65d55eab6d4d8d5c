"""Tool calls in a turn: their frames, their order, and what goes on in the background after the result."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from clisup.demo.signals import nap

if TYPE_CHECKING:
    from clisup.demo.mcp import Servers
    from clisup.demo.script import Step
    from clisup.demo.tools import Answer, Call
    from clisup.demo.turn import Turn

__all__ = ["Background", "ToolPlayer"]

Start = Callable[[dict[str, Any]], "Call"]
"""What carries out a tool with the input that it is allowed with."""

_POLL_S = 0.002


class Background(NamedTuple):
    """A task that outlives the turn's result, and what the turn that follows it says."""

    task_id: str
    tool_id: str
    description: str
    is_over: Callable[[], bool]
    follow_up: str
    call: Call | None = None
    report: str | None = None
    """What a sub-agent says at its end; None for a command."""

    @property
    def kind(self) -> str:
        return "local_bash" if self.report is None else "local_agent"


class ToolPlayer:
    """Plays tool calls. `running` holds what a signal must end; `background` what the process waits for after its result.

    A live process sets how it waits, what it does when all tools of a message have answered, and whom a tool asks for its permission.
    """

    def __init__(self, turn: Turn, session_id: str) -> None:
        self._turn, self._session_id = turn, session_id
        self.wait: Callable[[float], None] = nap
        self.after_answers: Callable[[], None] = lambda: None
        self.ask: Callable[[str, dict[str, Any], Start], Call] | None = None
        self.servers: Servers | None = None
        self.running: list[Call] = []
        self.background: list[Background] = []
        self.first_beat_s, self.beat_s = 3.0, 30.0
        self._beats: dict[
            str, list[float]
        ] = {}  # for each call, when it next shows life and how often it has; -1: never

    def play(self, steps: tuple[Step, ...]) -> None:
        """The calls of one message. They start as their blocks are out and answer as they end, the last one first."""
        for step in steps:
            name, arguments = _described(step)
            tool_id = self._turn.tool_use(name, arguments)
            with self._turn.wire.whole():  # a signal must find a tool that runs among the running ones
                call = self._start(step, name, arguments)
                call.tool_id, call.name, call.arguments = tool_id, name, arguments
                self.running.insert(0, call)
        self._turn.end_message("tool_use")
        self._beats = {call.tool_id: self._first_beat(call) for call in self.running}
        while self.running:
            for call in list(self.running):
                self._look(call)
            if self.running:
                self.wait(_POLL_S)
        self.after_answers()

    def announce(self, seconds: float, text: str) -> None:
        """A background task that is only pretended: it is over `seconds` after the turn's result."""
        tool_id = self._turn.tool_use("Bash", {"command": "demo", "run_in_background": True, "description": text})
        self._turn.end_message("tool_use")
        end: list[float] = []

        def is_over() -> bool:
            end.append(time.monotonic() + seconds)  # counted from the first look, which comes after the result
            return time.monotonic() >= end[0]

        self._to_background(Background(_task_id(tool_id), tool_id, text, is_over, text))
        self.after_answers()

    def delegate(self, seconds: float, report: str, answer: str) -> None:
        """A sub-agent in the background, which is only pretended: it reports after `seconds`, and the turn goes on with `answer`."""
        tool_id = self._turn.tool_use("Agent", {"description": "demo", "prompt": report, "subagent_type": "demo"})
        self._turn.end_message("tool_use")
        end = time.monotonic() + seconds
        task = Background(_task_id(tool_id), tool_id, "demo", lambda: time.monotonic() >= end, answer, report=report)
        self._to_background(task)
        self.after_answers()

    def close(self, task: Background) -> None:
        """Say that a background task is over."""
        self.background = [other for other in self.background if other is not task]
        self._turn.send(self._turn.frames.system("task_updated", task_id=task.task_id, patch={"status": "completed"}))
        if task.report is None:
            self._notify(task.task_id, task.tool_id, "completed", f'Background command "{task.description}" completed')
        else:
            self._notify(task.task_id, task.tool_id, "completed", task.report, summary_is_report=True)
        self._tell_background()

    def stop_agents(self) -> None:
        """End the sub-agents, as an interrupt between two turns does."""
        agents = [task for task in self.background if task.report is not None]
        self.background = [task for task in self.background if task.report is None]
        for task in agents:
            self._turn.send(self._turn.frames.system("task_updated", task_id=task.task_id, patch={"status": "killed"}))
            self._notify(task.task_id, task.tool_id, "stopped", task.description)
        if agents:
            self._tell_background()

    def stop_running(self, *, interrupted: bool) -> bool:
        """End the tools of the message, as claude does it: killed tools answer. True where one was running."""
        killed, self.running = [call for call in self.running if interrupted or not call.waits], []
        for call in sorted(killed, key=lambda call: call.tool_id):
            call.kill()
            self._answer(call, call.killed(interrupted=interrupted), "stopped")
        return bool(killed)

    def kill(self) -> None:
        """End all that runs, without a word about it."""
        for call in (*self.running, *(task.call for task in self.background)):
            if call is not None:
                call.kill()

    def stop(self, *, interrupted: bool) -> bool:
        """A signal ends what runs, in the background too. True where a tool of the message was running."""
        killed = self.stop_running(interrupted=interrupted)
        if killed and not interrupted:
            self._turn.send(self._turn.frames.system("status", status="requesting"))
        stopped, self.background = self.background, []
        for task in stopped:
            if task.call is not None:
                task.call.kill()
            self._notify(task.task_id, task.tool_id, "stopped", task.description)
        if stopped:
            self._tell_background()
        return killed

    def _notify(self, task_id: str, tool_id: str, status: str, summary: str, **fields: Any) -> None:
        self._turn.send(self._turn.frames.system(
            "task_notification", task_id=task_id, tool_use_id=tool_id, status=status, output_file="", summary=summary, **fields,
        ))  # fmt: skip

    def _start(self, step: Step, name: str, arguments: dict[str, Any]) -> Call:
        from clisup.demo import tools  # brings subprocess: 5 ms that a script of text need not pay

        if step.name == "bash":
            marks = {"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": self._session_id}
            return tools.ShellCall(step.args[0], timeout=step.args[1], variables=marks)
        if step.name == "tool":
            return tools.ReadyCall(step.args[2])
        if step.name == "mcp":
            from clisup.demo import mcp

            mode = self._turn.permission_mode
            return self.servers.start(name, arguments, mode, self.ask) if self.servers else mcp.unknown(name)
        start = partial(tools.carry_out if step.name == "run" else tools.pretend, name)
        if self.ask is not None and self._turn.permission_mode != "dontAsk":
            return self.ask(name, arguments, start)
        if not tools.is_allowed(name, arguments, self._turn.permission_mode):
            return tools.deny(name, arguments)
        return start(arguments)

    def _look(self, call: Call) -> None:
        with (
            self._turn.wire.whole()
        ):  # a signal in the middle of it would leave Popen's lock taken, and `kill` waits for that
            answer = call.poll()
        if answer is not None:
            self.running.remove(call)
            self._answer(call, answer)
        elif call.overdue:
            self.running.remove(call)
            is_over, tool_id = lambda: call.poll() is not None, call.tool_id
            task = Background(_task_id(tool_id), tool_id, "a command", is_over, "The command has ended.", call)
            self._to_background(task)
        elif time.monotonic() >= self._beats[call.tool_id][0]:
            self._beat(call, self._beats[call.tool_id])

    def _first_beat(self, call: Call) -> list[float]:
        now = time.monotonic()
        return [now + self.first_beat_s, -1] if call.is_task else [now + self.beat_s, 0]

    def _beat(self, call: Call, beat: list[float]) -> None:
        """A sign of life: first that a task has started, then that it goes on."""
        frames, count = self._turn.frames, int(beat[1])
        if count < 0:
            self._turn.send(frames.system(
                "task_started", task_id=_task_id(call.tool_id), tool_use_id=call.tool_id, description="Run a command",
                is_backgrounded=False, task_type="local_bash",
            ))  # fmt: skip
        else:
            elapsed = round(time.monotonic() - call.began, 3)
            self._turn.send(frames.tool_progress(call.tool_id, count, call.name, elapsed))
        beat[:] = [time.monotonic() + self.beat_s, count + 1]

    def _answer(self, call: Call, answer: Answer, status: str = "completed") -> None:
        if answer.meta.get("non_execution_kind") and status == "completed" and not call.asked:
            self._refused(call, answer)
        if call.is_task and self._beats.get(call.tool_id, [0, -1])[1] >= 0:
            self._notify(_task_id(call.tool_id), call.tool_id, status, "Run a command")
        block = {"type": "tool_result", "content": answer.content, "is_error": answer.is_error,
                 "tool_use_id": call.tool_id}  # fmt: skip
        meta = [{"id": call.tool_id, **answer.meta}]
        self._turn.send(self._turn.frames.user([block], tool_use_result=answer.detail, tool_result_meta=meta))

    def _refused(self, call: Call, answer: Answer) -> None:
        self._turn.denials.append({"tool_name": call.name, "tool_use_id": call.tool_id, "tool_input": call.arguments})
        self._turn.send(self._turn.frames.system(
            "permission_denied", tool_name=call.name, tool_use_id=call.tool_id, message=answer.content,
        ))  # fmt: skip

    def _to_background(self, task: Background) -> None:
        self.background.append(task)
        self._tell_background()
        self._turn.send(self._turn.frames.system(
            "task_started", task_id=task.task_id, tool_use_id=task.tool_id, description=task.description, is_backgrounded=True,
            task_type=task.kind,
        ))  # fmt: skip
        content = f"Command running in background with ID: {task.task_id}."
        detail = {"stdout": "", "stderr": "", "interrupted": False, "isImage": False, "backgroundTaskId": task.task_id}
        if task.report is not None:
            content, detail = "Async agent launched successfully.", {"isAsync": True, "status": "async_launched"}
        block = {"type": "tool_result", "content": content, "tool_use_id": task.tool_id, "is_error": False}
        self._turn.send(self._turn.frames.user([block], tool_use_result=detail))

    def _tell_background(self) -> None:
        tasks = [{"task_id": t.task_id, "task_type": t.kind, "description": t.description} for t in self.background]
        self._turn.send(self._turn.frames.system("background_tasks_changed", tasks=tasks))


def _task_id(tool_id: str) -> str:
    return f"b{tool_id[-8:]}"


def _described(step: Step) -> tuple[str, dict[str, Any]]:
    """The name and input that the tool_use block of a step shows."""
    if step.name == "bash":
        return "Bash", {"command": step.args[0], "description": "Run a command of the script"}
    if step.name == "mcp" and not step.args[0].startswith("mcp__"):
        return f"mcp__clisup__{step.args[0]}", step.args[1]
    return step.args[0], step.args[1]
