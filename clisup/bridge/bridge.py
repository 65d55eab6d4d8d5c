"""MCP bridge: an MCP server on stdio for a CLI, and a client of the daemon for calls of the session's tools.

    CLISUP_BRIDGE_SOCKET=/run/.../clisup.sock CLISUP_BRIDGE_TOKEN=... python -I -S bridge.py

The bridge is one file with the standard library alone, because each CLI process starts a bridge. Both variables come
from the session's MCP configuration. The token names the session, and only serves `bridge/hello` and `bridge/call`.

The bridge gives each call an id. After a restart or kill of the daemon, the bridge connects again and repeats the open
calls. A client that knows the id runs nothing twice. After `PATIENCE_S` without a daemon the model gets an error.

Source: modelcontextprotocol.io, revisions 2024-11-05 to 2025-11-25 (stdio transport, lifecycle, tools). Newer clients send
`server/discover` first, and `initialize` if the first method is unknown (claude 2.1.329, python-sdk 2.3).
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

JsonObject = dict[str, Any]
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
PATIENCE_S = 120.0
"""Seconds to wait for a lost daemon. A restart takes a second, more on a busy machine."""

RETRY_S = 0.1
RETRY_LIMIT_S = 2.0
MAX_LINE = 64 * 1024 * 1024
"""Limit of one message of the CLI in bytes. The bridge exits at a longer message."""

MAX_CALLS = 63
"""Limit of open calls, until the daemon gives its own limit.

Beyond the limit the bridge answers with an error. The daemon does not read a connection with too many requests, and
could then not read a cancellation.
"""

MAX_DEPTH = 199
"""Limit of nesting in a call. The daemon accepts 200 levels in a frame, and the frame is one level."""

_CHUNK = 64 * 1024
_NO_METHOD, _NO_PARAMS, _NO_JSON, _INTERNAL = -32601, -32602, -32700, -32603
_GEMINI = "gemini-cli-mcp-client"
_GONE = "The tool could not be run, because the supervisor of this session is gone."


class _Closed(Exception):
    """The CLI closed our stdin, or does not read any more."""


class _LineBuffer:
    """Splitter of bytes into lines. The parts of a long line are joined once, at its end."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.held = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now, without line ends."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._parts, lines[0]])
            self._parts, self.held = [], 0
        if rest:
            self._parts.append(rest)
            self.held += len(rest)
        return lines


class _ToolRequest:
    """Call of the CLI: the id of the MCP request, and the params for the daemon."""

    def __init__(self, mcp_id: Any, params: JsonObject) -> None:
        self.mcp_id = mcp_id
        self.params = params


