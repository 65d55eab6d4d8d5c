"""Notifications of `codex app-server` without memory of others, token counts, and rate limits (0.169.0)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from msgspec import Struct, field

from clisup.backends.frames import (
    Frame,
    get_dict,
    get_dicts,
    get_int,
    get_number,
    get_str,
    get_tokens,
    status,
    status_from,
)
from clisup.model.envelope import rfc3339
from clisup.model.events import EventBase, RateLimit, ToolProgress
from clisup.model.usage import Usage

__all__ = ["NOTICES", "SILENT", "RateLimits", "Tokens", "usage_of"]


def usage_of(counts: Frame, *, snake: bool = False) -> Usage:
    """Return codex's counts. codex includes cached tokens in its input; our input excludes them.

    `cache_write` tokens stay as reported. Whether codex counts them into its input is unknown (0 so far).
    """
    names = _SNAKE if snake else _CAMEL
    total, cached, written, output, reasoning = (get_tokens(counts, name) for name in names)
    if total is None and output is None:
        return Usage()
    return Usage(
        input_tokens=None if total is None else max(0, total - (cached or 0)),
        output_tokens=output,
        cache_creation_input_tokens=written,
        cache_read_input_tokens=cached,
        reasoning_tokens=reasoning,
        source="reported",
    )


_CAMEL = ("inputTokens", "cachedInputTokens", "cacheWriteInputTokens", "outputTokens", "reasoningOutputTokens")
_SNAKE = (
    "input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens", "reasoning_output_tokens",
)  # fmt: skip


class Tokens(Struct):
    """Tokens of each model call. With news of a limit or of the context's size, codex repeats the counts of the previous call.

    In a resumed thread codex first repeats the counts of the previous turn: under that turn's id or, before a compaction, under the
    new one (0.169.0). The first total is therefore compared with `carried`, the total at the end of the previous turn.
    """

    carried: Usage | None
    total: Usage | None
    told: dict[str, tuple[Frame, Frame]] = field(default_factory=dict)
    """By thread: its total, and the counts of its last call."""

    @classmethod
    def of(cls, carried: Usage | None, *, resumed: bool) -> Self:
        """Return the tokens at the start of a turn."""
        return cls((carried or Usage()) if resumed else None, carried)

    def see(self, params: Frame, *, main: bool, worked: bool) -> tuple[Usage | None, int | None]:
        """Return the new usage of a call, and the size of the context. A thread's total grows with each call.

        `main` marks the session's own thread, as opposed to a sub-agent's. `worked`: the model has said or called something in the turn.
        """
        thread, told = get_str(params, "threadId") or "", get_dict(params, "tokenUsage")
        total, last = get_dict(told, "total"), get_dict(told, "last")
        total_before, last_before = self.told.get(thread, ({}, {}))
        self.told[thread] = total, last
        is_call = not total or total != total_before
        before = usage_of(total_before) if total_before or not main else self.total
        if main and total:
            is_call = is_call and not self._is_repeated(usage_of(total), worked=worked)
            self.total = usage_of(total)
        usage = _of_call(usage_of(total), before, usage_of(last)) if is_call else None
        return usage, get_int(last, "totalTokens") if is_call or last != last_before else None

    def _is_repeated(self, total: Usage, *, worked: bool) -> bool:
        """Tell whether this is the thread's total before this turn. If that is unknown, a total before any work of the turn is."""
        before, self.carried = self.carried, None
        if before is None or before.total_tokens is None:
            return before is not None and not worked
        return before.total_tokens == total.total_tokens


def _of_call(total: Usage, before: Usage | None, last: Usage) -> Usage | None:
    """Return a call's usage: the growth of the thread's total, or codex's counts of the last call.

    For a response that its length cut, codex adds the tokens to the total only (0.169.0). Zeros come with a full context: they belong
    to no call, and the usage of that call is unknown.
    """
    grown = total.since(before)
    used = last if grown.total_tokens is None else grown
    return used if used.total_tokens else None


