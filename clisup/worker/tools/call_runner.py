"""Tool calls of one answer: permissions, parallel runs and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import trio

from clisup.worker import JsonObject
from clisup.worker.tools.mcp_servers import McpServers
from clisup.worker.tools.permissions import Permissions
from clisup.worker.turn_writer import TurnWriter

MAX_CALLS = 32
"""Calls that run in parallel. Further calls wait."""
HEARTBEAT_S = 30.0
"""Seconds between two progress frames of a running tool, as in claude."""

Call = Mapping[str, Any]


class CallRunner:
    """Runner of one answer's calls. `broken` has the raw arguments of calls whose arguments are no JSON object, by call id."""

    def __init__(
        self,
        calls: Sequence[Call],
        broken: Mapping[str, str],
        servers: McpServers,
        permissions: Permissions,
        writer: TurnWriter,
    ) -> None:
        self._calls, self._broken = calls, broken
        self._servers, self._permissions, self._writer = servers, permissions, writer
        self._places = trio.CapacityLimiter(MAX_CALLS)
        self._stopped = False
        self.results: dict[str, JsonObject] = {}

    async def run(self) -> bool:
        """Run all calls, and return whether a denial asked to stop the turn."""
        async with trio.open_nursery() as nursery:
            for call in self._calls:
                nursery.start_soon(self._run_one, call)
        return self._stopped

    def missing(self, message: str) -> list[JsonObject]:
        """Write and return an error result for each call that has no result."""
        return [
            self._writer.tool_result(call["id"], message, is_error=True)
            for call in self._calls
            if call["id"] not in self.results
        ]

    async def _run_one(self, call: Call) -> None:
        name, raw = call["name"], self._broken.get(call["id"])
        tool = self._servers.tools.get(name)
        if raw is not None:
            message = (
                f"The arguments are no JSON object. Call the tool again with a JSON object. They were: {raw[:2000]}"
            )
            self._add(call, message, is_error=True)
            return
        if tool is None:
            self._add(call, f"<tool_use_error>Error: No such tool available: {name}</tool_use_error>", is_error=True)
            return
        decision = await self._permissions.decide(tool, call["input"], call["id"])
        if not decision.allowed:
            self._writer.deny(name, call["id"], call["input"], decision.message, asked=decision.asked)
            self._add(call, decision.message, is_error=True, denied=True)
            self._stopped = self._stopped or decision.interrupt
            return
        async with self._places, trio.open_nursery() as nursery:
            nursery.start_soon(self._report_progress, call)
            outcome = await self._servers.call(tool, decision.arguments, call["id"])
            nursery.cancel_scope.cancel()
        self._add(call, outcome.content, is_error=outcome.is_error)

    async def _report_progress(self, call: Call) -> None:
        began, count = trio.current_time(), 0
        while True:
            await trio.sleep(HEARTBEAT_S)
            count += 1
            elapsed = round(trio.current_time() - began, 3)
            self._writer.send(self._writer.frames.tool_progress(call["id"], count, call["name"], elapsed))

    def _add(self, call: Call, content: Any, *, is_error: bool, denied: bool = False) -> None:
        self.results[call["id"]] = self._writer.tool_result(call["id"], content, is_error=is_error, denied=denied)
