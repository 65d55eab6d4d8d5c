"""The `result` frame of claude: the end of a turn.

Measured with claude 2.1.332. A failed API call has `subtype: "success"`. `usage` excludes subagents, and is zero if the budget
ended the turn. `total_cost_usd` and `modelUsage` run on across turns and resumes. Only `model_usage_since_last_result` covers
the work since the result before: `{}` says that there was none. Results of a failed start lack the field.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field
from msgspec.structs import replace

from clisup.backends.base import Terminal
from clisup.backends.claude.control import prompts_of_frame
from clisup.backends.claude.errors import INTERRUPTED, ClaudeFailure, explain_report
from clisup.backends.frames import (
    Frame,
    MalformedError,
    detail,
    get_cost,
    get_dict,
    get_dicts,
    get_int,
    get_str,
    get_strs,
    get_tokens,
)
from clisup.model.events import EventBase, PermissionDenied, ToolResult
from clisup.model.usage import Usage, whole_usd

__all__ = ["Denials", "denied_tools", "terminal_of"]

_USAGE = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_MODEL_USAGE = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cache_creation_input_tokens": "cacheCreationInputTokens",
    "cache_read_input_tokens": "cacheReadInputTokens",
    "reasoning_tokens": "thinkingTokens",
}


def terminal_of(frame: Frame, *, carried_usd: float | None, failure: ClaudeFailure) -> Terminal:
    """Return the end of the turn. `failure` holds the last synthetic message and the last rate limit, for the error's kind.

    `text` is the model's final text. A failed turn has none: its message is in `error`.
    Raises MalformedError for a frame without `is_error` and `subtype`.
    """
    is_error = _is_error(frame)
    report = _report(frame, failure)
    cost, total = _cost(frame, carried_usd)
    return Terminal(
        is_error=is_error,
        text="" if is_error else get_str(frame, "result") or "",
        stop_reason=report.stop_reason,
        usage=_usage(frame),
        cost_usd=cost,
        estimated=frame.get("cost_source") == "estimated",
        cost_total_usd=total,
        error=explain_report(report) if is_error else None,
        interrupted=is_error
        and (report.terminal_reason in INTERRUPTED or frame.get("interrupted_by_shutdown") is True),
        denied=denied_tools(frame),
        structured=frame.get("structured_output"),
        follow_up=get_dict(frame, "origin").get("kind") == "task-notification",
        prompts=prompts_of_frame(frame),
    )


def _is_error(frame: Frame) -> bool:
    """Tell whether the turn has failed: by `is_error`, by `errors`, or by an error subtype."""
    subtype = get_str(frame, "subtype")
    said = frame.get("is_error")
    if not isinstance(said, bool) and subtype is None:
        raise MalformedError("neither is_error nor subtype")
    return said is True or bool(get_strs(frame, "errors")) or (subtype or "").startswith("error_")


def _report(frame: Frame, failure: ClaudeFailure) -> ClaudeFailure:
    """Return the failure. Words of the result go before words of earlier frames."""
    return replace(
        failure,
        text="\n".join(get_strs(frame, "errors")) or get_str(frame, "result") or failure.text,
        api_error=get_str(frame, "api_error") or failure.api_error,
        api_type=get_str(frame, "api_error_type") or failure.api_type,
        status=get_int(frame, "api_error_status") or failure.status,
        subtype=get_str(frame, "subtype"),
        terminal_reason=get_str(frame, "terminal_reason"),
        stop_reason=get_str(frame, "stop_reason"),
    )


def _usage(frame: Frame) -> Usage:
    """Return the tokens since the result before, with those of subagents, as in the CLI's cost."""
    models = _models(frame)
    if models is not None:
        counts = {name: _total(models, native) for name, native in _MODEL_USAGE.items()}
    else:
        usage = get_dict(frame, "usage")
        counts = {name: get_tokens(usage, name) for name in _USAGE}
        counts["reasoning_tokens"] = get_tokens(get_dict(usage, "output_tokens_details"), "thinking_tokens")
    known = {name: value for name, value in counts.items() if value is not None}
    return Usage(**known, source="reported") if known else Usage()


def _models(frame: Frame) -> list[Frame] | None:
    """Return what each model used since the result before, or None if the frame does not say it."""
    told = frame.get("model_usage_since_last_result")
    return [model for model in told.values() if isinstance(model, dict)] if isinstance(told, dict) else None


def _total(models: list[Frame], name: str) -> int | None:
    known = [value for model in models if (value := get_tokens(model, name)) is not None]
    return None if models and not known else sum(known)


def _cost(frame: Frame, carried: float | None) -> tuple[float | None, float | None]:
    """Return the cost since the result before, and the running total to carry over.

    A frame that tells only a total costs what the total has grown by. The total of a failed start is 0 and counted nothing, so the
    carried one stays. A total below the carried one was reset (`/clear`). Without both totals the cost is unknown, which is not zero.
    """
    told = get_cost(frame, "total_cost_usd")
    total = carried if told is None or (told == 0 and carried and _is_error(frame)) else told
    models = _models(frame)
    if models is not None:
        costs = [cost for model in models if (cost := get_cost(model, "costUSD")) is not None]
        if len(costs) == len(models):
            return whole_usd(float(sum(costs))), total
    if told is None or total is None or carried is None:
        return None, total
    return (total if total < carried else whole_usd(total - carried)), total


def denied_tools(frame: Frame) -> tuple[str, ...]:
    """Return the names of the refused tools, each once, in order."""
    names = [get_str(denial, "tool_name") for denial in get_dicts(frame, "permission_denials")]
    return tuple(dict.fromkeys(name for name in names if name))


class Denials(Struct):
    """Refusals of a turn.

    Some refusals have a frame of their own. Refusals by a hook or an approval, and all of qwen's, are in the result only; their
    reason is the tool result that the model got.
    """

    told: set[str | None] = field(default_factory=set)
    without_call: dict[str, None] = field(default_factory=dict)
    """Refusals without a call: no result lists them."""
    words: dict[str, str] = field(default_factory=dict)

    def see(self, events: Iterable[EventBase]) -> None:
        """Note reported refusals, and tool results that may belong to unreported ones."""
        for event in events:
            if isinstance(event, PermissionDenied):
                self.told.add(event.tool_use_id)
                if event.tool_use_id is None:
                    self.without_call[event.name] = None
            elif isinstance(event, ToolResult) and event.is_error:
                self.words[event.tool_use_id] = detail(event.content) or ""

    @property
    def unlisted(self) -> tuple[str, ...]:
        """Return the names of the refusals that no result lists, each once."""
        return tuple(self.without_call)

    def rest(self, frame: Frame) -> list[EventBase]:
        """Return the refusals that only the result lists, and forget everything: the turn is over."""
        events: list[EventBase] = []
        for denial in get_dicts(frame, "permission_denials"):
            name, tool_use_id = get_str(denial, "tool_name"), get_str(denial, "tool_use_id")
            if name and (tool_use_id is None or tool_use_id not in self.told):
                reason = self.words.get(tool_use_id or "")
                events.append(PermissionDenied(tool_use_id=tool_use_id, name=name, reason=reason))
        self.told.clear()
        self.without_call.clear()
        self.words.clear()
        return events
