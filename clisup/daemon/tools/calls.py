"""Calls of a session's tools: from the CLI's bridge to the serving client, and the answer back.

A call lives as long as a bridge waits for the answer. The daemon stores no call. After a restart of the daemon the
bridge repeats the call with the same id. The daemon passes the call on with the same id, and the client must not run a
call twice.

The CLI finds the bridge by an entry beside the client's own servers, in a file of its own. The entry has claude's form
(`type`, `alwaysLoad` and `timeout`, 2.1.329), and the adapters of other CLIs convert the entry. The entry's `env` holds
the token, so the token is only in the bridge's environment, and never in an argv.
"""

from __future__ import annotations

import hmac
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import trio
from pydantic import ValidationError

import clisup
from clisup.daemon.journal.recorder import Item
from clisup.daemon.sessions.context import SessionContext
from clisup.errors import UsageError, WorldError
from clisup.host.log import event_logger
from clisup.model.events import Notice
from clisup.model.lifecycle import SessionState
from clisup.model.prompts.options import BRIDGE_SERVER
from clisup.model.structs import wrong_field
from clisup.policy.open_calls import OpenCall, OpenCalls, OwnTimes, ToolAnswer, ToolLimits, refused
from clisup.wire.jsonrpc import ClientAnswer
from clisup.wire.params import AnswerParams, BridgeCallParams
from clisup.wire.results import ToolCallParams, ToolCancelledParams

__all__ = [
    "BRIDGE_FILE",
    "SLACK_S",
    "SessionTools",
    "ToolServer",
    "answer_json",
    "check_mcp_config",
    "servers_with_bridge",
    "tool_answer",
]

BRIDGE_FILE = os.path.join(os.path.dirname(clisup.__file__), "bridge", "bridge.py")
SLACK_S = 300.0
"""Extra wait of the CLI beyond a tool's own time: for a serving client, and for a restarted daemon."""
_CLOSED = refused("The tool was not run to its end, because its session is closed.")
_log = event_logger()


class ToolServer(Protocol):
    """Connection of a client that serves tools."""

    serves: set[SessionTools]

    def ask(self, method: str, params: bytes, heard: Callable[[ClientAnswer], None]) -> None: ...
    def tell(self, method: str, params: bytes) -> None: ...


