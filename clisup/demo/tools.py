"""Tool calls of the demo CLI: pretended calls, real shell commands and file changes, and tasks in the background."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from clisup.demo.stdio import nap
from clisup.stream_json.frames import Frame

if TYPE_CHECKING:
    from clisup.demo.script import ScriptStep
    from clisup.demo.turn import DemoTurn

__all__ = [
    "REJECTED", "Ask", "BackgroundTask", "CallAnswer", "ReadyCall", "RunningCall", "Start", "ToolPlayer", "is_allowed",
    "refuse", "task_id", "unknown_tool",
]  # fmt: skip

_OUTPUT_LIMIT = 30_000  # characters of a command's output that reach the model, claude's default
_FILE_TOOLS = ("Edit", "Write")
_POLL_S = 0.002
_ACCEPTED = {"permission_decision": {"decision": "accept", "source": "config", "reason_type": "mode"}}
REJECTED = {"non_execution_kind": "user-rejected", "permission_decision": {"decision": "reject", "source": "config"}}
_INTERRUPTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected. STOP what you are doing and wait for "
    "the user to tell you how to proceed."
)


class CallAnswer(NamedTuple):
    """Answer of a tool: `content` for the model (blocks from an MCP server), and `detail`, claude's `tool_use_result`."""

    content: Any
    is_error: bool
    detail: Any
    meta: Frame


class RunningCall:
    """Tool call that runs. The player sets the first three fields."""

    tool_id = ""
    name = ""
    arguments: Mapping[str, Any] = MappingProxyType({})
    overdue = False
    """True after the call has used up its time and goes on in the background."""
    asked = False
    """True if the client is asked for permission. No frame has to report a refusal then."""
    waits = False
    """True while the call waits for its permission."""
    is_task = True
    """True if claude makes the call a task when it takes longer. Other calls only report progress."""

    def __init__(self) -> None:
        self.began = time.monotonic()

    def poll(self) -> CallAnswer | None:
        """Return the answer, or None while the tool runs."""
        raise NotImplementedError

    def kill(self) -> None:
        """End the call, if it still runs."""


class ReadyCall(RunningCall):
    """Call with an immediate answer."""

    def __init__(self, content: str, *, is_error: bool = False, detail: Any = None, meta: Frame = _ACCEPTED) -> None:
        super().__init__()
        shown = f"Error: {content}" if is_error else content
        self._answer = CallAnswer(content, is_error, shown if detail is None else detail, meta)

    def poll(self) -> CallAnswer | None:
        return self._answer


