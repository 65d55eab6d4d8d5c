"""Table of claude's rare frames, and their events.

A frame in `SILENT` gives no event, for the reason beside its name. The frame's bytes still count as activity for the watchdog,
and the spool keeps them. A frame in no table becomes `unparsed` with the reason `unknown_type`. The key of a `system` frame is
`system/<subtype>`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clisup.backends.claude.blocks import DETAIL_CHARS
from clisup.backends.claude.errors import explain_retry
from clisup.backends.frames import MalformedError, get_dict, get_int, get_number, get_str
from clisup.model.envelope import rfc3339
from clisup.model.events import (
    BackendRetry,
    BackendStatus,
    EventBase,
    PermissionDenied,
    RateLimit,
    SessionInit,
    ToolProgress,
)

__all__ = ["RARE", "SILENT", "STREAM_SILENT", "rate_limit", "session_init"]

Frame = dict[str, Any]

SILENT: dict[str, str] = {
    "system/thinking_tokens": "an estimate before each thinking delta; the usage has the true number",
    "keep_alive": "a sign of life; the daemon sees the bytes",
    "control_response": "the answer to a request of the daemon",
    "command_lifecycle": "the state of a prompt that the daemon sent",
    "prompt_suggestion": "a proposal for a human's next prompt",
    "system/task_summary": "a headline for a task list; the task's own frames have its state",
    "system/session_title_changed": "a title for a human's session list",
    "system/ui_invalidate": "asks an interactive display to redraw",
    "system/commands_changed": "the slash commands of an interactive prompt",
}

STREAM_SILENT: dict[str, str] = {
    "ping": "a sign of life; the daemon sees the bytes",
    "content_block_start": "the first delta and the assistant frame have the same content",
    "content_block_stop": "the assistant frame comes before it",
    "message_delta": "the event of message_stop has its usage and stop reason",
    "signature_delta": "the assistant frame has the whole signature",
    "citations_delta": "the cited text has its own deltas",
    "empty delta": "has no content",
}


def session_init(frame: Frame, *, mode: str, version: str, credential: str | None = None) -> list[EventBase]:
    """Decode the `init` frame. `mode`, `version` and `credential` are the CLI's names of these fields. qwen has the same shape."""
    servers, tools = frame.get("mcp_servers"), frame.get("tools")
    return [
        SessionInit(
            native_session_id=get_str(frame, "session_id"),
            model=get_str(frame, "model"),
            cwd=get_str(frame, "cwd"),
            tools=tuple(tool for tool in tools if isinstance(tool, str)) if isinstance(tools, list) else (),
            mcp_servers=tuple(s for s in servers if isinstance(s, dict)) if isinstance(servers, list) else (),
            permission_mode=get_str(frame, mode),
            backend_version=get_str(frame, version),
            credential_source=get_str(frame, credential) if credential else None,
        )
    ]


def _init(frame: Frame) -> list[EventBase]:
    return session_init(frame, mode="permissionMode", version="claude_code_version", credential="apiKeySource")


def _status(frame: Frame) -> list[EventBase]:
    """Decode a status. It is null at the end of a compaction, and if only the permission mode changed."""
    compacted = get_str(frame, "compact_result")
    if compacted:
        return [_said("compacted", get_str(frame, "compact_error") or compacted)]
    return [_said(get_str(frame, "status") or "none", get_str(frame, "permissionMode"))]


def _api_retry(frame: Frame) -> list[EventBase]:
    delay_ms = get_number(frame, "retry_delay_ms")
    return [
        BackendRetry(
            attempt=get_int(frame, "attempt"),
            max_attempts=get_int(frame, "max_retries"),
            delay_s=None if delay_ms is None else delay_ms / 1000,
            error=explain_retry(code=get_str(frame, "error"), status=get_int(frame, "error_status")),
        )
    ]


def _permission_denied(frame: Frame) -> list[EventBase]:
    reason = get_str(frame, "decision_reason") or get_str(frame, "message")
    return [PermissionDenied(tool_use_id=get_str(frame, "tool_use_id"), name=_need(frame, "tool_name"), reason=reason)]


