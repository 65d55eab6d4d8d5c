"""MCP client of the demo CLI: the stdio servers of --mcp-config, and calls of their tools."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from typing import Any

from clisup.demo import VERSION
from clisup.demo.arguments import CommandLine
from clisup.demo.tools import REJECTED, Ask, CallAnswer, ReadyCall, RunningCall, is_allowed, refuse, unknown_tool
from clisup.stream_json.frames import Frame

__all__ = ["StdioServers"]

_PROTOCOL = "2025-11-25"
_START_S = 30.0  # claude's own limit (MCP_TIMEOUT)
_CHUNK = 1 << 20
_CLOSED = "MCP error -32000: Connection closed"
_ACCEPTED = {"permission_decision": {"decision": "accept", "source": "config", "reason_type": "rule"}}


class _Server:
    """Server in a child process, which lives as long as the demo. `tools` are empty and `status` is `failed` without an answer."""

    def __init__(self, name: str, entry: Frame) -> None:
        self.name = name
        self.tools: dict[str, Frame] = {}
        self.status = "failed"
        self._serial = 0
        self._rest = b""
        self._answers: dict[int, Frame] = {}
        self._process = _start(entry)

    def connect(self) -> None:
        """Shake hands with the server and list its tools."""
        until = time.monotonic() + _START_S
        info = {"name": "clisup-demo", "version": VERSION}
        hello = self.request("initialize", protocolVersion=_PROTOCOL, capabilities={}, clientInfo=info)
        if not isinstance(self._wait(hello, until).get("result"), dict):
            return
        self.send({"method": "notifications/initialized"})
        listed = self._wait(self.request("tools/list"), until).get("result")
        if isinstance(listed, dict):
            self.tools = {tool["name"]: tool for tool in listed.get("tools", [])}
            self.status = "connected"

    def request(self, method: str, **params: Any) -> int:
        """Send a request and return its id."""
        self._serial += 1
        self.send({"id": self._serial, "method": method, "params": params})
        return self._serial

    def answer(self, request: int) -> Frame | None:
        """Return the answer to a request, once. None before the answer, an error after the end of the server."""
        if request not in self._answers:
            self._read()
        if request in self._answers:
            return self._answers.pop(request)
        return None if self._process is not None else {"error": {"message": _CLOSED}}

    def send(self, frame: Frame) -> None:
        if self._process is None or self._process.stdin is None:
            return
        left = memoryview(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")
        try:
            while left:
                left = left[os.write(self._process.stdin.fileno(), left) :]
        except OSError:
            self._process = None

    def _wait(self, request: int, until: float) -> Frame:
        while (answer := self.answer(request)) is None:
            left = until - time.monotonic()
            if left <= 0 or self._process is None or self._process.stdout is None:
                return {}
            select.select([self._process.stdout], [], [], min(left, 0.1))
        return answer

    def _read(self) -> None:
        """Read the server's output without waiting."""
        while self._process is not None and self._process.stdout is not None:
            if not select.select([self._process.stdout], [], [], 0)[0]:
                return
            data = os.read(self._process.stdout.fileno(), _CHUNK)
            if not data:
                self._process = None
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._receive(line)

    def _receive(self, line: bytes) -> None:
        try:
            frame = json.loads(line)
        except ValueError:
            return
        if not isinstance(frame, dict) or "id" not in frame:
            return
        if "method" in frame:  # a request of the server: only a ping has a good answer
            error = {"code": -32601, "message": "Method not found"}
            self.send({"id": frame["id"], **({"result": {}} if frame["method"] == "ping" else {"error": error})})
        elif isinstance(frame["id"], int):
            self._answers[frame["id"]] = frame


