"""Who may run which tool: the mode, the rules, and the questions to whoever supervises the worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import trio

from clisup.stream_json.frames import Frame
from clisup.stream_json.transcript import new_id
from clisup.worker.servers import Tool

__all__ = ["MODES", "Permissions", "Ruling"]

MODES = ("bypassPermissions", "default", "dontAsk", "plan")
_CLOSED = "Tool permission request failed: AbortError: Tool permission stream closed before response received"


@dataclass(frozen=True)
class Ruling:
    """Whether a tool may run, and with which input. `message` is what the model is told of a refusal."""

    allowed: bool
    arguments: Mapping[str, Any]
    message: str = ""
    interrupt: bool = False
    asked: bool = False


class Permissions:
    """Rules of one process. Questions are asked one at a time, as claude does."""

    def __init__(
        self, mode: str, rules: str, *, asks: bool, send: Callable[[Frame], None], tell: Callable[[str], None]
    ) -> None:
        self.mode = mode
        self._rules = set(rules.replace(",", " ").split())
        self._asks, self._send, self._tell = asks, send, tell
        self._turn = trio.Lock()
        self._open: dict[str, Any] = {}
        self._answered = trio.Event()
        self.closed = False

    async def ruling(self, tool: Tool, arguments: Mapping[str, Any], tool_id: str) -> Ruling:
        """Return whether the tool may run now, after a question where one has to be asked."""
        name = tool.full_name
        if self.mode == "plan" and not tool.reads_only:
            return Ruling(False, arguments, f"Cannot call {name} while in plan mode.")
        if self._is_allowed(tool):
            return Ruling(True, arguments)
        if not self._asks or self.mode == "dontAsk":
            words = f"Claude requested permissions to use {name}, but you haven't granted it yet."
            return Ruling(False, arguments, words)
        async with self._turn:
            return Ruling(True, arguments) if self._is_allowed(tool) else await self._ask(name, arguments, tool_id)

    def answer(self, response: Mapping[str, Any]) -> None:
        """Take the answer to an open question. One to another is ignored."""
        if response.get("request_id") in self._open:
            self._open[str(response["request_id"])] = response
            self._answered.set()

    def close(self) -> None:
        """Nobody can answer any more: open questions are refused."""
        self.closed = True
        self._answered.set()

    def _is_allowed(self, tool: Tool) -> bool:
        names = {tool.full_name, f"mcp__{tool.server}", f"mcp__{tool.server}__*"}
        return self.mode == "bypassPermissions" or bool(names & self._rules)

    async def _ask(self, name: str, arguments: Mapping[str, Any], tool_id: str) -> Ruling:
        request_id = new_id()
        self._open = {request_id: None}
        rule = {"type": "addRules", "rules": [{"toolName": name}], "behavior": "allow", "destination": "session"}
        self._tell("requires_action")
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
        self._tell("running")
        return self._decide(response, arguments)

    def _decide(self, response: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> Ruling:
        if response is None:
            return Ruling(False, arguments, _CLOSED, asked=True)
        if response.get("subtype") != "success":
            return Ruling(
                False, arguments, f"Tool permission request failed: Error: {response.get('error')}", asked=True
            )
        said = response.get("response")
        said = said if isinstance(said, dict) else {}
        if said.get("behavior") == "allow":
            self._remember(said.get("updatedPermissions"))
            updated = said.get("updatedInput")
            return Ruling(True, updated if isinstance(updated, dict) else arguments, asked=True)
        words = str(said.get("message") or "The tool was refused.")
        return Ruling(False, arguments, words, interrupt=said.get("interrupt") is True, asked=True)

    def _remember(self, updates: Any) -> None:
        """What holds from here on, for as long as the process lives."""
        for update in _objects(updates):
            if update.get("type") == "addRules" and update.get("behavior") == "allow":
                self._rules |= {str(rule.get("toolName")) for rule in _objects(update.get("rules"))}
            elif update.get("type") == "setMode" and update.get("mode") in MODES:
                self.mode = str(update["mode"])


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
