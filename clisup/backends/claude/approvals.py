"""Permission requests of claude (`can_use_tool` over stdio, 2.1.329), and the answers in its words. Pure.

A live process sends one request after the other, has no time limit, and ignores a second answer. An interrupt cancels the request
by `control_cancel_request`. A refusal needs `message`, else claude reports an error of its own. Without `updatedInput` the input
stays unchanged.
"""

from __future__ import annotations

import json
from typing import Any

from clisup.backends.approvals import ApprovalAnswer, Questions
from clisup.backends.frames import MalformedError, get_dict, get_str
from clisup.model.events import EventBase, PermissionDenied

__all__ = ["asked", "declined", "withdrawn"]

Frame = dict[str, Any]
_NAME_CHARS = 200
_REASON_CHARS = 2000
REFUSED = "The user does not want this tool to be used now."


def asked(questions: Questions, frame: Frame) -> list[EventBase]:
    """Return the approval of a `control_request`. Raises `LookupError` for another kind of request, `MalformedError` for a broken one.

    `suggestions` are claude's `permission_suggestions`. AskUserQuestion arrives as such a request, too: an `allow` whose input
    has `answers` answers the questions.
    """
    request, request_id = get_dict(frame, "request"), get_str(frame, "request_id")
    if request.get("subtype") != "can_use_tool":
        raise LookupError("control_request/" + str(get_str(request, "subtype")))
    tool = get_str(request, "tool_name")
    if request_id is None or tool is None:
        raise MalformedError("a permission request without an id or a tool")
    listed = request.get("permission_suggestions")
    suggestions = tuple(s for s in listed if isinstance(s, dict)) if isinstance(listed, list) else ()

    def word(answer: ApprovalAnswer) -> str | None:
        if answer.decision == "cancelled":
            return None  # an interrupt cancels the request
        return _control_response(subtype="success", request_id=request_id, response=_response(answer, suggestions))

    return [
        questions.ask(
            request_id, word, tool_name=tool, input=get_dict(request, "input"), suggestions=suggestions,
            tool_use_id=get_str(request, "tool_use_id"), reason=get_str(request, "decision_reason"),
        )
    ]  # fmt: skip


def declined(frame: Frame) -> tuple[list[EventBase], str | None]:
    """Return the events and the answer for a request that is no approval: claude waits for an answer without a limit.

    The decoder declines a question of an MCP server to its user, and reports a refusal. Any other request gets an error. A
    request without an id gets no answer.
    """
    request, request_id = get_dict(frame, "request"), get_str(frame, "request_id")
    if request_id is None:
        return [], None
    subtype = get_str(request, "subtype") or ""
    if subtype != "elicitation":
        words = f"clisup does not answer {subtype[:_NAME_CHARS]}"
        return [], _control_response(subtype="error", request_id=request_id, error=words)
    name = f"mcp__{(get_str(request, 'mcp_server_name') or '')[:_NAME_CHARS]}__elicitation"
    reason = (get_str(request, "message") or "nobody is there to answer it")[:_REASON_CHARS]
    reply = _control_response(subtype="success", request_id=request_id, response={"action": "decline"})
    return [PermissionDenied(name=name, reason=reason)], reply


def _control_response(**response: Any) -> str:
    return json.dumps({"type": "control_response", "response": response}) + "\n"


def _response(answer: ApprovalAnswer, suggestions: tuple[Frame, ...]) -> Frame:
    if answer.decision == "deny":
        return {"behavior": "deny", "message": answer.message or REFUSED}
    response: Frame = {"behavior": "allow"}
    if answer.updated_input is not None:
        response["updatedInput"] = dict(answer.updated_input)
    if answer.remember and suggestions:
        # For this process only: claude itself suggests `localSettings`, a file in the working directory.
        response["updatedPermissions"] = [{**suggestion, "destination": "session"} for suggestion in _kept(suggestions)]
    return response


def _kept(suggestions: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Return the narrowest suggestion. claude also suggests to open whole directories, and all edits with them."""
    rules = tuple(suggestion for suggestion in suggestions if suggestion.get("type") == "addRules")
    return rules or suggestions[:1]


def withdrawn(questions: Questions, frame: Frame) -> list[EventBase]:
    """Return the end of a request by a `control_cancel_request`. Raises `MalformedError` for one without an id."""
    request_id = get_str(frame, "request_id")
    if request_id is None:
        raise MalformedError("a withdrawal without an id")
    return questions.withdraw(request_id)