def _tool_progress(frame: Frame) -> list[EventBase]:
    """Decode a tool's progress. A heartbeat (each 30 s) has an invented id, and the call's id as its parent."""
    field = "parent_tool_use_id" if frame.get("heartbeat") is True else "tool_use_id"
    return [
        ToolProgress(
            tool_use_id=get_str(frame, field),
            name=get_str(frame, "tool_name"),
            elapsed_s=get_number(frame, "elapsed_time_seconds"),
        )
    ]


def rate_limit(frame: Frame) -> RateLimit:
    """Decode a rate limit. `allowed_warning` is a warning; only `rejected` means that the API refuses requests."""
    info = get_dict(frame, "rate_limit_info")
    return RateLimit(
        status=_need(info, "status"),
        limit_type=get_str(info, "rateLimitType"),
        utilization=get_number(info, "utilization"),
        resets_at=rfc3339(get_number(info, "resetsAt")),
    )


def _compact_boundary(frame: Frame) -> list[EventBase]:
    meta = get_dict(frame, "compact_metadata")
    parts = ((name, meta.get(name)) for name in ("trigger", "pre_tokens", "post_tokens"))
    return [
        _said("compact_boundary", ", ".join(f"{name} {value}" for name, value in parts if isinstance(value, str | int)))
    ]


def _fallback(status: str) -> Callable[[Frame], list[EventBase]]:
    def handle(frame: Frame) -> list[EventBase]:
        models = [get_str(frame, name) for name in ("original_model", "fallback_model")]
        told = " -> ".join(model for model in models if model)
        reason = get_str(frame, "content") or get_str(frame, "trigger")
        return [_said(status, f"{told}: {reason}" if reason else told)]

    return handle


def _hook_response(frame: Frame) -> list[EventBase]:
    """Report a hook without its output, which may hold anything. The spool has the output."""
    return [_said("hook_response", f"{get_str(frame, 'hook_name')}: {get_str(frame, 'outcome')}")]


def _from(status: str, *fields: str) -> Callable[[Frame], list[EventBase]]:
    """Return a handler that makes a status. Its detail is the first of `fields` with a text."""

    def handle(frame: Frame) -> list[EventBase]:
        return [_said(status, next((text for name in fields if (text := get_str(frame, name))), None))]

    return handle


def _said(status: str, detail: str | None) -> BackendStatus:
    return BackendStatus(status=status, detail=detail[:DETAIL_CHARS] if detail else None)


def _need(frame: Frame, name: str) -> str:
    value = get_str(frame, name)
    if value is None:
        raise MalformedError(f"{name} is missing")
    return value


# Handlers without memory. The decoder handles tasks, rate limits and the result itself.
RARE: dict[str, Callable[[Frame], list[EventBase]]] = {
    "system/init": _init,
    "system/status": _status,
    "system/api_retry": _api_retry,
    "system/permission_denied": _permission_denied,
    "system/compact_boundary": _compact_boundary,
    "system/model_fallback": _fallback("model_fallback"),
    "system/model_refusal_fallback": _fallback("model_refusal_fallback"),
    "system/model_refusal_no_fallback": _fallback("model_refusal_no_fallback"),
    "system/model_consent_fallback": _fallback("model_consent_fallback"),
    "system/hook_response": _hook_response,
    "system/hook_started": _from("hook_started", "hook_name"),
    "system/hook_progress": _from("hook_progress", "hook_name"),
    "system/informational": _from("informational", "content"),
    "system/notification": _from("notification", "text"),
    "system/local_command_output": _from("local_command_output", "content"),
    "system/session_state_changed": _from("session_state_changed", "state"),
    "system/worker_shutting_down": _from("worker_shutting_down", "reason"),
    "system/session_writes_lost": _from("session_writes_lost", "error_code"),
    "system/agents_killed": _from("agents_killed"),
    "system/permission_retry": _from("permission_retry", "content"),
    "system/memory_saved": _from("memory_saved", "verb"),
    "system/turn_preempted": _from("turn_preempted", "reason"),
    # Its new_conversation_id is not the new session id, which is in the next init.
    "conversation_reset": _from("conversation_reset", "trigger"),
    "tool_use_summary": _from("tool_use_summary", "summary"),
    "auth_status": _from("auth_status", "error"),
    "tool_progress": _tool_progress,
}
