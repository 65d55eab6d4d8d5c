"""Control frames of claude's stream-json over stdio (2.1.329): requests to the user, and the dialogue with a live process. Pure.

A live process sends one `can_use_tool` request after the other, has no time limit, and ignores a second answer. An interrupt
cancels the request by `control_cancel_request`. A refusal needs `message`, else claude reports an error of its own. Without
`updatedInput` the input stays unchanged.

A prompt of a live process has a uuid. `command_lifecycle` reports its progress. `init` and `result` of a turn name the prompts of
that turn. `session_state_changed` reports `idle` when only background work is left.

Only `command_lifecycle` is reliable. Between `queued` and `started` an interrupt succeeds without effect, and the answer
`cancelled: false` of `cancel_async_message` may precede a cancellation. `cancelled` also ends a failed or interrupted prompt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from clisup.backends.approvals import ApprovalAnswer, Questions
from clisup.backends.base import Control, ControlAnswer
from clisup.backends.elicitation import answer_to_elicitation, elicitation_input, elicitation_tool
from clisup.backends.frames import Frame, MalformedError, get_dict, get_dicts, get_str, get_strs
from clisup.model.events import EventBase

__all__ = [
    "INTERRUPT", "LiveState", "asked", "context_usage", "control_line", "control_request",
    "prompts_of_frame", "refused", "withdrawn",
]  # fmt: skip

_NAME_CHARS = 200
REFUSED = "The user does not want this tool to be used now."


def asked(questions: Questions, frame: Frame) -> list[EventBase]:
    """Return the approval of a `control_request`. Raises `LookupError` for another kind of request, `MalformedError` for a broken one.

    `suggestions` are claude's `permission_suggestions`. AskUserQuestion arrives as a permission request, too: an `allow` whose
    input has `answers` answers the questions. In an `elicitation` an MCP server asks its user.
    """
    request, request_id = get_dict(frame, "request"), get_str(frame, "request_id")
    ask = _REQUESTS.get(get_str(request, "subtype") or "")
    if ask is None:
        raise LookupError("control_request/" + str(get_str(request, "subtype")))
    if request_id is None:
        raise MalformedError("a request without an id")
    return [ask(questions, request_id, request)]


def _permission(questions: Questions, request_id: str, request: Frame) -> EventBase:
    tool = get_str(request, "tool_name")
    if tool is None:
        raise MalformedError("a permission request without a tool")
    suggestions = tuple(get_dicts(request, "permission_suggestions"))

    def word(answer: ApprovalAnswer) -> str | None:
        if answer.decision == "cancelled":
            return None  # an interrupt cancels the request
        return _control_response(subtype="success", request_id=request_id, response=_response(answer, suggestions))

    return questions.ask(
        request_id, word, tool_name=tool, input=get_dict(request, "input"), suggestions=suggestions,
        tool_use_id=get_str(request, "tool_use_id"), reason=get_str(request, "decision_reason"),
    )  # fmt: skip


def _elicitation(questions: Questions, request_id: str, request: Frame) -> EventBase:
    server = get_str(request, "mcp_server_name") or ""
    given = elicitation_input(
        get_str(request, "message"), server=server, schema=request.get("requested_schema"), url=get_str(request, "url")
    )

    def word(answer: ApprovalAnswer) -> str | None:
        if answer.decision == "cancelled":
            return None  # an interrupt cancels the request
        result = answer_to_elicitation(given, answer)
        return _control_response(subtype="success", request_id=request_id, response=result)

    return questions.ask(request_id, word, tool_name=elicitation_tool(server), input=given)


_REQUESTS: dict[str, Callable[[Questions, str, Frame], EventBase]] = {
    "can_use_tool": _permission,
    "elicitation": _elicitation,
}


def refused(frame: Frame) -> str | None:
    """Return an error as the answer to a request that is no approval: claude waits for an answer without a limit.

    A request without an id gets no answer.
    """
    request_id = get_str(frame, "request_id")
    if request_id is None:
        return None
    words = f"clisup does not answer {(get_str(get_dict(frame, 'request'), 'subtype') or '')[:_NAME_CHARS]}"
    return _control_response(subtype="error", request_id=request_id, error=words)


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


# Requests to a live process

INTERRUPT = "clisup-interrupt"
_GIVEN_UP = ("cancelled", "discarded", "refused")


def control_request(request_id: str, subtype: str, **fields: Any) -> str:
    """Return a control request as a line for stdin."""
    frame = {"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}}
    return json.dumps(frame) + "\n"


def control_line(request_id: str, control: Control, value: str | None) -> str | None:
    """Return the request that changes the model or the permission mode or asks for the context usage, or None for others."""
    match control:
        case "model":
            return control_request(request_id, "set_model", model=value)
        case "permission_mode":
            return control_request(request_id, "set_permission_mode", mode=value)
        case "context_usage":
            return control_request(request_id, "get_context_usage")
    return None


def prompts_of_frame(frame: Frame) -> tuple[str, ...] | None:
    """Return the ids of the prompts that a frame names, or None without any, as in a follow-up turn of the CLI itself."""
    if isinstance(frame.get("user_message_uuids"), list):
        return tuple(get_strs(frame, "user_message_uuids"))
    one = get_str(frame, "user_message_uuid")
    return (one,) if one is not None else None


class LiveState(Struct):
    """State of a live process, by its frames since its turn or its rest began."""

    prompts: tuple[str, ...] = ()
    idle: bool = False
    ran: bool = False
    has_result: bool = False
    given_up: frozenset[str] = frozenset()

    def initialised(self, frame: Frame) -> None:
        """Read the `init` frame of a turn."""
        self.prompts = prompts_of_frame(frame) or ()

    def followed(self, frame: Frame) -> None:
        """Read `command_lifecycle`, the progress of a prompt."""
        name = get_str(frame, "command_uuid")
        if name is not None and get_str(frame, "state") in _GIVEN_UP:
            self.given_up |= {name}

    def changed(self, frame: Frame) -> None:
        """Read `session_state_changed`: running, idle, or requires_action."""
        state = get_str(frame, "state")
        self.idle, self.ran = state == "idle", self.ran or state == "running"

    @property
    def lost_end(self) -> bool:
        """Tell whether the process is idle again without a result."""
        return self.idle and self.ran and not self.has_result

    @staticmethod
    def answered(frame: Frame) -> tuple[ControlAnswer, ...]:
        """Read a `control_response`, the answer to a request."""
        response = get_dict(frame, "response")
        request_id = get_str(response, "request_id")
        if request_id is None or request_id == INTERRUPT:
            return ()
        error = get_str(response, "error") if get_str(response, "subtype") != "success" else None
        return (ControlAnswer(request_id, get_dict(response, "response"), error),)


def context_usage(answer: Mapping[str, Any]) -> Frame:
    """Return the answer to `get_context_usage`, without claude's drawing."""
    return {
        "total_tokens": answer.get("totalTokens"),
        "max_tokens": answer.get("maxTokens"),
        "percentage": answer.get("percentage"),
        "model": answer.get("model"),
        "categories": [
            {"name": get_str(category, "name"), "tokens": category.get("tokens"), "kind": get_str(category, "kind")}
            for category in get_dicts(dict(answer), "categories")
        ],
    }