class SessionTools:
    """Tools of a session, and the open calls. The task of a call is the bridge's request: the request waits for the answer.

    The constructor reads the tools' times and the token from the session's files. The definitions stay in their file:
    they may be a megabyte, and each process asks for the definitions once.
    """

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        brought = context.dir.read_tools()
        definitions = brought.definitions if brought else []
        times = {tool["name"]: OwnTimes(tool.get("timeout_s"), tool.get("wait_s")) for tool in definitions}
        self.calls = OpenCalls(times)
        self.longest = ToolLimits(  # of the tools' own times
            max((own.timeout_s or 0.0 for own in times.values()), default=0.0),
            max((own.wait_s or 0.0 for own in times.values()), default=0.0),
        )
        self.token = brought.token if brought else None  # identifies the bridge until the session is closed
        self._server: ToolServer | None = None
        self._news = trio.Event()

    @property
    def names(self) -> list[str]:
        """Return the names of the tools."""
        return list(self._context.spec.tools)

    @property
    def limits(self) -> ToolLimits:
        """Return the limits of the present configuration."""
        config = self._context.services.config.daemon
        return ToolLimits(config.tool_timeout_s, config.tool_wait_s)

    def definitions(self) -> list[dict[str, Any]]:
        """Return the client's definitions for the model. A closed session has no definitions.

        Raises `WorldError(storage_failed)` if their file was changed.
        """
        if not self.closed:
            self._context.dir.check(tools=True)
        brought = self._context.dir.read_tools()
        return brought.definitions if brought is not None else []

    def describe(self) -> dict[str, Any]:
        """Return the part of `session/get`."""
        calls = [{"call_id": call.call_id, "name": call.name, "tool_use_id": call.tool_use_id} for call in self.calls]
        return {"names": self.names, "served": self._server is not None, "open": calls}

    @property
    def closed(self) -> bool:
        """Tell whether the session is closed."""
        return self._context.state is SessionState.CLOSED

    def has_token(self, token: str) -> bool:
        """Tell whether a bridge with this token belongs to the session, while the session is open."""
        wanted = self.token
        return wanted is not None and not self.closed and hmac.compare_digest(wanted.encode(), token.encode())

    # -- the client that serves --------------------------------------------------------------------------------------

    def serve(self, server: ToolServer) -> int:
        """Send all calls to this client from now on, the open calls first. Return the number of open calls.

        The daemon tells the previous client to drop its calls, so that no two clients run the same call.
        """
        before, self._server = self._server, server
        if before is not server:
            server.serves.add(self)
            if before is not None:
                before.serves.discard(self)
            for call in self.calls:
                if before is not None:
                    self._tell_cancelled(before, call.call_id, "taken_over")
                self._pass_on(call)
            self._server_changed()
        return len(self.calls)

    def disconnected(self, server: ToolServer) -> None:
        """Forget the client of an ended connection."""
        if self._server is server:
            self._server = None
            self._server_changed()

    def close(self) -> None:
        """End all calls: the session is closed. The client's connection must not keep the session in memory."""
        self.token = None
        for call in self.calls:
            self.calls.settle(call.call_id, _CLOSED)
            self._ended(call, "gone")
        if self._server is not None:
            self._server.serves.discard(self)
            self._server = None
        self._notify()

    def _server_changed(self) -> None:
        served = self._server is not None
        self.calls.serving(served=served, wait_s=self.limits.wait_s, now=trio.current_time())
        self._notify()

    # -- a call ------------------------------------------------------------------------------------------------------

    async def call(self, params: BridgeCallParams) -> ToolAnswer:
        """Let the client run the tool, and wait for the answer. A cancellation by the last waiting request drops the call."""
        if self.closed:  # a bridge may have shown its token before
            return _CLOSED
        if (refusal := self.calls.refusal(params.call_id, params.name)) is not None:
            return refusal
        known = self.calls.get(params.call_id) is not None
        current, now = self._context.ledger.current, trio.current_time()
        call = self.calls.begin(
            params.call_id,
            params.name,
            params.input,
            tool_use_id=params.tool_use_id,
            turn_id=current.id if current is not None else None,
            served=self._server is not None,
            limits=self.limits,
            now=now,
        )
        if not known:
            _log.debug("tool called", session=self._context.id, tool=call.name, call=call.call_id)
            self._pass_on(call)
            self._hold()
        call.waiters += 1
        try:
            return await self._answer(call)
        finally:
            call.waiters -= 1
            if not call.waiters and self.calls.drop(call.call_id):
                self._ended(call, "gone")
            self._hold()

    async def _answer(self, call: OpenCall) -> ToolAnswer:
        while call.answer is None:
            if self.calls.expire(call, trio.current_time()):
                self._ended(call, call.ended or "timeout")
                break
            with trio.move_on_at(self.calls.next_at(call)):
                await self._news.wait()
        assert call.answer is not None
        return call.answer

    def answer(self, call_id: str, answer: ToolAnswer) -> None:
        """Pass a client's answer on. Raises `UsageError(tool_call_not_found)` if the call is not open."""
        if self.calls.settle(call_id, answer) is None:
            raise UsageError(
                f"tool call {call_id} not found among the open calls of session {self._context.id}",
                kind="tool_call_not_found",
                hint="the call was answered, timed out, or was withdrawn by the CLI: drop it",
            )
        self._notify()

    # -- messages to the client --------------------------------------------------------------------------------------

    def _pass_on(self, call: OpenCall) -> None:
        if self._server is None:
            return
        params = ToolCallParams(
            session_id=self._context.id,
            turn_id=call.turn_id,
            call_id=call.call_id,
            tool_use_id=call.tool_use_id,
            name=call.name,
            input=call.input,
        )

        def answered(answer: ClientAnswer) -> None:
            with suppress(UsageError):  # the call has ended meanwhile, and its client knows
                self.answer(call.call_id, _read(answer))

        self._server.ask("tool/call", params.model_dump_json().encode(), answered)

    def _ended(self, call: OpenCall, reason: str) -> None:
        """Report the end of a call without an answer.

        A stopping daemon reports no lost bridge: the bridge reconnects to the next daemon.
        """
        leaving = self._context.services.storage.stopping
        if self._server is not None and not (leaving and reason == "gone"):
            self._tell_cancelled(self._server, call.call_id, reason)
        _log.info("tool call ended", session=self._context.id, tool=call.name, call=call.call_id, reason=reason)
        if reason == "gone" or call.answer is None:
            return
        notice = Notice(code=f"tool_{reason}", message=f"{call.name}: {call.answer.content}")
        with suppress(WorldError):  # the model gets the answer all the same
            self._context.recorder.record([Item(notice, call.turn_id)])

    def _tell_cancelled(self, server: ToolServer, call_id: str, reason: str) -> None:
        params = ToolCancelledParams(session_id=self._context.id, call_id=call_id, reason=reason)
        server.tell("tool/cancelled", params.model_dump_json().encode())

    def _notify(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def _hold(self) -> None:
        """Pause the run's watchdog while a call is open: the CLI is not silent, and the call has its own limit."""
        if (run := self._context.run) is not None:
            run.watchdog.hold(held=len(self.calls) > 0)


def _read(answer: ClientAnswer) -> ToolAnswer:
    """Return a client's answer. An error or an invalid answer becomes text for the model."""
    if answer.error is not None:
        message = answer.error.get("message") if isinstance(answer.error, dict) else None
        return refused(f"The tool failed: {message or 'the client gave no reason'}")
    try:
        return tool_answer(AnswerParams.model_validate(answer.result))
    except ValidationError as error:
        where, reason = wrong_field(error)
        return refused(f"The tool's answer could not be used, because {where or 'all of it'} is wrong: {reason}")


def tool_answer(params: AnswerParams) -> ToolAnswer:
    """Return the answer in the form for the bridge."""
    content = params.content
    blocks = content if isinstance(content, str) else [block.model_dump(exclude={"cache"}) for block in content]
    return ToolAnswer(blocks, params.is_error)


def answer_json(answer: ToolAnswer) -> bytes:
    """Return the result of `bridge/call`."""
    return json.dumps({"content": answer.content, "is_error": answer.is_error}).encode()


# -- the bridge's entry in the CLI's MCP configuration ------------------------------------------------------------------


def check_mcp_config(mcp_config: dict[str, Any] | None) -> None:
    """Raise `UsageError(invalid_params)` if the bridge cannot be added to these servers."""
    servers = (mcp_config or {}).get("mcpServers", {})
    if not isinstance(servers, dict):
        reason = "its mcpServers is not an object"
    elif BRIDGE_SERVER in servers:
        reason = f"the name {BRIDGE_SERVER!r} is reserved for the server of the session's tools"
    else:
        return
    raise UsageError(
        f"mcp_config cannot be combined with tools: {reason}",
        hint="change the mcp_config, or omit the tools",
        param="mcp_config",
    )


def servers_with_bridge(context: SessionContext, tools: SessionTools) -> dict[str, Any]:
    """Return the `mcpServers` of a session with tools: the client's servers and the bridge."""
    limits = tools.limits
    longest = tools.longest
    limit_s = max(limits.timeout_s, longest.timeout_s) + max(limits.wait_s, longest.wait_s) + SLACK_S
    bridge = {
        "type": "stdio",
        "command": sys.executable,
        "args": ["-I", "-S", BRIDGE_FILE],
        "env": {
            "CLISUP_BRIDGE_SOCKET": context.services.socket,
            "CLISUP_BRIDGE_TOKEN": tools.token or "",
        },
        "alwaysLoad": True,
        "timeout": int(limit_s * 1000),
    }
    return {**(context.dir.read_mcp_servers() or {}), BRIDGE_SERVER: bridge}
