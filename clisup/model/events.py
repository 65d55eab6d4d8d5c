"""The event vocabulary: what a session's journal holds and every client receives.

One frozen model a type; `Event` is their union, told apart by `type`. Decoders make them, the daemon adds its own, nothing
else travels between the layers. A field that is null is left out of the JSON; a client reads a missing field as null.
The envelope around an event (`session_id, seq, ts, turn_id, source`) is made once, by `clisup.model.envelope`.
"""

# Not `from __future__ import annotations`: pydantic would compile and evaluate each field's at every start.

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from clisup.model.usage import Usage

__all__ = [
    "EVENT_TYPES",
    "Actor",
    "ApprovalRequested",
    "ApprovalResolved",
    "AssistantMessage",
    "BackendRetry",
    "BackendStatus",
    "Block",
    "ContentDelta",
    "Event",
    "EventBase",
    "MessageStart",
    "MessageStop",
    "Notice",
    "PermissionDenied",
    "ProcessExited",
    "ProcessStarted",
    "PromptAccepted",
    "RateLimit",
    "Retracted",
    "SessionForked",
    "SessionInit",
    "SessionSeeded",
    "StderrLine",
    "TaskUpdate",
    "ToolProgress",
    "ToolResult",
    "ToolUse",
    "TurnCompleted",
    "TurnError",
    "TurnErrorKind",
    "TurnOutcome",
    "TurnStarted",
    "Unparsed",
    "UsageReport",
    "WatchdogNotice",
]

TurnOutcome = Literal["completed", "failed", "interrupted", "timed_out"]
TurnErrorKind = Literal[
    "authentication", "permission", "rate_limit", "quota_exceeded", "overloaded", "server", "network", "model_not_found",
    "invalid_request", "context_overflow", "max_turns", "budget", "refusal", "session_not_found", "startup_timeout",
    "idle_timeout", "turn_timeout", "cancelled", "spawn_failed", "output_limit", "protocol", "crashed", "storage_failed",
    "resource_limit", "session_busy",
]  # fmt: skip


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)  # each when it is first used


class Actor(_Frozen):
    """Who asked for a change: the peer's uid and pid by SO_PEERCRED, and the name it gave itself."""

    uid: int
    pid: int
    client: str | None = None


class TurnError(_Frozen):
    """Why a turn failed. `kind` is what programs branch on; `retryable` says whether the same prompt may work later."""

    kind: TurnErrorKind
    message: str
    retryable: bool = False
    retry_after_s: float | None = None
    resets_at: str | None = None
    http_status: int | None = None


class Block(_Frozen):
    """One content block of a message or tool result. `blob` names the whole payload where the field holds only its head.

    `signature` is the maker's proof of a thinking block: with it the block can be sent to the same model again.
    """

    kind: Literal["text", "thinking", "redacted_thinking", "tool_use", "image", "other"]
    text: str | None = None
    tool_use_id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    media_type: str | None = None
    data: str | None = None
    native_kind: str | None = None
    signature: str | None = None
    blob: str | None = None


class EventBase(_Frozen):
    """What all events share. `payload` names the fields that may be moved to a blob when they are over the inline limit."""

    payload: ClassVar[tuple[str, ...]] = ()
    type: str


class SessionInit(EventBase):
    """The CLI said who it is. Comes once for each turn in claude."""

    type: Literal["session_init"] = "session_init"
    native_session_id: str | None = None
    model: str | None = None
    cwd: str | None = None
    tools: tuple[str, ...] = ()
    mcp_servers: tuple[dict[str, Any], ...] = ()
    permission_mode: str | None = None
    backend_version: str | None = None
    credential_source: str | None = None


class SessionForked(EventBase):
    """The first event of a session that was forked from another one: its history is that one's, up to the end of `at_turn`.

    `whole`: the CLI's transcript was copied as it was. `at_turn` is the last turn in it, null where the source had none of its own.
    """

    type: Literal["session_forked"] = "session_forked"
    source_session_id: str
    at_turn: str | None = None
    whole: bool
    source_native_session_id: str
    native_session_id: str
    actor: Actor | None = None


class SessionSeeded(EventBase):
    """The first event of a session that was opened with a history: a transcript of so many `messages` was written for it."""

    type: Literal["session_seeded"] = "session_seeded"
    messages: int
    native_session_id: str
    actor: Actor | None = None


class PromptAccepted(EventBase):
    """A prompt is durable: it will be delivered, or the journal says why not.

    `steered` was said into the running turn under its `prompt_id`; the `turn_completed` that names this id has taken it.
    """

    type: Literal["prompt_accepted"] = "prompt_accepted"
    key: str | None = None
    delivery: Literal["delivered", "queued", "steered", "duplicate", "uncertain"]
    position: int | None = None
    actor: Actor | None = None
    prompt_id: str | None = None


