"""Handlers of the `tool/...` methods, and of the `bridge/...` methods for the MCP bridge of a CLI."""

from __future__ import annotations

import json

from clisup.daemon.app import Daemon
from clisup.daemon.clients.connection import Connection, Handlers
from clisup.daemon.tools.calls import answer_json, tool_answer
from clisup.errors import UsageError
from clisup.policy.open_calls import MAX_OPEN_CALLS
from clisup.wire.params import BridgeCallParams, BridgeHelloParams, ToolResultParams, ToolServeParams
from clisup.wire.results import Done, ToolServeResult

__all__ = ["ToolHandlers"]


class ToolHandlers:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._manager = daemon.manager

    def table(self) -> Handlers:
        return {
            "tool/serve": self.serve,
            "tool/result": self.result,
            "bridge/hello": self.hello,
            "bridge/call": self.call,
        }

    async def serve(self, connection: Connection, params: ToolServeParams) -> bytes:
        tools = self._manager.get(params.session_id).tools_to_serve()
        opened = tools.serve(connection)
        return ToolServeResult(session_id=params.session_id, tools=tools.names, open=opened).to_json()

    async def result(self, connection: Connection, params: ToolResultParams) -> bytes:
        self._manager.get(params.session_id).tools_to_serve().answer(params.call_id, tool_answer(params))
        return Done().to_json()

    async def hello(self, connection: Connection, params: BridgeHelloParams) -> bytes:
        session, connection.bridge = self._manager.tools_of_token(params.token)
        limits = self._daemon.config.daemon
        hello = {
            "session_id": session.id,
            "tools": connection.bridge.definitions(),
            "max_frame_bytes": limits.max_frame_bytes,
            # One less than the limit of requests, so that the daemon reads a cancellation at any time.
            "max_calls": max(1, min(MAX_OPEN_CALLS, limits.max_requests) - 1),
        }
        return json.dumps(hello).encode()

    async def call(self, connection: Connection, params: BridgeCallParams) -> bytes:
        if connection.bridge is None:
            raise UsageError(
                "permission denied: this connection has not authenticated as a bridge",
                kind="permission_denied",
                hint="call bridge/hello first",
            )
        return answer_json(await connection.bridge.call(params))
