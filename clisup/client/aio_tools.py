"""Serving a session's tools: each `tool/call` of the daemon runs here, concurrently with the others, and never twice.

    async def run(call: ToolCall) -> ToolReply:
        return ToolReply(str(eval_(call.input["expression"])))

    async with open_client() as client, trio.open_nursery() as nursery:
        nursery.start_soon(serve_tools, client, session_id, run)

After a restart the daemon sends open calls again, by the same ids. A running tool is then awaited, and a finished one is answered
with its result. That holds for one `serve_tools`: another process does not know the calls.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import trio

from clisup.client.aio_calls import AsyncCalls
from clisup.client.aio_connection import AsyncConnection
from clisup.client.raw import JsonObject
from clisup.errors import ClisupError, UsageError

__all__ = ["AsyncToolClient", "Run", "ToolCall", "ToolCalls", "ToolReply", "serve_tools"]

KEPT_RESULTS = 1024
KEPT_BYTES = 32 * 1024 * 1024
"""Limits on results that are kept for a daemon that asks again; the oldest go first. The ids of dropped results stay known."""

KNOWN_CALLS = 100_000
MAX_EARLY = 256
"""Kept calls of a session that is not served yet. The daemon has fewer open."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Call of a tool by the model. `tool_use_id` is the CLI's own id, as in the event `tool_use`, if the CLI has one."""

    session_id: str
    call_id: str
    name: str
    input: JsonObject
    turn_id: str | None = None
    tool_use_id: str | None = None


class ToolReply(NamedTuple):
    """Answer to the model: text, or blocks as on the wire (`text`, and `image` with `media_type` and `data`)."""

    content: str | Sequence[Mapping[str, Any]]
    is_error: bool = False


Run = Callable[[ToolCall], Awaitable[ToolReply]]


class ToolCalls:
    """Distribution of the calls that a client receives to the sessions that it serves. `AsyncClient` has one."""

    def __init__(self) -> None:
        self._runs: dict[str, ToolRuns] = {}
        self._early: dict[str, list[tuple[ToolCall, AsyncConnection, str]]] = {}

    def register(self, session_id: str, runs: ToolRuns) -> None:
        """Serve the session from now on, including the calls that came early."""
        self._runs[session_id] = runs
        for call, connection, request in self._early.pop(session_id, []):
            runs.called(call, connection, request)

    def unregister(self, session_id: str, runs: ToolRuns) -> None:
        """Serve the session no longer."""
        if self._runs.get(session_id) is runs:
            del self._runs[session_id]

    def received(self, frame: JsonObject, connection: AsyncConnection) -> None:
        """Take a frame that answers no request. Nothing here waits."""
        params = frame.get("params", {})
        session_id = params.get("session_id", "")
        runs = self._runs.get(session_id)
        if frame["method"] == "tool/call":
            names = ("session_id", "call_id", "name", "input", "turn_id", "tool_use_id")
            call = ToolCall(**{name: params.get(name) for name in names})
            if runs is not None:
                runs.called(call, connection, frame["id"])
            elif len(early := self._early.setdefault(session_id, [])) < MAX_EARLY:
                early.append((call, connection, frame["id"]))
        elif frame["method"] == "tool/cancelled":
            if runs is not None:
                runs.cancelled(params["call_id"])
            elif early := self._early.get(session_id, []):
                early[:] = [item for item in early if item[0].call_id != params["call_id"]]


@dataclass(eq=False, slots=True)
class _Running:
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    asked: list[tuple[AsyncConnection, str]] = field(default_factory=list)


