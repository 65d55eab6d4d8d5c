"""Table of claude's rare frames and their events, and the tasks that such frames report.

A frame in `SILENT` gives no event, for the reason beside its name. The frame's bytes still count as activity for the watchdog,
and the spool keeps them. A frame in no table becomes `unparsed` with the reason `unknown_type`. The key of a `system` frame is
`system/<subtype>`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from msgspec import Struct, field

from clisup.backends.base import Background
from clisup.backends.claude.errors import explain_retry
from clisup.backends.frames import (
    Frame,
    MalformedError,
    first_str,
    get_dict,
    get_dicts,
    get_int,
    get_number,
    get_str,
    get_strs,
    status,
    status_from,
)
from clisup.model.envelope import rfc3339
from clisup.model.events import (
    BackendRetry,
    EventBase,
    PermissionDenied,
    RateLimit,
    SessionInit,
    TaskUpdate,
    ToolProgress,
)
from clisup.policy.watchdog import UNKNOWN_PHASE

__all__ = ["RARE", "SILENT", "STREAM_SILENT", "Tasks", "rate_limit", "session_init"]


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
    return [
        SessionInit(
            native_session_id=get_str(frame, "session_id"),
            model=get_str(frame, "model"),
            cwd=get_str(frame, "cwd"),
            tools=tuple(get_strs(frame, "tools")),
            mcp_servers=tuple(get_dicts(frame, "mcp_servers")),
            permission_mode=get_str(frame, mode),
            backend_version=get_str(frame, version),
            credential_source=get_str(frame, credential) if credential else None,
        )
    ]


def _init(frame: Frame) -> list[EventBase]:
    return session_init(frame, mode="permissionMode", version="claude_code_version", credential="apiKeySource")


_STATUSES = ("none", "requesting", "compacting")


def _status(frame: Frame) -> list[EventBase]:
    """Decode a status. It is null at the end of a compaction, and if only the permission mode changed."""
    result = get_str(frame, "compact_result")
    if result:
        name = "compaction_failed" if result == "failed" else "compacted"
        return [status(name, get_str(frame, "compact_error") or result)]
    name = get_str(frame, "status") or "none"
    if name not in _STATUSES:
        return [status(UNKNOWN_PHASE, name)]
    return [status(name, get_str(frame, "permissionMode"))]


def _api_retry(frame: Frame) -> list[EventBase]:
    delay_ms = get_number(frame, "retry_delay_ms")
    return [
        BackendRetry(
            attempt=get_int(frame, "attempt"),
            max_attempts=get_int(frame, "max_retries"),
            delay_s=None if delay_ms is None else delay_ms / 1000,
            error=explain_retry(
                code=get_str(frame, "error"), status=get_int(frame, "error_status"), words=get_str(frame, "message")
            ),
        )
    ]


def _permission_denied(frame: Frame) -> list[EventBase]:
    reason = first_str(frame, "decision_reason", "message")
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
        status(
            "compact_boundary", ", ".join(f"{name} {value}" for name, value in parts if isinstance(value, str | int))
        )
    ]


def _fallback(name: str) -> Callable[[Frame], list[EventBase]]:
    def handle(frame: Frame) -> list[EventBase]:
        models = [get_str(frame, field) for field in ("original_model", "fallback_model")]
        told = " -> ".join(model for model in models if model)
        reason = first_str(frame, "content", "trigger")
        return [status(name, f"{told}: {reason}" if reason else told)]

    return handle


def _hook_response(frame: Frame) -> list[EventBase]:
    """Report a hook without its output, which may hold anything. The spool has the output."""
    return [status("hook_response", f"{get_str(frame, 'hook_name')}: {get_str(frame, 'outcome')}")]


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
    "system/hook_started": status_from("hook_started", "hook_name"),
    "system/hook_progress": status_from("hook_progress", "hook_name"),
    "system/informational": status_from("informational", "content"),
    "system/notification": status_from("notification", "text"),
    "system/local_command_output": status_from("local_command_output", "content"),
    "system/session_state_changed": status_from("session_state_changed", "state"),
    "system/worker_shutting_down": status_from("worker_shutting_down", "reason"),
    "system/session_writes_lost": status_from("session_writes_lost", "error_code"),
    "system/agents_killed": status_from("agents_killed"),
    "system/permission_retry": status_from("permission_retry", "content"),
    "system/memory_saved": status_from("memory_saved", "verb"),
    "system/turn_preempted": status_from("turn_preempted", "reason"),
    # Its new_conversation_id is not the new session id, which is in the next init.
    "conversation_reset": status_from("conversation_reset", "trigger"),
    "tool_use_summary": status_from("tool_use_summary", "summary"),
    "auth_status": status_from("auth_status", "error"),
    "tool_progress": _tool_progress,
}


# Subagents and background work

_ENDED = frozenset({"completed", "failed", "stopped", "killed", "ended"})


class Tasks(Struct):
    """Tasks that the CLI has reported.

    claude does not exit while a task runs (it kills the task after 600 s). claude waits in silence and then begins a turn
    of its own.
    """

    ids: frozenset[str]
    kinds: dict[str, str]
    """By task: only its first frames name the kind."""
    states: dict[str, str] = field(default_factory=dict)
    begun: bool = False
    """Background work has begun in this turn."""

    @classmethod
    def of(cls, background: Background) -> Self:
        """Return the tasks at the start of a turn."""
        return cls(frozenset(background), {task: kind for task, kind in background.items() if kind})

    @property
    def background(self) -> Background:
        """Tasks announced as background work and not ended."""
        return {task_id: self.kinds.get(task_id) for task_id in sorted(self.ids)}

    def runs(self, frame: Frame) -> list[EventBase]:
        """Read the beginning of a task, or its progress."""
        return [self._update(frame, "running")]

    def updated(self, frame: Frame) -> list[EventBase]:
        patch = get_dict(frame, "patch")
        state = get_str(patch, "status") or self.states.get(_need(frame, "task_id"), "running")
        return [self._update({**frame, "description": patch.get("description")}, state)]

    def notified(self, frame: Frame) -> list[EventBase]:
        """Read the end of a task. The summary of a sub-agent is its whole report (2.1.330), else a description of the task."""
        state = get_str(frame, "status") or "ended"
        if frame.get("summary_is_report") is True:
            return [self._update(frame, state, report=get_str(frame, "summary"))]
        return [self._update({**frame, "description": frame.get("summary")}, state)]

    def changed(self, frame: Frame) -> list[EventBase]:
        """Read the whole set of background tasks. Ambient tasks do not count: the daemon keeps no process for them."""
        listed = frame.get("tasks")
        if not isinstance(listed, list) or not all(isinstance(task, dict) for task in listed):
            raise MalformedError("tasks is no list of objects")
        tasks = {_need(task, "task_id"): task for task in listed if not task.get("ambient")}
        gone = sorted(self.ids - tasks.keys())
        self.begun = self.begun or not self.ids.issuperset(tasks)
        self.ids = frozenset(tasks)
        new = [
            self._update(task, "running") for task_id, task in tasks.items() if self.states.get(task_id) != "running"
        ]
        ended = [
            self._update({"task_id": task_id}, "ended") for task_id in gone if self.states.get(task_id) not in _ENDED
        ]
        return [*new, *ended]

    def _update(self, frame: Frame, state: str, report: str | None = None) -> TaskUpdate:
        task_id = _need(frame, "task_id")
        self.states[task_id] = state
        if state in _ENDED:
            self.ids -= {task_id}
        kind = get_str(frame, "task_type")
        if kind:
            self.kinds[task_id] = kind
        return TaskUpdate(
            task_id=task_id,
            kind=self.kinds.get(task_id),
            state=state,
            description=get_str(frame, "description"),
            tool_use_id=get_str(frame, "tool_use_id"),
            report=report,
        )