class TurnStarted(EventBase):
    """A turn began on run `run`. `prompt_altered` says what was done to the prompt's text before the CLI got it.

    `origin` is `backend` where the CLI began it by itself. `prompt_ids` are by what a live CLI names the prompts it begins with.
    `prompt_preview` and `prompt_bytes` are of the prompt's text; `prompt_images` counts the images beside it, which no
    event holds.
    """

    type: Literal["turn_started"] = "turn_started"
    run: int
    prompt_altered: str | None = None
    prompt_preview: str | None = None
    prompt_bytes: int | None = None
    prompt_images: int | None = None
    key: str | None = None
    actor: Actor | None = None
    origin: Literal["prompt", "backend"] = "prompt"
    prompt_ids: tuple[str, ...] | None = None


class ProcessStarted(EventBase):
    """The CLI's process runs. `argv` has secret values redacted, `env_names` are names only, `start_time` is in clock ticks."""

    type: Literal["process_started"] = "process_started"
    pid: int
    start_time: int | None = None
    argv: tuple[str, ...] = ()
    env_names: tuple[str, ...] = ()
    env_attested: bool | None = None
    cgroup: str | None = None


class MessageStart(EventBase):
    type: Literal["message_start"] = "message_start"
    message_id: str | None = None
    model: str | None = None
    parent_tool_use_id: str | None = None


class ContentDelta(EventBase):
    """A piece of a block while it is being made. The later `message` is authoritative."""

    payload: ClassVar[tuple[str, ...]] = ("text",)
    type: Literal["content_delta"] = "content_delta"
    kind: Literal["text", "thinking", "tool_input"]
    text: str
    index: int | None = None
    message_id: str | None = None
    parent_tool_use_id: str | None = None
    blob: str | None = None


class AssistantMessage(EventBase):
    """The authoritative whole of one or more blocks. `synthetic` marks text that the CLI wrote itself (an error, a notice)."""

    payload: ClassVar[tuple[str, ...]] = ("blocks",)
    type: Literal["message"] = "message"
    message_id: str | None = None
    blocks: tuple[Block, ...] = ()
    parent_tool_use_id: str | None = None
    synthetic: bool | None = None


class ToolUse(EventBase):
    payload: ClassVar[tuple[str, ...]] = ("input",)
    type: Literal["tool_use"] = "tool_use"
    tool_use_id: str
    name: str
    input: dict[str, Any] = Field(default_factory=dict)
    parent_tool_use_id: str | None = None
    blob: str | None = None


class ToolProgress(EventBase):
    type: Literal["tool_progress"] = "tool_progress"
    tool_use_id: str | None = None
    name: str | None = None
    elapsed_s: float | None = None


class ToolResult(EventBase):
    """What a tool gave back. `content` is its text; `blocks` is there only where the result holds more than text."""

    payload: ClassVar[tuple[str, ...]] = ("content", "blocks")
    type: Literal["tool_result"] = "tool_result"
    tool_use_id: str
    content: str = ""
    blocks: tuple[Block, ...] | None = None
    is_error: bool = False
    truncated: bool = False
    parent_tool_use_id: str | None = None
    blob: str | None = None


class PermissionDenied(EventBase):
    """The CLI refused a tool, for want of a permission. The turn goes on; `turn_completed.denied` lists them again."""

    type: Literal["permission_denied"] = "permission_denied"
    tool_use_id: str | None = None
    name: str
    reason: str | None = None


class MessageStop(EventBase):
    type: Literal["message_stop"] = "message_stop"
    message_id: str | None = None
    stop_reason: str | None = None
    usage: Usage | None = None
    parent_tool_use_id: str | None = None


class Retracted(EventBase):
    """Text already shown that the CLI took back: drop the blocks of `message_id` from `from_index` on."""

    type: Literal["retracted"] = "retracted"
    message_id: str | None = None
    from_index: int = 0
    reason: str = ""


class UsageReport(EventBase):
    type: Literal["usage"] = "usage"
    usage: Usage
    context_tokens: int | None = None


class RateLimit(EventBase):
    type: Literal["rate_limit"] = "rate_limit"
    status: str
    limit_type: str | None = None
    utilization: float | None = None
    resets_at: str | None = None
    retry_after_s: float | None = None


class BackendRetry(EventBase):
    """The CLI repeats a model request by itself."""

    type: Literal["retry"] = "retry"
    attempt: int | None = None
    max_attempts: int | None = None
    delay_s: float | None = None
    error: TurnError | None = None


class TaskUpdate(EventBase):
    """A subagent or background task. `state` is running, or how it ended; `report` is what a subagent found, in its own words."""

    payload: ClassVar[tuple[str, ...]] = ("report",)
    type: Literal["task"] = "task"
    task_id: str
    kind: str | None = None
    state: str
    description: str | None = None
    tool_use_id: str | None = None
    report: str | None = None
    blob: str | None = None


