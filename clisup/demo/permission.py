"""Permissions of a live process: whom a tool asks, one question at a time, and what was answered for good."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from clisup.demo.tools import Answer, Call, is_allowed
from clisup.demo.wire import Interrupted
from clisup.stream_json.transcript import new_id

if TYPE_CHECKING:
    from clisup.demo.toolplay import Start
    from clisup.demo.turn import Turn

__all__ = ["AskedCall", "Desk"]

Frame = dict[str, Any]

_FILE_TOOLS = ("Edit", "Write")
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


class AskedCall(Call):
    """A tool that waits for its permission, and is carried out when it has it."""

    asked = True

    def __init__(self, desk: Desk, name: str, arguments: Frame, start: Start) -> None:
        super().__init__()
        self._desk, self.name, self.arguments, self._start = desk, name, arguments, start
        self.request_id: str | None = None
        self.response: Frame | None = None
        self._real: Call | None = None
        self.waits = True

    def poll(self) -> Answer | None:
        if self._real is None:
            refused = self._desk.look(self)
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
        """Let the tool begin."""
        self.waits = False
        self._real = self._start(arguments)
        self._real.tool_id, self.is_task = self.tool_id, self._real.is_task


class Desk:
    """Where tools ask. `closed` says whether nobody can answer any more, `tell` tells the session's state."""

    def __init__(self, turn: Turn, closed: Callable[[], bool], tell: Callable[[str], None]) -> None:
        self._turn, self._closed, self._tell = turn, closed, tell
        self._line: list[AskedCall] = []
        self._rules: list[Frame] = []

    def call(self, name: str, arguments: Frame, start: Start) -> AskedCall:
        """A call that will ask, after those that are in the line before it. `start` carries it out."""
        call = AskedCall(self, name, arguments, start)
        self._line.append(call)
        return call

    def look(self, call: AskedCall) -> Answer | None:
        """Ask, where it is the call's turn to; then what its answer makes of it: a refusal, or nothing and it runs."""
        if self._line[0] is not call:
            return None
        if call.request_id is None:
            arguments = dict(call.arguments)
            if self._is_allowed(call.name, arguments):
                call.carry_out(arguments)
            else:
                self._ask(call)
            return None
        if call.response is None and not self._closed():
            return None
        self._tell("running")
        return self._decide(call)

    def leave(self, call: AskedCall) -> None:
        """The call is over: the next one may ask."""
        if call in self._line:
            self._line.remove(call)

    def answer(self, response: Frame) -> None:
        """A `control_response`. One to no open question is ignored, as by claude."""
        for call in self._line:
            if call.waits and call.request_id is not None and call.request_id == response.get("request_id"):
                call.response = call.response or response

    def withdraw(self) -> bool:
        """Take the open question back and forget those behind it. Whether there was one."""
        line, self._line = self._line, []
        opened = [call for call in line if call.waits and call.request_id is not None]
        for call in opened:
            self._turn.send({"type": "control_cancel_request", "request_id": call.request_id})
            self._deny(call)
        return bool(opened)

    def _is_allowed(self, name: str, arguments: Frame) -> bool:
        command = str(arguments.get("command", ""))
        return is_allowed(name, arguments, self._turn.permission_mode) or any(
            rule.get("toolName") == name and _matches(str(rule.get("ruleContent") or ""), command)
            for rule in self._rules
        )

    def _ask(self, call: AskedCall) -> None:
        call.request_id = new_id()
        self._tell("requires_action")
        request = {
            "subtype": "can_use_tool", "tool_name": call.name, "display_name": call.name,
            **_question(call.name, dict(call.arguments)), "tool_use_id": call.tool_id,
        }  # fmt: skip
        self._turn.send({"type": "control_request", "request_id": call.request_id, "request": request})

    def _decide(self, call: AskedCall) -> Answer | None:
        if call.response is None:
            return self._refuse(call, _CLOSED, _UNANSWERED)
        if call.response.get("subtype") != "success":
            said = f"Tool permission request failed: Error: {call.response.get('error')}"
            return self._refuse(call, said, _UNANSWERED)
        result = call.response.get("response")
        result = result if isinstance(result, dict) else {}
        if result.get("behavior") == "allow":
            self._remember(result.get("updatedPermissions"))
            updated = result.get("updatedInput")
            call.carry_out(updated if isinstance(updated, dict) else dict(call.arguments))
            return None
        if result.get("behavior") != "deny" or not isinstance(result.get("message"), str):
            return self._refuse(call, _INVALID, _UNANSWERED)
        if result.get("interrupt") is True:
            self._deny(call)
            self._line.clear()
            raise Interrupted
        return self._refuse(call, result["message"], _DENIED)

    def _refuse(self, call: AskedCall, said: str, meta: Frame) -> Answer:
        self.leave(call)
        self._deny(call)
        return Answer(said, True, f"Error: {said}", meta)

    def _deny(self, call: AskedCall) -> None:
        denial = {"tool_name": call.name, "tool_use_id": call.tool_id, "tool_input": call.arguments}
        self._turn.denials.append(denial)

    def _remember(self, updates: object) -> None:
        """What holds from here on, for as long as the process lives: the demo writes no settings."""
        for update in _objects(updates):
            if update.get("type") == "addRules" and update.get("behavior") == "allow":
                self._rules += _objects(update.get("rules"))
            elif update.get("type") == "setMode":
                self._turn.permission_mode = str(update.get("mode"))


def _objects(value: object) -> list[Frame]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _question(name: str, arguments: Frame) -> Frame:
    """What a question says of its tool, and which rules it proposes."""
    if name in _FILE_TOOLS:
        path = str(arguments.get("file_path", ""))
        mode = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
        whole = os.path.abspath(path)
        return {"input": {**arguments, "file_path": whole}, "description": path, "permission_suggestions": [mode]}
    rule = {"toolName": name}
    if name == "Bash":
        rule["ruleContent"] = " ".join([*str(arguments.get("command", "")).split()[:2], "*"])
    suggestion = {"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "localSettings"}
    description = str(arguments.get("description") or arguments.get("command") or "")
    return {"input": arguments, "description": description, "permission_suggestions": [suggestion]}


def _matches(pattern: str, command: str) -> bool:
    """A rule's pattern: empty for everything, `mkdir:*` and `mkdir a *` for what begins so, else the very command."""
    if not pattern:
        return True
    for ending in (":*", " *"):
        if pattern.endswith(ending):
            start = pattern.removesuffix(ending)
            return command == start or command.startswith(start + " ")
    return command == pattern