class ToolRuns:
    """Calls of one session: the running ones, and the results of earlier ones."""

    def __init__(self, nursery: trio.Nursery, run: Run) -> None:
        self._nursery, self._run = nursery, run
        self._running: dict[str, _Running] = {}
        self._results: OrderedDict[str, bytes] = OrderedDict()
        self._held = 0
        self._known: OrderedDict[str, None] = OrderedDict()

    def called(self, call: ToolCall, connection: AsyncConnection, request: str) -> None:
        """Run the tool. A call that has begun before is answered with its result, or waits for it."""
        if (running := self._running.get(call.call_id)) is not None:
            running.asked = [(connection, request)]
        elif (result := self._results.get(call.call_id)) is not None:
            self._nursery.start_soon(_reply, connection, request, result)
        elif call.call_id in self._known:
            gone = ToolReply("The tool has run, or was interrupted; its result is not known any longer.", is_error=True)
            self._nursery.start_soon(_reply, connection, request, _encoded(gone))
        else:
            self._running[call.call_id] = running = _Running(asked=[(connection, request)])
            self._known[call.call_id] = None
            while len(self._known) > KNOWN_CALLS:
                self._known.popitem(last=False)
            self._nursery.start_soon(self._go, call, running)

    def cancelled(self, call_id: str) -> None:
        """Cancel a call that the daemon does not want any longer."""
        if (running := self._running.get(call_id)) is not None:
            running.scope.cancel()

    async def _go(self, call: ToolCall, running: _Running) -> None:
        result: bytes | None = None
        try:
            with running.scope:
                result = await self._result(call)
        finally:
            del self._running[call.call_id]
        if result is not None:
            self._keep(call.call_id, result)
            for connection, request in running.asked:
                await _reply(connection, request, result)

    async def _result(self, call: ToolCall) -> bytes:
        try:
            return _encoded(await self._run(call))
        except Exception as error:  # the model reads any error of a tool; other calls go on
            return _encoded(ToolReply(f"The tool failed: {type(error).__name__}: {error}", is_error=True))

    def _keep(self, call_id: str, result: bytes) -> None:
        self._results[call_id] = result
        self._held += len(result)
        while len(self._results) > KEPT_RESULTS or (self._held > KEPT_BYTES and len(self._results) > 1):
            self._held -= len(self._results.popitem(last=False)[1])


def _encoded(reply: ToolReply) -> bytes:
    """Encode as JSON. Raise `TypeError` or `ValueError` for a reply that is not JSON.

    Half of a surrogate pair, as in a file name that is not UTF-8, becomes a question mark: the daemon would end the connection.
    """
    content = reply.content if isinstance(reply.content, str) else [dict(block) for block in reply.content]
    result = {"content": content, "is_error": bool(reply.is_error)}
    text = json.dumps(result, separators=(",", ":"), allow_nan=False)
    if "\\ud" in text:
        text = json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="replace")


async def _reply(connection: AsyncConnection, request: str, result: bytes) -> None:
    """Answer on the connection of the request. If that has ended, the daemon asks again on another one."""
    begin = b'{"jsonrpc":"2.0","id":' + json.dumps(request).encode() + b',"result":'
    try:
        try:
            await connection.send(begin + result + b"}\n")
        except UsageError as error:
            failed = ToolReply(f"The tool has run, but its result is too large: {error.message}", is_error=True)
            await connection.send(begin + _encoded(failed) + b"}\n")
    except ClisupError:
        pass


class AsyncToolClient(AsyncCalls):
    """Client whose connection receives tool calls. `_gone` is set when the connection ends."""

    _tool_calls: ToolCalls
    _gone: trio.Event


async def serve_tools(
    client: AsyncToolClient, session_id: str, run: Run, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run the tools of a session, until cancelled or the session is closed; across restarts of the daemon.

    `run` is called once for each call. The model reads its errors. `run` is cancelled if the daemon does not want the result
    any longer. `task_status` starts once calls are served. Raises the daemon's refusal: `session_not_found`, `unsupported`
    for a session without tools, and `daemon_not_running` if the daemon stays away.
    """
    refused: ClisupError | None = None
    async with trio.open_nursery() as nursery:
        runs = ToolRuns(nursery, run)
        client._tool_calls.register(session_id, runs)
        try:
            await _stay_registered(client, session_id, task_status)
        except ClisupError as error:
            refused = error  # raised outside of the nursery, which would wrap the error
        finally:
            client._tool_calls.unregister(session_id, runs)
            nursery.cancel_scope.cancel()
    if refused is not None:
        raise refused


async def _stay_registered(client: AsyncToolClient, session_id: str, task_status: trio.TaskStatus[None]) -> None:
    """Send `tool/serve` on each new connection, until the session is closed."""
    begun = False
    while True:
        gone = client._gone
        try:
            await client._call_surely("tool/serve", session_id=session_id)
        except ClisupError as error:
            if begun and error.kind in ("session_closed", "session_not_found"):
                return
            raise
        if not begun:
            begun = True
            task_status.started()
        if gone is client._gone:
            await gone.wait()
