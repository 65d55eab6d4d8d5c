"""The MCP bridge: to a CLI an MCP server on stdio, to the daemon a client that has the session's tools run.

    CLISUP_BRIDGE_SOCKET=/run/.../clisup.sock CLISUP_BRIDGE_TOKEN=... python -I -S bridge.py

The standard library alone, in one file and one thread, for a CLI starts it with every process of its own. Both variables come from
the session's MCP configuration; the token says whose bridge this is, and is good for nothing but `bridge/hello` and `bridge/call`.

A call gets its id here, and keeps it: where the daemon is restarted or killed in the middle, the bridge connects again and asks
for the same call, so that a client that knows the id runs nothing twice. After `PATIENCE_S` without a daemon the model gets an error.

Source: modelcontextprotocol.io, revisions 2024-11-05 to 2025-11-25 (stdio transport, lifecycle, tools). Newer clients ask
`server/discover` first and go on with `initialize` where that is not known (claude 2.1.329, python-sdk 2.3).
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time

TYPE_CHECKING = False  # `typing` costs as much as half of the rest
if TYPE_CHECKING:
    from typing import Any

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
PATIENCE_S = 120.0
"""So long a daemon that has gone is waited for; a restart takes a second, a machine under load some more."""

RETRY_S = 0.1
RETRY_LIMIT_S = 2.0
MAX_LINE = 64 * 1024 * 1024
"""Of one message of the CLI's. More is no message."""

MAX_CALLS = 63
"""Open at once, until the daemon says how many it takes. More are answered with an error here: a connection with too many requests
is not read, and a cancellation has to be."""

MAX_DEPTH = 199
"""Levels of what is said of a call. The daemon takes 200 in a frame, and around this is the frame itself."""

_CHUNK = 64 * 1024
_NO_METHOD, _NO_PARAMS, _NO_JSON, _INTERNAL = -32601, -32602, -32700, -32603
_GONE = "The tool could not be run, because the supervisor of this session is gone."


class _Over(Exception):
    """The CLI has closed our stdin, or reads no more."""