class DaemonConnection:
    """Connection to the daemon. The bridge connects on demand, and again after a loss."""

    def __init__(self, path: str, token: str, bridge: Bridge) -> None:
        self._path, self._token, self._bridge = path, token, bridge
        self.socket: socket.socket | None = None
        self.ready = False
        self._in, self._out = _LineBuffer(), b""
        self._last_id = 1
        self._lost_at: float | None = None
        self._try_at = 0.0
        self._pause = RETRY_S

    def deadline(self, now: float) -> float | None:
        """Return the seconds until the next try, or None while connected."""
        return max(0.0, self._try_at - now) if self.socket is None else None

    def events(self) -> int:
        """Return the events to poll for."""
        return select.POLLIN | (select.POLLOUT if self._out else 0)

    def connect(self, now: float) -> None:
        """Connect, if it is time. After `PATIENCE_S` without success all calls fail."""
        if self.socket is not None or now < self._try_at:
            return
        self._lost_at = now if self._lost_at is None else self._lost_at
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(self._path)
            _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if uid not in (os.geteuid(), 0):  # another user must not get the token
                raise PermissionError(0, "another user listens there")
        except OSError as error:
            sock.close()
            self._retry_later(now, error.strerror or "the daemon cannot be reached")
            return
        sock.setblocking(False)
        self.socket, self._in, self._out = sock, _LineBuffer(), b""
        self._send({"jsonrpc": "2.0", "id": 1, "method": "bridge/hello", "params": {"token": self._token}})

    def disconnect(self, reason: str) -> None:
        """Close the connection, to try again later."""
        if self.socket is not None:
            self.socket.close()
        self.socket, self.ready = None, False
        now = time.monotonic()
        if not self._bridge.needs_daemon:
            self._lost_at = None  # the time counts from the next need
        elif self._lost_at is None:
            self._lost_at = now
        self._retry_later(now, reason)

    def back_off(self, reason: str) -> None:
        """Close the connection to an overloaded daemon, and wait before the next try."""
        self._pause = RETRY_LIMIT_S
        self.disconnect(reason)

    def _retry_later(self, now: float, reason: str) -> None:
        self._try_at = now + self._pause
        self._pause = min(self._pause * 2, RETRY_LIMIT_S)
        if self._lost_at is not None and now - self._lost_at > PATIENCE_S:
            self._lost_at = None  # later calls get the whole time again
            self._bridge.fail_all(reason)

    def request(self, method: str, params: JsonObject) -> int:
        """Send a request and return its id. Call this only while `ready`."""
        self._last_id += 1
        self._send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        return self._last_id

    def cancel(self, id_: int) -> None:
        """Cancel a request."""
        self._send({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"id": id_}})

    def _send(self, frame: JsonObject) -> None:
        self._out += json.dumps(frame, separators=(",", ":")).encode() + b"\n"
        self.write()

    def write(self) -> None:
        """Write as much as the socket takes now."""
        if self.socket is None or not self._out:
            return
        try:
            self._out = self._out[self.socket.send(self._out) :]
        except BlockingIOError:
            pass
        except OSError as error:
            self.disconnect(error.strerror or "writing failed")

    def read(self) -> None:
        """Read the arrived bytes, and handle each frame."""
        if self.socket is None:
            return
        try:
            data = self.socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            self.disconnect(error.strerror or "reading failed")
            return
        if not data:
            self.disconnect("the daemon closed the connection")
            return
        try:
            for line in self._in.feed(data):
                if self.socket is not None:
                    self._handle(json.loads(line))
        except (ValueError, LookupError, TypeError, AttributeError):
            self.disconnect("the server is no clisup daemon")

    def _handle(self, frame: JsonObject) -> None:
        error = frame.get("error")
        if frame.get("id") == 1 and error is None:
            self.ready, self._lost_at, self._pause = True, None, RETRY_S
            self._bridge.on_hello(frame["result"])
        elif frame.get("id") in (1, None) and error is not None:
            if not error.get("data", {}).get("retryable"):
                self._bridge.fail_all(error.get("message", ""))
                self._pause = RETRY_LIMIT_S
            self.disconnect(error.get("message", "the daemon refused the bridge"))
        elif isinstance(frame.get("id"), int):
            self._bridge.on_answer(frame["id"], frame.get("result"), error)


