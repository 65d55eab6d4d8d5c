"""Tool calls: pretended ones, real shell commands, and those that need a permission."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = ["Answer", "Call", "ReadyCall", "ShellCall", "carry_out", "deny", "is_allowed", "pretend"]

_OUTPUT_LIMIT = 30_000  # characters of a command's output that reach the model, claude's own default
_FILE_TOOLS = ("Edit", "Write")


class Answer(NamedTuple):
    """What a tool gave: the text for the model (blocks from an MCP server), and `detail`, claude's `tool_use_result`."""

    content: Any
    is_error: bool
    detail: Any
    meta: dict[str, Any]


_ACCEPTED = {"permission_decision": {"decision": "accept", "source": "config", "reason_type": "mode"}}
_REJECTED = {"non_execution_kind": "user-rejected", "permission_decision": {"decision": "reject", "source": "config"}}


_INTERRUPTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected. STOP what you are doing and wait for "
    "the user to tell you how to proceed."
)


class Call:
    """A tool call that runs. Who starts it says what its block was called."""

    tool_id = ""
    name = ""
    arguments: Mapping[str, Any] = MappingProxyType({})
    overdue = False
    """Whether it has had its time and goes on in the background."""
    asked = False
    """Whether somebody was asked for its permission, so that a refusal is no news."""
    waits = False
    """Whether it has not begun, because it still waits for its permission."""
    is_task = True
    """Whether claude makes a task of it when it takes longer; a call without one is only said to go on."""

    def __init__(self) -> None:
        self.began = time.monotonic()

    def poll(self) -> Answer | None:
        """The answer, or None while the tool runs."""
        raise NotImplementedError

    def kill(self) -> None:
        """End it. It may have ended already."""

    def killed(self, *, interrupted: bool) -> Answer:
        """What claude answers for a tool that it had to kill."""
        if interrupted:
            return Answer(_INTERRUPTED, True, "User rejected tool use", {"non_execution_kind": "user-rejected"})
        return Answer("Exit code 137", True, "Error: Exit code 137", _ACCEPTED)


class ReadyCall(Call):
    """A call whose answer is known at once."""

    def __init__(
        self, content: str, *, is_error: bool = False, detail: Any = None, meta: dict[str, Any] = _ACCEPTED
    ) -> None:
        super().__init__()
        shown = f"Error: {content}" if is_error else content
        self._answer = Answer(content, is_error, shown if detail is None else detail, meta)

    def poll(self) -> Answer | None:
        return self._answer


class ShellCall(Call):
    """`/bin/sh -c command` in a session of its own, as claude runs Bash: killing the CLI's group does not reach it.

    Its output goes to a file in memory and not to a pipe, so that what it leaves in the background holds nothing up.
    """

    def __init__(self, command: str, *, timeout: float = math.inf, variables: dict[str, str] | None = None) -> None:
        super().__init__()
        self._deadline = self.began + timeout
        self._output = os.memfd_create("clisup-demo-bash")
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output,
            start_new_session=True, env={**os.environ, **(variables or {})},
        )  # fmt: skip

    def poll(self) -> Answer | None:
        code = self._process.poll()
        if code is None:
            self.overdue = time.monotonic() >= self._deadline
            return None
        output = self._read()
        if code == 0:
            detail = {"stdout": output, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
            return Answer(output or "(Bash completed with no output)", False, detail, _ACCEPTED)
        shown = 128 - code if code < 0 else code
        content = f"Exit code {shown}\n{output}".rstrip("\n")
        return Answer(content, True, f"Error: {content}", _ACCEPTED)

    def kill(self) -> None:
        """Kill the command's process group; what has made a session of its own survives, as with claude."""
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


def is_allowed(name: str, arguments: dict[str, Any], mode: str) -> bool:
    """Whether this permission mode lets a tool run without asking: acceptEdits means files below the working directory."""
    if mode == "bypassPermissions":
        return True
    return mode == "acceptEdits" and name in _FILE_TOOLS and _is_below_cwd(str(arguments.get("file_path", "")))


def deny(name: str, arguments: dict[str, Any]) -> ReadyCall:
    """The answer that a refused tool gets."""
    target = f"write to {os.path.abspath(str(arguments['file_path']))}" if "file_path" in arguments else f"use {name}"
    message = f"Claude requested permissions to {target}, but you haven't granted it yet."
    return ReadyCall(message, is_error=True, meta=_REJECTED)


def pretend(name: str, arguments: dict[str, Any]) -> Call:
    """Answer what the tool would have done. A prompt is a script: its words run and write nothing by themselves."""
    if name == "Bash":
        return ReadyCall(f"The demo only pretends. It would have run: {arguments.get('command', '')}")
    if name in _FILE_TOOLS:
        return ReadyCall(f"The demo only pretends. It would have written: {arguments.get('file_path', '')}")
    return ReadyCall("ok")


def carry_out(name: str, arguments: dict[str, Any]) -> Call:
    """Run a Bash, or make the change of a Write or an Edit. Any other tool is pretended."""
    if name == "Bash" and "command" in arguments:
        return ShellCall(str(arguments["command"]))
    return _edit_file(name, arguments) if name in _FILE_TOOLS else pretend(name, arguments)


def _edit_file(name: str, arguments: dict[str, Any]) -> ReadyCall:
    actions: dict[str, Callable[[str, dict[str, Any]], str]] = {"Write": _write, "Edit": _edit}
    path = os.path.abspath(str(arguments.get("file_path", "")))
    try:
        said = actions[name](path, arguments)
    except (OSError, ValueError) as error:
        return ReadyCall(str(error), is_error=True)
    return ReadyCall(said, detail={"filePath": path, "structuredPatch": [], "originalFile": None})


def _write(path: str, arguments: dict[str, Any]) -> str:
    with open(path, "w", encoding="utf-8") as file:
        file.write(str(arguments.get("content", "")))
    return f"File created successfully at: {path}"


def _edit(path: str, arguments: dict[str, Any]) -> str:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    old = str(arguments.get("old_string", ""))
    if not old or old not in text:
        raise ValueError("String to replace not found in file.")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(old, str(arguments.get("new_string", "")), 1))
    return f"The file {path} has been updated successfully."


def _is_below_cwd(path: str) -> bool:
    root = os.path.realpath(os.getcwd())
    return bool(path) and os.path.realpath(path).startswith(root.rstrip("/") + "/")