class _Lines:
    """Cuts bytes into lines. A long one is put together once, at its end."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.held = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are whole now, without their ends."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._parts, lines[0]])
            self._parts, self.held = [], 0
        if rest:
            self._parts.append(rest)
            self.held += len(rest)
        return lines


class _Call:
    """One call of the CLI's: its request's id there, and what is asked of the daemon."""

    def __init__(self, mcp_id: Any, params: dict[str, Any]) -> None:
        self.mcp_id = mcp_id
        self.params = params


class Daemon:
    """The connection to the daemon: made when it is wanted, and again when it is lost. `answered` gets what is said on it."""

    def __init__(self, path: str, token: str, bridge: Bridge) -> None:
        self._path, self._token, self._bridge = path, token, bridge
        self.socket: socket.socket | None = None
        self.ready = False
        self._in, self._out = _Lines(), b""
        self._last_id = 1
        self._lost_at: float | None = None
        self._try_at = 0.0
        self._pause = RETRY_S

    def deadline(self, now: float) -> float | None:
        """Seconds until it has to be tried again; None while it is there."""
        return max(0.0, self._try_at - now) if self.socket is None else None

    def events(self) -> int:
        return select.POLLIN | (select.POLLOUT if self._out else 0)

    def stand(self, now: float) -> None:
        """Connect where it is time to. After `PATIENCE_S` of trying the bridge is told that nobody comes."""
        if self.socket is not None or now < self._try_at:
            return
        self._lost_at = now if self._lost_at is None else self._lost_at
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.connect(self._path)
            uid = int.from_bytes(made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[4:8], sys.byteorder)
            if uid not in (os.geteuid(), 0):  # whoever listens there shall not have the token
                raise PermissionError(0, "another user listens there")
        except OSError as error:
            made.close()
            self._again(now, error.strerror or "it cannot be reached")
            return
        made.setblocking(False)
        self.socket, self._in, self._out = made, _Lines(), b""
        self._say({"jsonrpc": "2.0", "id": 1, "method": "bridge/hello", "params": {"token": self._token}})

    def lose(self, reason: str) -> None:
        """The connection has ended, or is of no use."""
        if self.socket is not None:
            self.socket.close()
        self.socket, self.ready = None, False
        now = time.monotonic()
        if not self._bridge.wanted:
            self._lost_at = None  # the time counts from when it is wanted
        elif self._lost_at is None:
            self._lost_at = now
        self._again(now, reason)

    def rest(self, reason: str) -> None:
        """It has too much to do: leave it alone for a moment."""
        self._pause = RETRY_LIMIT_S
        self.lose(reason)

    def _again(self, now: float, reason: str) -> None:
        self._try_at = now + self._pause
        self._pause = min(self._pause * 2, RETRY_LIMIT_S)
        if self._lost_at is not None and now - self._lost_at > PATIENCE_S:
            self._lost_at = None  # for what comes after this, patience begins anew
            self._bridge.abandoned(reason)

    def request(self, method: str, params: dict[str, Any]) -> int:
        """Ask; gives the request's id. Only while `ready`."""
        self._last_id += 1
        self._say({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        return self._last_id

    def cancel(self, id_: int) -> None:
        self._say({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"id": id_}})

    def _say(self, frame: dict[str, Any]) -> None:
        self._out += json.dumps(frame, separators=(",", ":")).encode() + b"\n"
        self.write()

    def write(self) -> None:
        """What the socket takes now."""
        if self.socket is None or not self._out:
            return
        try:
            self._out = self._out[self.socket.send(self._out) :]
        except BlockingIOError:
            pass
        except OSError as error:
            self.lose(error.strerror or "it does not take what is sent")

    def read(self) -> None:
        """What has come now, frame by frame."""
        if self.socket is None:
            return
        try:
            data = self.socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            self.lose(error.strerror or "reading failed")
            return
        if not data:
            self.lose("it closed the connection")
            return
        try:
            for line in self._in.feed(data):
                if self.socket is not None:
                    self._heard(json.loads(line))
        except (ValueError, LookupError, TypeError, AttributeError):
            self.lose("it says what is not understood")  # whatever serves there, it is no daemon of ours

    def _heard(self, frame: dict[str, Any]) -> None:
        error = frame.get("error")
        if frame.get("id") == 1 and error is None:
            self.ready, self._lost_at, self._pause = True, None, RETRY_S
            self._bridge.welcomed(frame["result"])
        elif frame.get("id") in (1, None) and error is not None:
            if not error.get("data", {}).get("retryable"):
                self._bridge.abandoned(error.get("message", ""))
                self._pause = RETRY_LIMIT_S
            self.lose(error.get("message", "it refused us"))
        elif isinstance(frame.get("id"), int):
            self._bridge.answered(frame["id"], frame.get("result"), error)


class Bridge:
    """What the CLI asks, and what it is answered. `out` writes a line to it."""

    def __init__(self, path: str, token: str, out: Any) -> None:
        self.daemon = Daemon(path, token, self)
        self._out = out
        self._tools: list[dict[str, Any]] | None = None
        self._lists: list[Any] = []  # requests for the tools that wait for the daemon
        self._calls: dict[str, _Call] = {}
        self._asked: dict[int, str] = {}  # request to the daemon -> call_id
        self._max_frame, self._max_calls = 16 * 1024 * 1024, MAX_CALLS

    @property
    def wanted(self) -> bool:
        """Is the daemon needed for anything?"""
        return bool(self._lists or self._calls)

    # -- the CLI's side ----------------------------------------------------------------------------------------------

    def line(self, line: bytes) -> None:
        """One line of the CLI's: a message, or a batch of them (2025-03-26)."""
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            self._error(None, _NO_JSON, "this is no JSON")
            return
        for message in said if isinstance(said, list) else [said]:
            if isinstance(message, dict) and isinstance(message.get("method"), str):
                self._message(message)
            elif not isinstance(message, dict) or not ("result" in message or "error" in message):
                self._error(None, -32600, "this is no message of JSON-RPC 2.0")

    def _message(self, message: dict[str, Any]) -> None:
        method, id_ = message["method"], message.get("id")
        given = message.get("params")
        params: dict[str, Any] = given if isinstance(given, dict) else {}
        if method == "notifications/cancelled":
            self._cancelled(params.get("requestId"))
        elif id_ is None:
            return
        elif method == "initialize":
            self._result(id_, _introduction(params.get("protocolVersion")))
        elif method == "ping":
            self._result(id_, {})
        elif method == "tools/list":
            self._list(id_)
        elif method == "tools/call":
            self._call(id_, params)
        else:
            self._error(id_, _NO_METHOD, f"there is no method {method[:64]!r} here")

    def _list(self, id_: Any) -> None:
        if self._tools is not None:
            self._result(id_, {"tools": self._tools})
        else:
            self._lists.append(id_)

    def _call(self, id_: Any, params: dict[str, Any]) -> None:
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or not isinstance(arguments, dict | None):
            self._error(id_, _NO_PARAMS, "a call has a name, and arguments that are an object")
            return
        given = params.get("_meta")
        meta: dict[str, Any] = given if isinstance(given, dict) else {}
        use = meta.get("claudecode/toolUseId") or meta.get("callId")  # claude 2.1.329; codex 0.169.0
        asked = {"call_id": _uuid(), "name": name, "input": arguments or {}}
        call = _Call(id_, {**asked, "tool_use_id": use} if isinstance(use, str) else asked)
        if len(self._calls) >= self._max_calls:
            self._failed(
                call, f"The tool was not run, because {len(self._calls)} calls are open: wait for their results."
            )
        elif (reason := _unspeakable(call.params)) is not None:
            self._failed(call, f"The tool was not run, because its call {reason}: mend it and call again.")
        elif len(json.dumps(call.params)) > self._max_frame - 1024:
            self._failed(call, f"The tool was not run, because its input is larger than {self._max_frame} bytes.")
        else:
            self._calls[call.params["call_id"]] = call
            self._pass_on(call)

    def _cancelled(self, mcp_id: Any) -> None:
        for call_id, call in list(self._calls.items()):
            if call.mcp_id == mcp_id and type(call.mcp_id) is type(mcp_id):
                del self._calls[call_id]
                for id_ in [id_ for id_, asked in self._asked.items() if asked == call_id]:
                    del self._asked[id_]
                    self.daemon.cancel(id_)

    # -- the daemon's side -------------------------------------------------------------------------------------------

    def _pass_on(self, call: _Call) -> None:
        if self.daemon.ready:
            self._asked[self.daemon.request("bridge/call", call.params)] = call.params["call_id"]

    def welcomed(self, result: dict[str, Any]) -> None:
        """The daemon knows us: what waits for it goes on, the calls by the ids that they have."""
        self._tools = [_tool(tool) for tool in result["tools"]]
        self._max_frame, self._max_calls = result["max_frame_bytes"], result["max_calls"]
        lists, self._lists = self._lists, []
        for id_ in lists:
            self._result(id_, {"tools": self._tools})
        self._asked.clear()
        for call in list(self._calls.values()):
            self._pass_on(call)

    def answered(self, id_: int, result: Any, error: Any) -> None:
        """The daemon's answer to a call."""
        call = self._calls.get(self._asked.pop(id_, ""))
        if call is None:
            return
        if error is not None and error.get("data", {}).get("retryable"):
            self.daemon.rest(error.get("message", ""))  # the call stays open, and is asked for again after the pause
            return
        del self._calls[call.params["call_id"]]
        if error is not None:
            self._failed(call, f"The tool could not be run: {error.get('message', 'the daemon gave no reason')}")
        else:
            self._result(call.mcp_id, {"content": _content(result["content"]), "isError": bool(result["is_error"])})

    def abandoned(self, reason: str) -> None:
        """Nobody is there, or nobody who knows us: whatever waits is answered."""
        calls, self._calls = self._calls, {}
        lists, self._lists = self._lists, []
        self._asked.clear()
        for call in calls.values():
            self._failed(call, f"{_GONE} ({reason})")
        for id_ in lists:
            self._error(id_, _INTERNAL, f"the supervisor of this session is gone ({reason})")

    # -- saying ------------------------------------------------------------------------------------------------------

    def _failed(self, call: _Call, text: str) -> None:
        """An error that the model can read; an error of the protocol's would be told differently by each CLI."""
        self._result(call.mcp_id, {"content": [{"type": "text", "text": text}], "isError": True})

    def _result(self, id_: Any, result: dict[str, Any]) -> None:
        self._out({"jsonrpc": "2.0", "id": id_, "result": result})

    def _error(self, id_: Any, code: int, message: str) -> None:
        self._out({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}})