class Bridge:
    """MCP server of one CLI process. `write` sends one message to the CLI."""

    def __init__(self, path: str, token: str, write: Callable[[JsonObject], None]) -> None:
        self.daemon = DaemonConnection(path, token, self)
        self._write = write
        self._tools: list[JsonObject] | None = None
        self._is_gemini = False
        self._lists: list[Any] = []  # ids of tools/list requests that wait for the daemon
        self._calls: dict[str, _ToolRequest] = {}
        self._requests: dict[int, str] = {}  # id of the request to the daemon -> call_id
        self._max_frame, self._max_calls = 16 * 1024 * 1024, MAX_CALLS

    @property
    def needs_daemon(self) -> bool:
        """Tell whether a request waits for the daemon."""
        return bool(self._lists or self._calls)

    # -- messages of the CLI -----------------------------------------------------------------------------------------

    def handle_line(self, line: bytes) -> None:
        """Handle one line of the CLI: a message, or a batch of messages (2025-03-26)."""
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            self._send_error(None, _NO_JSON, "this is no JSON")
            return
        for message in content if isinstance(content, list) else [content]:
            if isinstance(message, dict) and isinstance(message.get("method"), str):
                self._handle(message)
            elif not isinstance(message, dict) or not ("result" in message or "error" in message):
                self._send_error(None, -32600, "this is no message of JSON-RPC 2.0")

    def _handle(self, message: JsonObject) -> None:
        method, id_ = message["method"], message.get("id")
        given = message.get("params")
        params: JsonObject = given if isinstance(given, dict) else {}
        if method == "notifications/cancelled":
            self._cancel(params.get("requestId"))
        elif id_ is None:
            return
        elif method == "initialize":
            client = params.get("clientInfo")
            self._is_gemini = isinstance(client, dict) and client.get("name") == _GEMINI
            self._send_result(id_, _introduction(params.get("protocolVersion")))
        elif method == "ping":
            self._send_result(id_, {})
        elif method == "tools/list":
            self._list(id_)
        elif method == "tools/call":
            self._call(id_, params)
        else:
            self._send_error(id_, _NO_METHOD, f"there is no method {method[:64]!r} here")

    def _list(self, id_: Any) -> None:
        if self._tools is not None:
            self._send_result(id_, {"tools": self._tools})
        else:
            self._lists.append(id_)

    def _call(self, id_: Any, params: JsonObject) -> None:
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or not isinstance(arguments, dict | None):
            self._send_error(id_, _NO_PARAMS, "a call has a name, and arguments that are an object")
            return
        given = params.get("_meta")
        meta: JsonObject = given if isinstance(given, dict) else {}
        use = meta.get("claudecode/toolUseId") or meta.get("callId")  # claude 2.1.329; codex 0.169.0
        asked = {"call_id": str(uuid.uuid4()), "name": name, "input": arguments or {}}
        call = _ToolRequest(id_, {**asked, "tool_use_id": use} if isinstance(use, str) else asked)
        if len(self._calls) >= self._max_calls:
            self._fail(
                call, f"The tool was not run, because {len(self._calls)} calls are open: wait for their results."
            )
        elif (reason := _encoding_fault(call.params)) is not None:
            self._fail(call, f"The tool was not run, because its call {reason}: mend it and call again.")
        elif len(json.dumps(call.params)) > self._max_frame - 1024:
            self._fail(call, f"The tool was not run, because its input is larger than {self._max_frame} bytes.")
        else:
            self._calls[call.params["call_id"]] = call
            self._forward(call)

    def _cancel(self, mcp_id: Any) -> None:
        for call_id, call in list(self._calls.items()):
            if call.mcp_id == mcp_id and type(call.mcp_id) is type(mcp_id):
                del self._calls[call_id]
                for id_ in [id_ for id_, asked in self._requests.items() if asked == call_id]:
                    del self._requests[id_]
                    self.daemon.cancel(id_)

    # -- messages of the daemon --------------------------------------------------------------------------------------

    def _forward(self, call: _ToolRequest) -> None:
        if self.daemon.ready:
            self._requests[self.daemon.request("bridge/call", call.params)] = call.params["call_id"]

    def on_hello(self, result: JsonObject) -> None:
        """Continue the requests that waited for the daemon. Open calls keep their ids."""
        self._tools = [_tool(tool) for tool in result["tools"]]
        self._max_frame, self._max_calls = result["max_frame_bytes"], result["max_calls"]
        lists, self._lists = self._lists, []
        for id_ in lists:
            self._send_result(id_, {"tools": self._tools})
        self._requests.clear()
        for call in list(self._calls.values()):
            self._forward(call)

    def on_answer(self, id_: int, result: Any, error: Any) -> None:
        """Pass the daemon's answer to a call on to the CLI."""
        call = self._calls.get(self._requests.pop(id_, ""))
        if call is None:
            return
        if error is not None and error.get("data", {}).get("retryable"):
            self.daemon.back_off(error.get("message", ""))  # the call stays open, and is sent again after the pause
            return
        del self._calls[call.params["call_id"]]
        if error is not None:
            self._fail(call, f"The tool could not be run: {error.get('message', 'the daemon gave no reason')}")
        else:
            content = _content(result["content"])
            if self._is_gemini and _is_plain_json(content):
                content.insert(0, {"type": "text", "text": ""})
            self._send_result(call.mcp_id, {"content": content, "isError": bool(result["is_error"])})

    def fail_all(self, reason: str) -> None:
        """Answer all open requests with an error: no daemon answers, or the daemon does not know this bridge."""
        calls, self._calls = self._calls, {}
        lists, self._lists = self._lists, []
        self._requests.clear()
        for call in calls.values():
            self._fail(call, f"{_GONE} ({reason})")
        for id_ in lists:
            self._send_error(id_, _INTERNAL, f"the supervisor of this session is gone ({reason})")

    # -- messages to the CLI -----------------------------------------------------------------------------------------

    def _fail(self, call: _ToolRequest, text: str) -> None:
        """Send an error for the model to read. CLIs differ in how they show an error of the protocol."""
        self._send_result(call.mcp_id, {"content": [{"type": "text", "text": text}], "isError": True})

    def _send_result(self, id_: Any, result: JsonObject) -> None:
        self._write({"jsonrpc": "2.0", "id": id_, "result": result})

    def _send_error(self, id_: Any, code: int, message: str) -> None:
        self._write({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}})