class RateLimits(Struct):
    """Limits of the account, reported when they change: codex repeats them with every answer, mostly without a value."""

    told: dict[str, RateLimit] = field(default_factory=dict)
    resets_at: str | None = None
    """Time of a reached limit."""

    def see(self, params: Frame) -> list[EventBase]:
        snapshot = get_dict(params, "rateLimits")
        reached = get_str(snapshot, "rateLimitReachedType") is not None
        events: list[EventBase] = []
        for name in ("primary", "secondary"):
            window = get_dict(snapshot, name)
            used = get_number(window, "usedPercent")
            if used is None:
                continue
            event = RateLimit(
                status="rejected" if used >= 100 or (reached and name == "primary") else "allowed",
                limit_type=name,
                utilization=used / 100,
                resets_at=rfc3339(get_number(window, "resetsAt")),
            )
            if event.status == "rejected":
                self.resets_at = event.resets_at
            if self.told.get(name) != event:
                self.told[name] = event
                events.append(event)
        return events


def _mcp_status(params: Frame) -> list[EventBase]:
    words = [get_str(params, name) for name in ("name", "status", "error")]
    return [status("mcp_server", ": ".join(word for word in words if word))]


def _rerouted(params: Frame) -> list[EventBase]:
    return [status("model_fallback", f"{get_str(params, 'fromModel')} -> {get_str(params, 'toModel')}")]


def _hook(name: str) -> Callable[[Frame], list[EventBase]]:
    """Report a hook without its output, which may hold anything. The spool has the output."""

    def handle(params: Frame) -> list[EventBase]:
        run = get_dict(params, "run")
        return [status(name, f"{get_str(run, 'eventName')}: {get_str(run, 'status')}")]

    return handle


def _plan(params: Frame) -> list[EventBase]:
    steps = get_dicts(params, "plan")
    return [status("todo_list", "\n".join(f"[{get_str(step, 'status')}] {get_str(step, 'step')}" for step in steps))]


NOTICES: dict[str, Callable[[Frame], list[EventBase]]] = {
    "warning": status_from("warning", "message"),
    "guardianWarning": status_from("warning", "message"),
    "configWarning": status_from("warning", "summary"),
    "deprecationNotice": status_from("warning", "summary"),
    "mcpServer/startupStatus/updated": _mcp_status,
    "item/mcpToolCall/progress": lambda params: [ToolProgress(tool_use_id=get_str(params, "itemId"))],
    "hook/started": _hook("hook_started"),
    "hook/completed": _hook("hook_response"),
    "model/rerouted": _rerouted,
    "model/safetyBuffering/updated": status_from("safety_buffering"),
    "modelProvider/authRecoveryStarted": status_from("auth_recovery_started"),
    "modelProvider/authRecoveryCompleted": status_from("auth_recovery_completed"),
    "thread/compacted": status_from("compacted"),
    "turn/plan/updated": _plan,
    "item/autoApprovalReview/started": status_from("approval_review"),
    "item/autoApprovalReview/completed": status_from("approval_review"),
}

# Notifications whose content other frames have, or that are about the display of a client.
SILENT = frozenset(
    {
        "account/updated", "app/list/updated", "fs/changed", "item/commandExecution/outputDelta",
        "item/commandExecution/terminalInteraction", "item/fileChange/outputDelta", "item/fileChange/patchUpdated",
        "item/reasoning/summaryPartAdded", "model/verification", "project/changed", "rawResponse/completed",
        "remoteControl/status/changed", "skills/changed", "thread/closed",
        "thread/environment/connected", "thread/environment/disconnected", "thread/goal/cleared", "thread/goal/updated",
        "thread/name/updated", "thread/prediction/updated", "thread/queue/changed", "thread/readState/changed",
        "thread/started", "thread/status/changed", "turn/diff/updated",
        "turn/moderationMetadata", "turn/started",
    }
)  # fmt: skip