def _introduction(asked: Any) -> dict[str, Any]:
    version = asked if asked in VERSIONS else VERSIONS[-1]
    info = {"name": "clisup", "version": "1"}
    return {"protocolVersion": version, "capabilities": {"tools": {"listChanged": False}}, "serverInfo": info}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """`readOnlyHint`: whoever opened the session offers its own tools on purpose. Without it claude 2.1.329 runs them one after
    the other, and in plan mode not at all."""
    hints = {"annotations": {"readOnlyHint": True}}
    return {
        "name": tool["name"],
        "description": tool.get("description", ""),
        "inputSchema": tool["input_schema"],
        **hints,
    }


def _content(said: Any) -> list[dict[str, Any]]:
    if isinstance(said, str):
        return [{"type": "text", "text": said}]
    return [_block(block) for block in said]


def _block(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] == "image":
        return {"type": "image", "data": block["data"], "mimeType": block["media_type"]}
    return {"type": "text", "text": block["text"]}


def _unspeakable(params: Any) -> str | None:
    """Why the daemon would not take these as JSON, and then could not even say which call they are of. None where it does."""
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


def _uuid() -> str:
    """A random UUID; the module for it takes as long to load as all others here."""
    raw = bytearray(os.urandom(16))
    raw[6], raw[8] = raw[6] & 0x0F | 0x40, raw[8] & 0x3F | 0x80
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _write(message: dict[str, Any]) -> None:
    data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        raise _Over from None