def _introduction(asked: Any) -> JsonObject:
    version = asked if asked in VERSIONS else VERSIONS[-1]
    info = {"name": "clisup", "version": "1"}
    return {"protocolVersion": version, "capabilities": {"tools": {"listChanged": False}}, "serverInfo": info}


def _tool(tool: JsonObject) -> JsonObject:
    """Return a tool in MCP's form.

    `readOnlyHint`: the program that opened the session offers these tools on purpose. Without the hint, claude 2.1.329
    runs the tools one after the other, and runs no tool in plan mode.
    """
    return {
        "name": tool["name"],
        "description": tool.get("description", ""),
        "inputSchema": tool["input_schema"],
        "annotations": {"readOnlyHint": True},
    }


def _content(content: Any) -> list[JsonObject]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_block(block) for block in content]


def _is_plain_json(content: list[JsonObject]) -> bool:
    """Tell whether the first text is JSON, but no object.

    gemini 0.61.0 takes a first text that is JSON for the structured content, and refuses the result if the value is no object.
    """
    try:
        return bool(content) and not isinstance(json.loads(content[0].get("text", "")), dict)
    except (ValueError, RecursionError):
        return False


def _block(block: JsonObject) -> JsonObject:
    if block["type"] == "image":
        return {"type": "image", "data": block["data"], "mimeType": block["media_type"]}
    return {"type": "text", "text": block["text"]}


def _encoding_fault(params: Any) -> str | None:
    """Return the reason why the daemon would refuse these params as JSON without naming the call. None for valid params."""
    level = [params]
    for _ in range(MAX_DEPTH):
        level = [inner for node in level for inner in (node.values() if isinstance(node, dict) else node)]
        level = [inner for inner in level if isinstance(inner, dict | list)]
    if level:
        return f"is nested more than {MAX_DEPTH} levels deep"
    try:
        json.dumps(params, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        return "has half a surrogate pair in it, which is no character"
    except ValueError:
        return "has a number in it that JSON does not know"
    return None


def _write_stdout(message: JsonObject) -> None:
    data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        raise _Closed from None


def _serve(bridge: Bridge) -> None:
    lines = _LineBuffer()
    daemon = bridge.daemon
    while True:
        wait = None
        if bridge.needs_daemon:
            daemon.connect(time.monotonic())
            wait = daemon.deadline(time.monotonic())
        poll = select.poll()
        poll.register(0, select.POLLIN)
        if daemon.socket is not None:
            poll.register(daemon.socket.fileno(), daemon.events())
        ready = dict(poll.poll(None if wait is None else wait * 1000 + 1))
        if daemon.socket is not None and daemon.socket.fileno() in ready:
            daemon.write()
            daemon.read()
        if 0 in ready:
            data = os.read(0, _CHUNK)
            if not data or lines.held > MAX_LINE:
                raise _Closed
            for line in lines.feed(data):
                if line.strip():
                    bridge.handle_line(line)


def main() -> int:
    """Serve stdio. Return the exit code: 2 if the environment does not name a session."""
    path, token = os.environ.get("CLISUP_BRIDGE_SOCKET"), os.environ.get("CLISUP_BRIDGE_TOKEN")
    if not path or not token:
        print(
            "cannot serve, because CLISUP_BRIDGE_SOCKET or CLISUP_BRIDGE_TOKEN is not set: a session's CLI starts this",
            file=sys.stderr,
        )
        return 2
    try:
        _serve(Bridge(path, token, _write_stdout))
    except _Closed:
        pass
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
