"""Dialogue with a live claude (`--input-format stream-json`, 2.1.329): control requests, and the frames about them.

A prompt has a uuid. `command_lifecycle` reports its progress. `init` and `result` of a turn name the prompts of that turn.
`session_state_changed` reports `idle` when only background work is left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from clisup.backends.base import Control, ControlAnswer
from clisup.backends.frames import get_dict, get_str

__all__ = ["INTERRUPT", "LiveState", "context_usage", "control_line", "control_request", "prompts_of_frame"]

Frame = dict[str, Any]
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
    named = frame.get("user_message_uuids")
    if isinstance(named, list):
        return tuple(name for name in named if isinstance(name, str))
    one = get_str(frame, "user_message_uuid")
    return (one,) if one is not None else None


class LiveState:
    """State of a live process, by its frames since its turn or its rest began."""

    def __init__(self) -> None:
        self.prompts: tuple[str, ...] = ()
        self.idle = False
        self.given_up: frozenset[str] = frozenset()

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
        self.idle = get_str(frame, "state") == "idle"

    @staticmethod
    def answered(frame: Frame) -> tuple[ControlAnswer, ...]:
        """Read a `control_response`, the answer to a request."""
        response = get_dict(frame, "response")
        request_id = get_str(response, "request_id")
        if request_id is None or request_id == INTERRUPT:
            return ()
        error = get_str(response, "error") if get_str(response, "subtype") != "success" else None
        return (ControlAnswer(request_id, get_dict(response, "response"), error),)


def context_usage(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to `get_context_usage`, without claude's drawing."""
    categories = answer.get("categories")
    return {
        "total_tokens": answer.get("totalTokens"),
        "max_tokens": answer.get("maxTokens"),
        "percentage": answer.get("percentage"),
        "model": answer.get("model"),
        "categories": [
            {"name": get_str(category, "name"), "tokens": category.get("tokens"), "kind": get_str(category, "kind")}
            for category in (categories if isinstance(categories, list) else ())
            if isinstance(category, dict)
        ],
    }