def _serve(bridge: Bridge) -> None:
    """Until the CLI closes our stdin."""
    lines = _Lines()
    daemon = bridge.daemon
    while True:
        wait = None
        if bridge.wanted:
            daemon.stand(time.monotonic())
            wait = daemon.deadline(time.monotonic())
        poll = select.poll()
        poll.register(0, select.POLLIN)
        if daemon.socket is not None:
            poll.register(daemon.socket.fileno(), daemon.events())
        ready = dict(poll.poll(None if wait is None else wait * 1000 + 1))
        heard = daemon.socket is not None and daemon.socket.fileno() in ready
        if heard:
            daemon.write()
            daemon.read()
        if 0 in ready:
            data = os.read(0, _CHUNK)
            if not data or lines.held > MAX_LINE:
                raise _Over
            for line in lines.feed(data):
                if line.strip():
                    bridge.line(line)


def main() -> int:
    """Serve stdio; the exit code. 2 where the environment does not say whose bridge this is."""
    path, token = os.environ.get("CLISUP_BRIDGE_SOCKET"), os.environ.get("CLISUP_BRIDGE_TOKEN")
    if not path or not token:
        os.write(
            2,
            b"cannot serve, because CLISUP_BRIDGE_SOCKET or CLISUP_BRIDGE_TOKEN is not set: a session's CLI starts this\n",
        )
        return 2
    try:
        _serve(Bridge(path, token, _write))
    except _Over:
        pass
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
