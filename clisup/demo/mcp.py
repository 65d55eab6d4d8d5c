"""MCP servers of `--mcp-config`, as a client: started with the process, asked for their tools, called side by side (stdio alone)."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from clisup.demo import VERSION
from clisup.demo.tools import Answer, Call, ReadyCall, deny, is_allowed

if TYPE_CHECKING:
    from clisup.demo.args import Options

__all__ = ["McpCall", "McpServer", "Servers", "unknown"]

Ask = Callable[[str, dict[str, Any], Callable[[dict[str, Any]], Call]], Call]

Frame = dict[str, Any]
PROTOCOL = "2025-11-25"
_START_S = 30.0  # claude's own limit (MCP_TIMEOUT)
_CHUNK = 1 << 20
_CLOSED = "MCP error -32000: Connection closed"
_REJECTED = {"non_execution_kind": "user-rejected", "permission_decision": {"decision": "reject", "source": "config"}}
_ACCEPTED = {"permission_decision": {"decision": "accept", "source": "config", "reason_type": "rule"}}


class McpServer:
    """One server as a child process. It lives as long as the demo: with it its stdin ends."""

    def __init__(self, name: str, entry: Frame) -> None:
        self.name = name
        self.tools: dict[str, Frame] = {}
        self.status = "failed"
        self._serial = 0
        self._rest = b""
        self._answers: dict[int, Frame] = {}
        self._process = _start(entry)

    @property
    def is_open(self) -> bool:
        return self._process is not None

    def connect(self) -> None:
        """The handshake and the list of tools. What goes wrong leaves the server `failed`; nothing is raised."""
        until = time.monotonic() + _START_S
        info = {"name": "clisup-demo", "version": VERSION}
        hello = self._wait(
            self._ask("initialize", protocolVersion=PROTOCOL, capabilities={}, clientInfo=info), until
        )  # fmt: skip
        if not isinstance(hello.get("result"), dict):
            return
        self.say({"method": "notifications/initialized"})
        listed = self._wait(self._ask("tools/list"), until).get("result")
        if isinstance(listed, dict):
            self.tools = {tool["name"]: tool for tool in listed.get("tools", [])}
            self.status = "connected"

    def call(self, tool: str, arguments: Frame, tool_id: str) -> int:
        """Call a tool; gives the id to look the answer up by."""
        meta = {"claudecode/toolUseId": tool_id, "progressToken": self._serial + 1}
        return self._ask("tools/call", name=tool, arguments=arguments, _meta=meta)

    def look(self, request: int) -> Frame | None:
        """The answer to a request, once. None while there is none; an error where none can come any more."""
        if request not in self._answers:
            self._read()
        if request in self._answers:
            return self._answers.pop(request)
        return None if self.is_open else {"error": {"message": _CLOSED}}

    def cancel(self, request: int) -> None:
        """Tell the server that nobody waits for this answer."""
        params = {"requestId": request, "reason": "AbortError: The operation was aborted."}
        self.say({"method": "notifications/cancelled", "params": params})

    def say(self, frame: Frame) -> None:
        """One message. A server that has gone hears nothing."""
        if self._process is None or self._process.stdin is None:
            return
        left = memoryview(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")
        try:
            while left:
                left = left[os.write(self._process.stdin.fileno(), left) :]
        except OSError:
            self._process = None

    def _ask(self, method: str, **params: Any) -> int:
        self._serial += 1
        self.say({"id": self._serial, "method": method, "params": params})
        return self._serial

    def _wait(self, request: int, until: float) -> Frame:
        while (answer := self.look(request)) is None:
            left = until - time.monotonic()
            if left <= 0 or self._process is None or self._process.stdout is None:
                return {}
            select.select([self._process.stdout], [], [], min(left, 0.1))
        return answer

    def _read(self) -> None:
        """Take in what the server has said, without waiting."""
        while self._process is not None and self._process.stdout is not None:
            if not select.select([self._process.stdout], [], [], 0)[0]:
                return
            data = os.read(self._process.stdout.fileno(), _CHUNK)
            if not data:
                self._process = None
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._hear(line)

    def _hear(self, line: bytes) -> None:
        try:
            frame = json.loads(line)
        except ValueError:
            return
        if not isinstance(frame, dict) or "id" not in frame:
            return
        if "method" in frame:  # the server asks: it gets an answer, and nothing but a ping has a good one
            error = {"code": -32601, "message": "Method not found"}
            self.say({"id": frame["id"], **({"result": {}} if frame["method"] == "ping" else {"error": error})})
        elif isinstance(frame["id"], int):
            self._answers[frame["id"]] = frame


class McpCall(Call):
    """A call of a server's tool. The server is asked when it is first looked at: before that the call has no id of its own."""

    is_task = False

    def __init__(self, server: McpServer, tool: str, arguments: Frame) -> None:
        super().__init__()
        self._server, self._tool, self._input = server, tool, arguments
        self._request: int | None = None

    def poll(self) -> Answer | None:
        if self._request is None:
            self._request = self._server.call(self._tool, self._input, self.tool_id)
        answer = self._server.look(self._request)
        return None if answer is None else _answer_of(answer)

    def kill(self) -> None:
        if self._request is not None:
            self._server.cancel(self._request)