class McpCall(RunningCall):
    """Call of a server's tool. The first poll sends the request, because the call has no id before."""

    is_task = False

    def __init__(self, server: _Server, tool: str, arguments: Frame) -> None:
        super().__init__()
        self._server, self._tool, self._input = server, tool, arguments
        self._request: int | None = None

    def poll(self) -> CallAnswer | None:
        if self._request is None:
            meta = {"claudecode/toolUseId": self.tool_id, "progressToken": self.tool_id}
            self._request = self._server.request("tools/call", name=self._tool, arguments=self._input, _meta=meta)
        answer = self._server.answer(self._request)
        return None if answer is None else _tool_answer(answer)

    def kill(self) -> None:
        if self._request is not None:
            params = {"requestId": self._request, "reason": "AbortError: The operation was aborted."}
            self._server.send({"method": "notifications/cancelled", "params": params})


class StdioServers:
    """The servers of a process, and the rules of --allowedTools for their tools."""

    def __init__(self, entries: Frame, command: CommandLine) -> None:
        self._servers = [_Server(str(name), entry) for name, entry in entries.items()]
        self._rules = {*command.values.get("--allowedTools", "").replace(",", " ").split()}
        for server in self._servers:
            server.connect()

    def describe(self) -> list[Frame]:
        """Return the servers for the init frame."""
        return [{"name": server.name, "status": server.status, "source": "dynamic"} for server in self._servers]

    def names(self) -> list[str]:
        """Return the tools of all servers for the init frame."""
        return sorted(f"mcp__{server.name}__{tool}" for server in self._servers for tool in server.tools)

    def start(self, name: str, arguments: Frame, mode: str, ask: Ask | None) -> RunningCall:
        """Call a tool, ask for permission, or refuse the call."""
        found = self._find(name)
        if found is None:
            return unknown_tool(name)
        server, tool = found
        annotations = server.tools[tool].get("annotations")
        if mode == "plan" and not (isinstance(annotations, dict) and annotations.get("readOnlyHint") is True):
            return ReadyCall(f"Cannot call {name} while in plan mode.", is_error=True, meta=REJECTED)
        ruled = {name, f"mcp__{server.name}", f"mcp__{server.name}__*"} & self._rules
        if ruled or is_allowed(name, arguments, mode):
            return McpCall(server, tool, arguments)
        if ask is not None and mode != "dontAsk":
            return ask(name, arguments, lambda updated: McpCall(server, tool, updated))
        return refuse(name, arguments)

    def _find(self, name: str) -> tuple[_Server, str] | None:
        for server in self._servers:
            tool = name.removeprefix(f"mcp__{server.name}__")
            if tool != name and tool in server.tools:
                return server, tool
        return None


def _start(entry: Frame) -> subprocess.Popen[bytes] | None:
    """Start a server in the demo's process group, with the demo's environment, as claude does. None for a wrong entry."""
    if not isinstance(entry, dict) or entry.get("type", "stdio") != "stdio":
        return None
    argv = [str(entry.get("command", "")), *map(str, entry.get("args", ()))]
    env = {**os.environ, **{str(name): str(value) for name, value in (entry.get("env") or {}).items()}}
    try:
        return subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, bufsize=0
        )
    except (OSError, ValueError):
        return None


def _tool_answer(frame: Frame) -> CallAnswer:
    """Convert a server's answer as claude does: blocks after a success, a text after a failure."""
    result = frame.get("result")
    result = result if isinstance(result, dict) else {}
    blocks = [_block(part) for part in result.get("content") or [] if isinstance(part, dict)]
    if "error" in frame:
        error = frame["error"]
        text = str(error.get("message") if isinstance(error, dict) else error)
    elif result.get("isError") is True:
        text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    else:
        return CallAnswer(blocks, False, blocks, _ACCEPTED)
    return CallAnswer(text, True, f"Error: {text}", _ACCEPTED)


def _block(part: Frame) -> Frame:
    if part.get("type") == "image":
        source = {"type": "base64", "media_type": part.get("mimeType"), "data": part.get("data")}
        return {"type": "image", "source": source}
    return {"type": "text", "text": str(part.get("text", ""))}
