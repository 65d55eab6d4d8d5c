"""Control requests of a live process and their answers, in claude's words (2.1.329)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from clisup.demo import VERSION
from clisup.demo.args import PERMISSION_MODES, BadArguments

if TYPE_CHECKING:
    from clisup.demo.live import Live

__all__ = ["control"]

Frame = dict[str, Any]
_WINDOW = 200_000


class _Refused(Exception):
    """The answer is an error: its words, and the fields beside them."""

    def __init__(self, words: str, **fields: Any) -> None:
        super().__init__(words)
        self.fields = {"error": words, **fields}


def control(live: Live, frame: Frame) -> None:
    """Carry out a control request and answer it. Raises `BadArguments` for one without a `request`, which ends claude."""
    request = frame.get("request")
    if not isinstance(request, dict):
        raise BadArguments("Error: Missing request on control_request")
    known = {"request_id": frame["request_id"]} if "request_id" in frame else {}
    try:
        answer = _CONTROLS.get(str(request.get("subtype")), _unsupported)(live, request)
    except _Refused as error:
        live.send({"type": "control_response", "response": {"subtype": "error", **known, **error.fields}})
        return
    said = {} if answer is None else {"response": answer}
    live.send({"type": "control_response", "response": {"subtype": "success", **known, **said}})
    live.after_control(str(request["subtype"]))


def _unsupported(live: Live, request: Frame) -> Frame:
    words = f"Unsupported control request subtype: {request.get('subtype')}"
    raise _Refused(words, error_code="unsupported_request")


def _interrupt(live: Live, request: Frame) -> Frame:
    """What waits stays, unless `cancel_queued` is said."""
    live.interrupt()
    if request.get("cancel_queued") is True:
        return {"still_queued": [], "cancelled": live.cancel_all()}
    return {"still_queued": live.queued_uuids()}


def _cancel_message(live: Live, request: Frame) -> Frame:
    uuid = request.get("message_uuid")
    if isinstance(uuid, str) and live.cancel(uuid):
        return {"cancelled": True, "message_uuid": uuid}
    return {"cancelled": False}


def _set_model(live: Live, request: Frame) -> Frame:
    """Any name is accepted, as by claude; none, or `default`, is the demo's own model."""
    model = request.get("model")
    if model is not None and not isinstance(model, str):
        raise _Refused("set_model: model must be a string", error_code="invalid_request", model=live.frames.model)
    live.set_model(None if model == "default" else model)
    return {"model": live.frames.model}


def _set_permission_mode(live: Live, request: Frame) -> Frame:
    mode = request.get("mode")
    if mode not in PERMISSION_MODES:
        words = f"Cannot set permission mode: must be one of {', '.join(PERMISSION_MODES)}"
        raise _Refused(words, error_code="invalid_mode")
    if mode == "bypassPermissions" and live.options.permission_mode != mode:
        words = "Cannot set permission mode to bypassPermissions because the session was not launched with "
        raise _Refused(words + "--dangerously-skip-permissions", error_code="bypass_not_launched")
    live.turns.turn.permission_mode = mode
    return {"mode": mode}


def _set_max_thinking_tokens(live: Live, request: Frame) -> None:
    tokens = request.get("max_thinking_tokens")
    if tokens is not None and not isinstance(tokens, int):
        raise _Refused("set_max_thinking_tokens: max_thinking_tokens must be an integer or null")


def _context_usage(live: Live, request: Frame) -> Frame:
    """A quarter of the characters of all prompts; the demo has no system prompt and no tools to count."""
    used = sum(-(-len(prompt) // 4) for prompt in live.session.prompts)
    share = used * 100 // _WINDOW
    categories = [
        {"id": "messages", "name": "Messages", "tokens": used, "color": "purple", "kind": "used"},
        {"id": "free_space", "name": "Free space", "tokens": _WINDOW - used, "color": "promptBorder", "kind": "free"},
    ]
    return {
        "categories": categories, "totalTokens": used, "maxTokens": _WINDOW, "rawMaxTokens": _WINDOW,
        "autocompactSource": "model-default", "percentage": share, "gridRows": [], "model": live.frames.model,
        "memoryFiles": [], "mcpTools": [], "mcpInstructions": [], "agents": [], "isAutoCompactEnabled": False,
    }  # fmt: skip


def _initialize(live: Live, request: Frame) -> Frame:
    compact = {"name": "compact", "description": "Replace the conversation by its summary", "argumentHint": ""}
    return {
        "commands": [{**compact, "builtin": True}], "agents": [], "output_style": "default",
        "available_output_styles": ["default"], "models": [{"value": "default", "displayName": live.frames.model}],
        "account": {"tokenSource": "none", "apiKeySource": "none"}, "pid": os.getpid(), "claude_code_version": VERSION,
        "current_permission_mode": live.turns.turn.permission_mode, "session_state": live.state,
    }  # fmt: skip


def _end_session(live: Live, request: Frame) -> None:
    live.interrupt()


_CONTROLS: dict[str, Callable[[Live, Frame], Frame | None]] = {
    "interrupt": _interrupt,
    "cancel_async_message": _cancel_message,
    "set_model": _set_model,
    "set_permission_mode": _set_permission_mode,
    "set_max_thinking_tokens": _set_max_thinking_tokens,
    "get_context_usage": _context_usage,
    "initialize": _initialize,
    "end_session": _end_session,
}