class ApprovalRequested(EventBase):
    """The CLI waits for a word on a tool call. `suggestions` are the CLI's own offers of what to remember, `reason` its words."""

    payload: ClassVar[tuple[str, ...]] = ("input",)
    type: Literal["approval_requested"] = "approval_requested"
    approval_id: str
    tool_name: str
    input: dict[str, Any] = Field(default_factory=dict)
    suggestions: tuple[dict[str, Any], ...] = ()
    tool_use_id: str | None = None
    reason: str | None = None
    blob: str | None = None


ResolvedBy = Literal["client", "rule", "unattended", "backend", "end", "exit"]


class ApprovalResolved(EventBase):
    """No approval is open any more under this id. `by` says what ended it: a client's word (`actor`), a rule (`rule`), nobody
    being there, the CLI that took it back, the order to end the run, or the CLI's exit.
    """

    type: Literal["approval_resolved"] = "approval_resolved"
    approval_id: str
    tool_name: str | None = None
    decision: Literal["allow", "deny", "cancelled"]
    by: ResolvedBy = "backend"
    actor: Actor | None = None
    rule: str | None = None
    message: str | None = None
    remember: bool | None = None
    input_changed: bool | None = None


class BackendStatus(EventBase):
    type: Literal["status"] = "status"
    status: str
    detail: str | None = None


class StderrLine(EventBase):
    type: Literal["stderr"] = "stderr"
    text: str


class WatchdogNotice(EventBase):
    """What the watchdog did and what it had seen: `credited` grants a new window, `warned` is a warning, `fired` ends the run."""

    type: Literal["watchdog"] = "watchdog"
    action: Literal["warned", "fired", "credited"]
    phase: str
    limit_s: float | None = None
    idle_s: float | None = None
    evidence: dict[str, Any] | None = None


class ProcessExited(EventBase):
    """The CLI's process is gone. `survivors` outlived it and had to be killed, `kept` were let go by the orphan policy, `left`
    could not be killed (pid, comm each). `actor` is the client that had asked for the end."""

    type: Literal["process_exited"] = "process_exited"
    exit_code: int | None = None
    signal: int | None = None
    ended_by: str = "unknown"
    actor: Actor | None = None
    survivors: tuple[dict[str, Any], ...] = ()
    kept: tuple[dict[str, Any], ...] | None = None
    left: tuple[dict[str, Any], ...] | None = None
    duration_s: float | None = None
    max_rss_kb: int | None = None
    note: str | None = None


class TurnCompleted(EventBase):
    """The one end of a turn. `usage` and `cost_usd` are of this turn alone; `denied` names the tools that were refused.

    `delivery` is there where nobody can say whether the CLI took the prompt; `evidence` is what its own transcript says.
    `prompt_ids` are the prompts that the turn took, steered ones too, where a live CLI tells.
    """

    payload: ClassVar[tuple[str, ...]] = ("text",)
    type: Literal["turn_completed"] = "turn_completed"
    outcome: TurnOutcome
    stop_reason: str | None = None
    text: str = ""
    usage: Usage = Usage()
    cost_usd: float | None = None
    cost_source: Literal["reported", "estimated", "unknown"] = "unknown"
    denied: tuple[str, ...] = ()
    error: TurnError | None = None
    duration_s: float | None = None
    structured: Any = None
    prompt_ids: tuple[str, ...] | None = None
    delivery: Literal["uncertain"] | None = None
    evidence: dict[str, Any] | None = None
    blob: str | None = None


class Unparsed(EventBase):
    """Output that is no event of ours, kept: `excerpt` is its beginning, `blob` names it in the spool; of one line, or of `lines`."""

    type: Literal["unparsed"] = "unparsed"
    reason: Literal["malformed", "unknown_type", "oversize", "truncated"]
    bytes: int
    excerpt: str = ""
    lines: int | None = None
    blob: str | None = None


class Notice(EventBase):
    """A word from the daemon: `code` is stable, `message` is for people.

    A client's own (`session/note`) has a code that begins with `client.`, may bring `data`, and says by `actor` whose it is.
    """

    type: Literal["notice"] = "notice"
    code: str
    message: str
    data: dict[str, Any] | None = None
    actor: Actor | None = None


Event = Annotated[
    SessionInit | PromptAccepted | TurnStarted | ProcessStarted | MessageStart | ContentDelta | AssistantMessage | ToolUse
    | ToolProgress | ToolResult | PermissionDenied | MessageStop | Retracted | UsageReport | RateLimit | BackendRetry
    | TaskUpdate | ApprovalRequested | ApprovalResolved | BackendStatus | StderrLine | WatchdogNotice | ProcessExited
    | TurnCompleted | Unparsed | Notice | SessionForked | SessionSeeded,
    Field(discriminator="type"),
]  # fmt: skip

EVENT_TYPES: tuple[str, ...] = tuple(
    cls.model_fields["type"].default for cls in EventBase.__subclasses__() if cls.model_fields["type"].default
)