class Servers:
    """The servers of one process, and the rules of its `--allowedTools` for their tools."""

    def __init__(self, entries: Frame, options: Options) -> None:
        self.servers = {str(name): McpServer(str(name), entry) for name, entry in entries.items()}
        self._rules = options.values.get("--allowedTools", "").replace(",", " ").split()
        for server in self.servers.values():
            server.connect()

    def describe(self) -> list[Frame]:
        """For the init frame."""
        return [{"name": name, "status": server.status, "source": "dynamic"} for name, server in self.servers.items()]

    def names(self) -> list[str]:
        """The tools of all servers, for the init frame."""
        return sorted(f"mcp__{name}__{tool}" for name, server in self.servers.items() for tool in server.tools)

    def start(self, name: str, arguments: Frame, mode: str, ask: Ask | None) -> Call:
        """A call of the tool, or what stands in its way: it is not there, the mode, a rule that is missing."""
        found = self._find(name)
        if found is None:
            return unknown(name)
        if mode == "plan" and not _reads_only(*found):
            return ReadyCall(f"Cannot call {name} while in plan mode.", is_error=True, meta=_REJECTED)
        if self._has_rule(name, found[0]) or is_allowed(name, arguments, mode):
            return McpCall(*found, arguments)
        if ask is not None and mode != "dontAsk":
            return ask(name, arguments, lambda updated: McpCall(*found, updated))
        return deny(name, arguments)

    def _find(self, name: str) -> tuple[McpServer, str] | None:
        """The server of a tool, and what it calls it."""
        for server in self.servers.values():
            tool = name.removeprefix(f"mcp__{server.name}__")
            if tool != name and tool in server.tools:
                return server, tool
        return None

    def _has_rule(self, name: str, server: McpServer) -> bool:
        return bool({name, f"mcp__{server.name}", f"mcp__{server.name}__*"} & {*self._rules})


def unknown(name: str) -> ReadyCall:
    """What claude answers to a call of a tool that it does not have."""
    said = f"Error: No such tool available: {name}"
    return ReadyCall(f"<tool_use_error>{said}</tool_use_error>", is_error=True, detail=said)


def _reads_only(server: McpServer, tool: str) -> bool:
    annotations = server.tools[tool].get("annotations")
    return isinstance(annotations, dict) and annotations.get("readOnlyHint") is True


def _start(entry: Frame) -> subprocess.Popen[bytes] | None:
    """The server's process, in the group of the demo and with its whole environment, as claude starts it. None where it cannot be."""
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


def _answer_of(frame: Frame) -> Answer:
    """What claude makes of a server's answer: a list of blocks where it went well, one text where it did not."""
    if "error" in frame:
        error = frame["error"]
        return _failure(str(error.get("message") if isinstance(error, dict) else error))
    result = frame.get("result")
    result = result if isinstance(result, dict) else {}
    blocks = [_block(part) for part in result.get("content") or [] if isinstance(part, dict)]
    if result.get("isError") is True:
        return _failure("\n".join(block["text"] for block in blocks if block["type"] == "text"))
    return Answer(blocks, False, blocks, _ACCEPTED)


def _failure(text: str) -> Answer:
    return Answer(text, True, f"Error: {text}", _ACCEPTED)


def _block(part: Frame) -> Frame:
    if part.get("type") == "image":
        source = {"type": "base64", "media_type": part.get("mimeType"), "data": part.get("data")}
        return {"type": "image", "source": source}
    return {"type": "text", "text": str(part.get("text", ""))}
