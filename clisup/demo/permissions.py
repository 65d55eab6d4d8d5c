"""Permission questions of a live process: one question at a time, and the rules that answers bring."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from clisup.demo.stdio import Interrupted
from clisup.demo.tools import CallAnswer, RunningCall, Start, is_allowed
from clisup.stream_json.frames import Frame
from clisup.stream_json.transcript import new_id

if TYPE_CHECKING:
    from clisup.demo.turn import DemoTurn

__all__ = ["AskingCall", "PermissionDesk"]

_ALLOWED = {"permission_decision": {"decision": "accept", "source": "user_temporary"}}
_DENIED = {
    "non_execution_kind": "permission-rule", "permission_decision": {"decision": "reject", "source": "user_reject"},
}  # fmt: skip
_UNANSWERED = {
    "non_execution_kind": "permission-rule",
    "permission_decision": {"decision": "reject", "source": "config", "reason_type": "other"},
}
_INVALID = (
    "The canUseTool callback returned an invalid permission result. Expected {behavior: 'allow', updatedInput?: object} or "
    "{behavior: 'deny', message: string}. updatedPermissions may hold at most 4096 updates, rules and directories in all."
)
_CLOSED = "Tool permission request failed: AbortError: Tool permission stream closed before response received"


class AskingCall(RunningCall):
    """Tool call that asks for its permission first."""

    asked = True

    def __init__(self, desk: PermissionDesk, name: str, arguments: Frame, start: Start) -> None:
        super().__init__()
        self._desk, self.name, self.arguments, self._start = desk, name, arguments, start
        self.request_id: str | None = None
        self.response: Frame | None = None
        self._real: RunningCall | None = None
        self.waits = True

    def poll(self) -> CallAnswer | None:
        if self._real is None:
            refused = self._desk.check(self)
            if refused is not None or self._real is None:
                return refused
        answer = self._real.poll()
        self.overdue = self._real.overdue
        if answer is not None or self.overdue:
            self._desk.leave(self)
        return answer if answer is None or self.request_id is None else answer._replace(meta=_ALLOWED)

    def kill(self) -> None:
        if self._real is not None:
            self._real.kill()

    def carry_out(self, arguments: Frame) -> None:
        self.waits = False
        self._real = self._start(arguments)
        self._real.tool_id, self.is_task = self.tool_id, self._real.is_task


class PermissionDesk:
    """Queue of calls that need a permission. `is_closed` tells whether no answer can come any more."""

    def __init__(self, turn: DemoTurn, is_closed: Callable[[], bool], report_state: Callable[[str], None]) -> None:
        self._turn, self._is_closed, self._report_state = turn, is_closed, report_state
        self._queue: list[AskingCall] = []
        self._rules: list[Frame] = []

    def call(self, name: str, arguments: Frame, start: Start) -> AskingCall:
        """Return a call that asks after the calls before it. `start` carries it out."""
        call = AskingCall(self, name, arguments, start)
        self._queue.append(call)
        return call

    def check(self, call: AskingCall) -> CallAnswer | None:
        """Ask for the first call of the queue, and carry it out or refuse it when the answer is there."""
        if self._queue[0] is not call:
            return None
        if call.request_id is None:
            if self._is_allowed(call):
                call.carry_out(dict(call.arguments))
            else:
                self._ask(call)
            return None
        if call.response is None and not self._is_closed():
            return None
        self._report_state("running")
        return self._decide(call)

    def leave(self, call: AskingCall) -> None:
        """Remove a call, so that the next one may ask."""
        if call in self._queue:
            self._queue.remove(call)

    def answer(self, response: Frame) -> None:
        """Accept a `control_response`. The first answer to an open question counts; all others are ignored, as by claude."""
        for call in self._queue:
            if call.waits and call.request_id is not None and call.request_id == response.get("request_id"):
                call.response = call.response or response

    def withdraw(self) -> None:
        """Withdraw the open question and forget the calls behind it."""
        queue, self._queue = self._queue, []
        for call in queue:
            if call.waits and call.request_id is not None:
                self._turn.send({"type": "control_cancel_request", "request_id": call.request_id})
                self._deny(call)

    def _is_allowed(self, call: AskingCall) -> bool:
        if _asking_server(call.name) is not None:
            return False
        arguments = dict(call.arguments)
        command = str(arguments.get("command", ""))
        return is_allowed(call.name, arguments, self._turn.permission_mode) or any(
            rule.get("toolName") == call.name and _matches(str(rule.get("ruleContent") or ""), command)
            for rule in self._rules
        )

    def _ask(self, call: AskingCall) -> None:
        call.request_id = new_id()
        self._report_state("requires_action")
        request: Frame
        if (server := _asking_server(call.name)) is not None:
            request = {"subtype": "elicitation", "mcp_server_name": server, **call.arguments}
        else:
            request = {
                "subtype": "can_use_tool", "tool_name": call.name, "display_name": call.name,
                **_question(call.name, dict(call.arguments)), "tool_use_id": call.tool_id,
            }  # fmt: skip
        self._turn.send({"type": "control_request", "request_id": call.request_id, "request": request})

    def _decide(self, call: AskingCall) -> CallAnswer | None:
        if call.response is None:
            return self._refuse(call, _CLOSED, _UNANSWERED)
        if call.response.get("subtype") != "success":
            error = f"Tool permission request failed: Error: {call.response.get('error')}"
            return self._refuse(call, error, _UNANSWERED)
        result = call.response.get("response")
        result = result if isinstance(result, dict) else {}
        if _asking_server(call.name) is not None:
            self.leave(call)
            return CallAnswer(json.dumps(result), False, result, _ALLOWED)
        if result.get("behavior") == "allow":
            self._remember(result.get("updatedPermissions"))
            updated = result.get("updatedInput")
            call.carry_out(updated if isinstance(updated, dict) else dict(call.arguments))
            return None
        if result.get("behavior") != "deny" or not isinstance(result.get("message"), str):
            return self._refuse(call, _INVALID, _UNANSWERED)
        if result.get("interrupt") is True:
            self._deny(call)
            self._queue.clear()
            raise Interrupted
        return self._refuse(call, result["message"], _DENIED)

    def _refuse(self, call: AskingCall, message: str, meta: Frame) -> CallAnswer:
        self.leave(call)
        self._deny(call)
        return CallAnswer(message, True, f"Error: {message}", meta)

    def _deny(self, call: AskingCall) -> None:
        denial = {"tool_name": call.name, "tool_use_id": call.tool_id, "tool_input": call.arguments}
        self._turn.denials.append(denial)

    def _remember(self, updates: object) -> None:
        """Add rules for as long as the process lives. The demo writes no settings."""
        for update in _objects(updates):
            if update.get("type") == "addRules" and update.get("behavior") == "allow":
                self._rules += _objects(update.get("rules"))
            elif update.get("type") == "setMode":
                self._turn.permission_mode = str(update.get("mode"))


def _asking_server(name: str) -> str | None:
    """Return the server of `mcp__SERVER__elicitation`, with which the demo plays an MCP server that asks its user."""
    prefix, _, rest = name.partition("__")
    server, _, tool = rest.rpartition("__")
    return server if prefix == "mcp" and tool == "elicitation" else None


def _objects(value: object) -> list[Frame]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _question(name: str, arguments: Frame) -> Frame:
    """Return the description of a tool call and the rules that a question suggests."""
    if name in ("Edit", "Write"):
        path = str(arguments.get("file_path", ""))
        mode = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
        whole = {**arguments, "file_path": os.path.abspath(path)}
        return {"input": whole, "description": path, "permission_suggestions": [mode]}
    rule = {"toolName": name}
    if name == "Bash":
        rule["ruleContent"] = " ".join([*str(arguments.get("command", "")).split()[:2], "*"])
    suggestion = {"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "localSettings"}
    description = str(arguments.get("description") or arguments.get("command") or "")
    return {"input": arguments, "description": description, "permission_suggestions": [suggestion]}


def _matches(pattern: str, command: str) -> bool:
    """Match a rule: no pattern allows everything, `mkdir:*` and `mkdir a *` a beginning, others the whole command."""
    for ending in (":*", " *"):
        if pattern.endswith(ending):
            start = pattern.removesuffix(ending)
            return command == start or command.startswith(start + " ")
    return not pattern or command == pattern
