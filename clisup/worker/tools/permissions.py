"""Permissions of tools: the mode, the rules, and the requests to the worker's supervisor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import trio

from clisup.stream_json.frames import Frame
from clisup.stream_json.transcript import new_id
from clisup.worker import JsonObject
from clisup.worker.tools.mcp_servers import McpTool

MODES = ("bypassPermissions", "default", "dontAsk", "plan")
_CLOSED = "Tool permission request failed: AbortError: Tool permission stream closed before response received"


@dataclass(frozen=True)
class PermissionDecision:
    """Decision on one tool call, with the input to run it with. `message` tells the model why the call was denied."""

    allowed: bool
    arguments: Mapping[str, Any]
    message: str = ""
    interrupt: bool = False
    asked: bool = False


class Permissions:
    """Permission rules of one process. As in claude, one request is open at a time."""

    def __init__(
        self, mode: str, rules: str, *, asks: bool, send: Callable[[Frame], None], set_state: Callable[[str], None]
    ) -> None:
        self.mode = mode
        self._rules = set(rules.replace(",", " ").split())
        self._asks, self._send, self._set_state = asks, send, set_state
        self._turn = trio.Lock()
        self._open: JsonObject = {}
        self._answered = trio.Event()
        self.closed = False

    async def decide(self, tool: McpTool, arguments: Mapping[str, Any], tool_id: str) -> PermissionDecision:
        """Return the decision on a call, if necessary after a request to the supervisor."""
        name = tool.full_name
        if self.mode == "plan" and not tool.reads_only:
            return PermissionDecision(False, arguments, f"Cannot call {name} while in plan mode.")
        if self._is_allowed(tool):
            return PermissionDecision(True, arguments)
        if not self._asks or self.closed or self.mode == "dontAsk":
            message = f"Claude requested permissions to use {name}, but you haven't granted it yet."
            return PermissionDecision(False, arguments, message)
        async with self._turn:
            if self._is_allowed(tool):  # an answer to the request before may have added a rule
                return PermissionDecision(True, arguments)
            return await self._ask(name, arguments, tool_id)

    def answer(self, response: Mapping[str, Any]) -> None:
        """Take the answer to the open request. Other answers are ignored."""
        if response.get("request_id") in self._open:
            self._open[str(response["request_id"])] = response
            self._answered.set()

    def close(self) -> None:
        """Deny the open request and all later ones, because stdin has ended."""
        self.closed = True
        self._answered.set()

    def _is_allowed(self, tool: McpTool) -> bool:
        names = {tool.full_name, f"mcp__{tool.server}", f"mcp__{tool.server}__*"}
        return self.mode == "bypassPermissions" or bool(names & self._rules)

    async def _ask(self, name: str, arguments: Mapping[str, Any], tool_id: str) -> PermissionDecision:
        request_id = new_id()
        self._open = {request_id: None}
        rule = {"type": "addRules", "rules": [{"toolName": name}], "behavior": "allow", "destination": "session"}
        self._set_state("requires_action")
        self._send({"type": "control_request", "request_id": request_id, "request": {
            "subtype": "can_use_tool", "tool_name": name, "display_name": name, "input": dict(arguments),
            "description": "", "permission_suggestions": [rule], "tool_use_id": tool_id,
        }})  # fmt: skip
        try:
            while self._open[request_id] is None and not self.closed:
                self._answered = trio.Event()
                await self._answered.wait()
        except trio.Cancelled:
            self._send({"type": "control_cancel_request", "request_id": request_id})
            raise
        response, self._open = self._open[request_id], {}
        self._set_state("running")
        return self._decision(response, arguments)

    def _decision(self, response: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> PermissionDecision:
        if response is None:
            return PermissionDecision(False, arguments, _CLOSED, asked=True)
        if response.get("subtype") != "success":
            return PermissionDecision(
                False, arguments, f"Tool permission request failed: Error: {response.get('error')}", asked=True
            )
        answer = response.get("response")
        answer = answer if isinstance(answer, dict) else {}
        if answer.get("behavior") == "allow":
            self._remember(answer.get("updatedPermissions"))
            updated = answer.get("updatedInput")
            return PermissionDecision(True, updated if isinstance(updated, dict) else arguments, asked=True)
        message = str(answer.get("message") or "The tool was refused.")
        return PermissionDecision(False, arguments, message, interrupt=answer.get("interrupt") is True, asked=True)

    def _remember(self, updates: Any) -> None:
        """Keep the rules of an answer for the life of the process."""
        for update in _objects(updates):
            if update.get("type") == "addRules" and update.get("behavior") == "allow":
                self._rules |= {str(rule.get("toolName")) for rule in _objects(update.get("rules"))}
            elif update.get("type") == "setMode" and update.get("mode") in MODES:
                self.mode = str(update["mode"])


def _objects(value: Any) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