class ShellCall(RunningCall):
    """`/bin/sh -c command` in a session of its own, as claude runs Bash: a kill of the CLI's group does not reach the command.

    The output goes to a file in memory. A pipe would be held open by what the command leaves in the background.
    """

    def __init__(self, command: str, *, timeout: float = math.inf, variables: dict[str, str] | None = None) -> None:
        import subprocess  # slow to load, and most scripts run no command

        super().__init__()
        self._deadline = self.began + timeout
        self._output = os.memfd_create("clisup-demo-bash")
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output,
            start_new_session=True, env={**os.environ, **(variables or {})},
        )  # fmt: skip

    def poll(self) -> CallAnswer | None:
        code = self._process.poll()
        if code is None:
            self.overdue = time.monotonic() >= self._deadline
            return None
        output = self._read()
        if code == 0:
            detail = {"stdout": output, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
            return CallAnswer(output or "(Bash completed with no output)", False, detail, _ACCEPTED)
        shown = 128 - code if code < 0 else code
        content = f"Exit code {shown}\n{output}".rstrip("\n")
        return CallAnswer(content, True, f"Error: {content}", _ACCEPTED)

    def kill(self) -> None:
        """Kill the command's process group. Processes in sessions of their own survive, as with claude."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _read(self) -> str:
        size = os.fstat(self._output).st_size
        raw = os.pread(self._output, min(size, _OUTPUT_LIMIT * 4), 0)
        text = raw.decode("utf-8", "replace").rstrip("\n")
        if len(text) <= _OUTPUT_LIMIT:
            return text
        return f"{text[:_OUTPUT_LIMIT]}\n\n... [{size - _OUTPUT_LIMIT} characters truncated] ..."


def is_allowed(name: str, arguments: Frame, mode: str) -> bool:
    """Return whether a permission mode allows a tool. acceptEdits allows files below the working directory."""
    if mode == "acceptEdits" and name in _FILE_TOOLS:
        root = os.path.realpath(os.getcwd()).rstrip("/")
        return os.path.realpath(str(arguments.get("file_path", ""))).startswith(root + "/")
    return mode == "bypassPermissions"


def refuse(name: str, arguments: Frame) -> ReadyCall:
    """Return a call that was refused for lack of a permission."""
    target = f"write to {os.path.abspath(str(arguments['file_path']))}" if "file_path" in arguments else f"use {name}"
    message = f"Claude requested permissions to {target}, but you haven't granted it yet."
    return ReadyCall(message, is_error=True, meta=REJECTED)


def unknown_tool(name: str) -> ReadyCall:
    """Return claude's answer to a call of an unknown tool."""
    error = f"Error: No such tool available: {name}"
    return ReadyCall(f"<tool_use_error>{error}</tool_use_error>", is_error=True, detail=error)


def _pretend(name: str, arguments: Frame) -> RunningCall:
    """Answer with what the tool would have done."""
    if name == "Bash":
        return ReadyCall(f"The demo only pretends. It would have run: {arguments.get('command', '')}")
    if name in _FILE_TOOLS:
        return ReadyCall(f"The demo only pretends. It would have written: {arguments.get('file_path', '')}")
    if name == "AskUserQuestion":
        return ReadyCall(_answers(arguments.get("answers")))
    return ReadyCall("ok")


def _answers(given: object) -> str:
    """Return the answers in claude's words."""
    if not isinstance(given, dict) or not given:
        return "The user did not answer the questions."
    told = ", ".join(f'"{question}"="{answer}"' for question, answer in given.items())
    return f"Your questions have been answered: {told}. You can now continue with these answers in mind."


def _carry_out(name: str, arguments: Frame) -> RunningCall:
    """Run a Bash, or make the change of a Write or an Edit. All other tools are pretended."""
    if name == "Bash" and "command" in arguments:
        return ShellCall(str(arguments["command"]))
    if name not in _FILE_TOOLS:
        return _pretend(name, arguments)
    path = os.path.abspath(str(arguments.get("file_path", "")))
    try:
        (_write if name == "Write" else _edit)(path, arguments)
    except (OSError, ValueError) as error:
        return ReadyCall(str(error), is_error=True)
    detail: Frame = {"filePath": path, "structuredPatch": [], "originalFile": None}
    return ReadyCall(f"The file {path} has been written successfully.", detail=detail)


def _write(path: str, arguments: Frame) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(str(arguments.get("content", "")))


def _edit(path: str, arguments: Frame) -> None:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    old = str(arguments.get("old_string", ""))
    if not old or old not in text:
        raise ValueError("String to replace not found in file.")
    _write(path, {"content": text.replace(old, str(arguments.get("new_string", "")), 1)})


Start = Callable[[Frame], RunningCall]
"""Starts a tool with the input that its permission allows."""
Ask = Callable[[str, Frame, Start], RunningCall]
"""Returns a call that asks for the permission of a tool with this name and input."""


class BackgroundTask(NamedTuple):
    """Task that outlives the turn's result, and the text of the turn that follows its end."""

    task_id: str
    tool_id: str
    description: str
    is_over: Callable[[], bool]
    follow_up: str
    call: RunningCall | None = None
    report: str | None = None
    """Last words of a sub-agent; None for a command."""

    @property
    def kind(self) -> str:
        return "local_bash" if self.report is None else "local_agent"


class ToolPlayer:
    """Plays tool calls. `running` are the calls of the open message, `background` the tasks that outlive it.

    A live process replaces `wait`, `after_answers` (called when all calls of a message have answered) and `ask`.
    """

    def __init__(self, turn: DemoTurn, session_id: str) -> None:
        self._turn, self._session_id = turn, session_id
        self.wait: Callable[[float], None] = nap
        self.after_answers: Callable[[], None] = lambda: None
        self.ask: Ask | None = None
        self.start_mcp: Callable[[str, Frame, str, Ask | None], RunningCall] = lambda name, *_: unknown_tool(name)
        self.running: list[RunningCall] = []
        self.background: list[BackgroundTask] = []
        self.first_beat_s, self.beat_s = 3.0, 30.0
        self._beats: dict[str, tuple[float, int]] = {}  # for each call: time of its next beat, number of beats so far

    def play(self, steps: tuple[ScriptStep, ...]) -> None:
        """Play the calls of one message. Calls that end at the same time answer in reverse order."""
        for step in steps:
            name, arguments = _described(step)
            tool_id = self._turn.tool_use(name, arguments)
            with self._turn.wire.whole():  # a signal must find a tool that runs in `running`
                call = self._start(step, name, arguments)
                call.tool_id, call.name, call.arguments = tool_id, name, arguments
                self.running.insert(0, call)
        self._turn.end_message("tool_use")
        now = time.monotonic()
        self._beats = {
            call.tool_id: (now + self.first_beat_s, -1) if call.is_task else (now + self.beat_s, 0)
            for call in self.running
        }
        while self.running:
            for call in list(self.running):
                self._check(call)
            if self.running:
                self.wait(_POLL_S)
        self.after_answers()

    def delegate(self, seconds: float, report: str, answer: str) -> None:
        """Pretend a sub-agent in the background. It reports after `seconds`, and the turn goes on with `answer`."""
        tool_id = self._turn.tool_use("Agent", {"description": "demo", "prompt": report, "subagent_type": "demo"})
        self._turn.end_message("tool_use")
        end = time.monotonic() + seconds
        self.to_background(
            BackgroundTask(task_id(tool_id), tool_id, "demo", lambda: time.monotonic() >= end, answer, report=report)
        )
        self.after_answers()

    def to_background(self, task: BackgroundTask) -> None:
        self.background.append(task)
        self._report_background()
        self._system(
            "task_started", task_id=task.task_id, tool_use_id=task.tool_id, description=task.description,
            is_backgrounded=True, task_type=task.kind,
        )  # fmt: skip
        content = f"Command running in background with ID: {task.task_id}."
        detail = {"stdout": "", "stderr": "", "interrupted": False, "isImage": False, "backgroundTaskId": task.task_id}
        if task.report is not None:
            content, detail = "Async agent launched successfully.", {"isAsync": True, "status": "async_launched"}
        block = {"type": "tool_result", "content": content, "tool_use_id": task.tool_id, "is_error": False}
        self._turn.send(self._turn.frames.user([block], tool_use_result=detail))

    def close(self, task: BackgroundTask) -> None:
        """Report the end of a background task."""
        self.background = [other for other in self.background if other is not task]
        self._system("task_updated", task_id=task.task_id, patch={"status": "completed"})
        if task.report is None:
            self._notify(task.task_id, task.tool_id, "completed", f'Background command "{task.description}" completed')
        else:
            self._notify(task.task_id, task.tool_id, "completed", task.report, summary_is_report=True)
        self._report_background()

    def stop_agents(self) -> None:
        """End the sub-agents, as an interrupt between two turns does."""
        agents = [task for task in self.background if task.report is not None]
        self.background = [task for task in self.background if task.report is None]
        for task in agents:
            self._system("task_updated", task_id=task.task_id, patch={"status": "killed"})
            self._notify(task.task_id, task.tool_id, "stopped", task.description)
        if agents:
            self._report_background()

    def stop_running(self, *, interrupted: bool) -> bool:
        """End the calls of the message. Killed calls answer, as with claude. Return whether a call was running."""
        killed, self.running = [call for call in self.running if interrupted or not call.waits], []
        answer = CallAnswer("Exit code 137", True, "Error: Exit code 137", _ACCEPTED)
        if interrupted:
            meta = {"non_execution_kind": "user-rejected"}
            answer = CallAnswer(_INTERRUPTED, True, "User rejected tool use", meta)
        for call in sorted(killed, key=lambda call: call.tool_id):
            call.kill()
            self._answer(call, answer, "stopped")
        return bool(killed)

    def kill(self) -> None:
        """End everything that runs, without a frame."""
        for call in (*self.running, *(task.call for task in self.background)):
            if call is not None:
                call.kill()

    def stop(self, *, interrupted: bool) -> bool:
        """End everything that runs at a signal. Return whether a call of the message was running."""
        killed = self.stop_running(interrupted=interrupted)
        if killed and not interrupted:
            self._turn.request()
        stopped, self.background = self.background, []
        for task in stopped:
            if task.call is not None:
                task.call.kill()
            self._notify(task.task_id, task.tool_id, "stopped", task.description)
        if stopped:
            self._report_background()
        return killed

    def _start(self, step: ScriptStep, name: str, arguments: Frame) -> RunningCall:
        mode = self._turn.permission_mode
        if step.name == "bash":
            marks = {"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": self._session_id}
            return ShellCall(step.args[0], timeout=step.args[1], variables=marks)
        if step.name == "tool":
            return ReadyCall(step.args[2])
        if step.name == "mcp":
            return self.start_mcp(name, arguments, mode, self.ask)
        start = partial(_carry_out if step.name == "run" else _pretend, name)
        if self.ask is not None and mode != "dontAsk":
            return self.ask(name, arguments, start)
        return start(arguments) if is_allowed(name, arguments, mode) else refuse(name, arguments)

    def _check(self, call: RunningCall) -> None:
        with (
            self._turn.wire.whole()
        ):  # a signal inside `poll` would leave Popen's lock taken, and `kill` would wait for it
            answer = call.poll()
        beat, count = self._beats[call.tool_id]
        if answer is not None:
            self.running.remove(call)
            self._answer(call, answer)
        elif call.overdue:
            self.running.remove(call)
            is_over, tool_id = lambda: call.poll() is not None, call.tool_id
            text = "The command has ended."
            self.to_background(BackgroundTask(task_id(tool_id), tool_id, "a command", is_over, text, call))
        elif time.monotonic() >= beat:
            self._report_progress(call, count)
            self._beats[call.tool_id] = time.monotonic() + self.beat_s, count + 1

    def _report_progress(self, call: RunningCall, count: int) -> None:
        """Report that a task has started, and from then on that it goes on."""
        if count < 0:
            self._system(
                "task_started", task_id=task_id(call.tool_id), tool_use_id=call.tool_id, description="Run a command",
                is_backgrounded=False, task_type="local_bash",
            )  # fmt: skip
        else:
            elapsed = round(time.monotonic() - call.began, 3)
            self._turn.send(self._turn.frames.tool_progress(call.tool_id, count, call.name, elapsed))

    def _answer(self, call: RunningCall, answer: CallAnswer, status: str = "completed") -> None:
        if answer.meta.get("non_execution_kind") and status == "completed" and not call.asked:
            denial = {"tool_name": call.name, "tool_use_id": call.tool_id}
            self._turn.denials.append({**denial, "tool_input": call.arguments})
            self._system("permission_denied", **denial, message=answer.content)
        if call.is_task and self._beats.get(call.tool_id, (0.0, -1))[1] >= 0:
            self._notify(task_id(call.tool_id), call.tool_id, status, "Run a command")
        block = {"type": "tool_result", "content": answer.content, "is_error": answer.is_error,
                 "tool_use_id": call.tool_id}  # fmt: skip
        meta = [{"id": call.tool_id, **answer.meta}]
        self._turn.send(self._turn.frames.user([block], tool_use_result=answer.detail, tool_result_meta=meta))

    def _notify(self, task: str, tool_id: str, status: str, summary: str, **more: Any) -> None:
        self._system(
            "task_notification",
            task_id=task,
            tool_use_id=tool_id,
            status=status,
            output_file="",
            summary=summary,
            **more,
        )

    def _report_background(self) -> None:
        tasks = [{"task_id": t.task_id, "task_type": t.kind, "description": t.description} for t in self.background]
        self._system("background_tasks_changed", tasks=tasks)

    def _system(self, subtype: str, **more: Any) -> None:
        self._turn.send(self._turn.frames.system(subtype, **more))


def task_id(tool_id: str) -> str:
    return f"b{tool_id[-8:]}"


def _described(step: ScriptStep) -> tuple[str, Frame]:
    if step.name == "bash":
        return "Bash", {"command": step.args[0], "description": "Run a command of the script"}
    if step.name == "mcp" and not step.args[0].startswith("mcp__"):
        return f"mcp__clisup__{step.args[0]}", step.args[1]
    return step.args[0], step.args[1]
