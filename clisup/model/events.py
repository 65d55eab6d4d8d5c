"""Event vocabulary: the content of a session's journal, and the events that every client receives.

Each type has one immutable struct; `Event` is their union, discriminated by `type`. Decoders make events, the daemon adds
its own, and nothing else travels between the layers. A field that is null is left out of the JSON; a client reads a
missing field as null. `clisup.model.envelope` makes the envelope around an event (`session_id, seq, ts, turn_id,
source`) once.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from clisup.model.structs import JsonObject, WireStruct, kept
from clisup.model.usage import UNKNOWN_USAGE, Usage

__all__ = [
    "EVENT_CLASSES",
    "EVENT_TYPES",
    "Actor",
    "ApprovalRequested",
    "ApprovalResolved",
    "AssistantMessage",
    "BackendRetry",
    "BackendStatus",
    "Block",
    "ContentDelta",
    "DeltaKind",
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


class Actor(WireStruct, frozen=True):
    """Client that asked for a change: the peer's uid and pid by SO_PEERCRED, and the name it gave itself."""

    uid: int
    pid: int
    client: str | None = None


class TurnError(WireStruct, frozen=True):
    """Reason of a failed turn. Programs branch on `kind`; `retryable`: the same prompt may work later."""

    kind: TurnErrorKind
    message: str
    retryable: bool = kept(False)
    retry_after_s: float | None = None
    resets_at: str | None = None
    http_status: int | None = None


class Block(WireStruct, frozen=True):
    """Content block of a message or tool result. `blob` names the whole payload if the field holds only its head.

    `signature` is the maker's proof of a thinking block: with it the block can be sent to the same model again.
    """

    kind: Literal["text", "thinking", "redacted_thinking", "tool_use", "image", "other"]
    text: str | None = None
    tool_use_id: str | None = None
    name: str | None = None
    input: JsonObject | None = None
    media_type: str | None = None
    data: str | None = None
    native_kind: str | None = None
    signature: str | None = None
    blob: str | None = None


class EventBase(WireStruct, frozen=True, tag_field="type"):
    """Base of all events. `payload` names the fields that may move to a blob if they are over the inline limit."""

    payload: ClassVar[tuple[str, ...]] = ()
    type: ClassVar[str]


class SessionInit(EventBase, frozen=True, tag="session_init"):
    """Introduction of the CLI: its session, model, tools, version, or ACP `agent`. claude sends it once for each turn."""

    type: ClassVar[Literal["session_init"]] = "session_init"
    native_session_id: str | None = None
    model: str | None = None
    cwd: str | None = None
    tools: tuple[str, ...] = kept(())
    mcp_servers: tuple[JsonObject, ...] = kept(())
    permission_mode: str | None = None
    backend_version: str | None = None
    credential_source: str | None = None
    agent: str | None = None


class SessionForked(EventBase, frozen=True, kw_only=True, tag="session_forked"):
    """First event of a session that was forked from another session.

    Its history is that session's, up to the end of `at_turn`. `whole`: the CLI's transcript was copied without cuts.
    `at_turn` is the last turn in it, null if the source had no turn of its own.
    """

    type: ClassVar[Literal["session_forked"]] = "session_forked"
    source_session_id: str
    at_turn: str | None = None
    whole: bool
    source_native_session_id: str
    native_session_id: str
    actor: Actor | None = None


class SessionSeeded(EventBase, frozen=True, tag="session_seeded"):
    """First event of a session that was opened with a history: a transcript of so many `messages` was written for it."""

    type: ClassVar[Literal["session_seeded"]] = "session_seeded"
    messages: int
    native_session_id: str
    actor: Actor | None = None


class PromptAccepted(EventBase, frozen=True, kw_only=True, tag="prompt_accepted"):
    """Durable prompt: it will be delivered, or the journal holds the reason why not.

    A `steered` prompt was sent into the running turn under its `prompt_id`. The `turn_completed` that names this id has
    taken it. `text` is the redacted prompt, cut at 16 Ki characters, and `images` counts its images. If the event does not
    hold the whole prompt, `blob` names the payload with all blocks as JSON. With `daemon.keep_prompts = "off"` all three
    are empty.
    """

    type: ClassVar[Literal["prompt_accepted"]] = "prompt_accepted"
    key: str | None = None
    delivery: Literal["delivered", "queued", "steered", "duplicate", "uncertain"]
    position: int | None = None
    actor: Actor | None = None
    prompt_id: str | None = None
    text: str | None = None
    images: int = kept(0)
    blob: str | None = None


class TurnStarted(EventBase, frozen=True, tag="turn_started"):
    """Beginning of a turn on run `run`.

    `prompt_altered` describes any change to the prompt's text before the CLI got it. `origin` is `backend` if the CLI
    began the turn by itself. `prompt_ids` are a live CLI's names for the prompts that begin the turn. `prompt_preview`
    and `prompt_bytes` are of the prompt's text. `prompt_images` counts its images, which no event holds.
    """

    type: ClassVar[Literal["turn_started"]] = "turn_started"
    run: int
    prompt_altered: str | None = None
    prompt_preview: str | None = None
    prompt_bytes: int | None = None
    prompt_images: int | None = None
    key: str | None = None
    actor: Actor | None = None
    origin: Literal["prompt", "backend"] = kept("prompt")
    prompt_ids: tuple[str, ...] | None = None


class ProcessStarted(EventBase, frozen=True, tag="process_started"):
    """Start of the CLI's process.

    `argv` has secret values redacted, `env_names` are names only, `start_time` is in clock ticks. `newer_than`: the CLI is newer.
    """

    type: ClassVar[Literal["process_started"]] = "process_started"
    pid: int
    start_time: int | None = None
    argv: tuple[str, ...] = kept(())
    env_names: tuple[str, ...] = kept(())
    env_attested: bool | None = None
    cgroup: str | None = None
    newer_than: str | None = None


class MessageStart(EventBase, frozen=True, tag="message_start"):
    """Beginning of a message of the model. `parent_tool_use_id` marks a subagent's message."""

    type: ClassVar[Literal["message_start"]] = "message_start"
    message_id: str | None = None
    model: str | None = None
    parent_tool_use_id: str | None = None


DeltaKind = Literal["text", "thinking", "tool_input"]


class ContentDelta(EventBase, frozen=True, gc=False, tag="content_delta"):
    """Piece of a block while the model writes it. The later `message` is authoritative."""

    payload: ClassVar[tuple[str, ...]] = ("text",)
    type: ClassVar[Literal["content_delta"]] = "content_delta"
    kind: DeltaKind
    text: str
    index: int | None = None
    message_id: str | None = None
    parent_tool_use_id: str | None = None
    blob: str | None = None


class AssistantMessage(EventBase, frozen=True, tag="message"):
    """Authoritative content of blocks. `synthetic` marks text that the CLI wrote itself (an error, a notice)."""

    payload: ClassVar[tuple[str, ...]] = ("blocks",)
    type: ClassVar[Literal["message"]] = "message"
    message_id: str | None = None
    blocks: tuple[Block, ...] = kept(())
    parent_tool_use_id: str | None = None
    synthetic: bool | None = None


class ToolUse(EventBase, frozen=True, tag="tool_use"):
    """Call of a tool by the model."""

    payload: ClassVar[tuple[str, ...]] = ("input",)
    type: ClassVar[Literal["tool_use"]] = "tool_use"
    tool_use_id: str
    name: str
    input: JsonObject = kept({})
    parent_tool_use_id: str | None = None
    blob: str | None = None


class ToolProgress(EventBase, frozen=True, tag="tool_progress"):
    """Sign that a tool still runs."""

    type: ClassVar[Literal["tool_progress"]] = "tool_progress"
    tool_use_id: str | None = None
    name: str | None = None
    elapsed_s: float | None = None


class ToolResult(EventBase, frozen=True, tag="tool_result"):
    """Result of a tool. `content` is its text; `blocks` is set only if the result holds more than text."""

    payload: ClassVar[tuple[str, ...]] = ("content", "blocks")
    type: ClassVar[Literal["tool_result"]] = "tool_result"
    tool_use_id: str
    content: str = kept("")
    blocks: tuple[Block, ...] | None = None
    is_error: bool = kept(False)
    truncated: bool = kept(False)
    parent_tool_use_id: str | None = None
    blob: str | None = None


class PermissionDenied(EventBase, frozen=True, kw_only=True, tag="permission_denied"):
    """Refusal of a tool by the CLI, because a permission is missing.

    The turn goes on; `turn_completed.denied` lists all refusals.
    """

    type: ClassVar[Literal["permission_denied"]] = "permission_denied"
    tool_use_id: str | None = None
    name: str
    reason: str | None = None


class MessageStop(EventBase, frozen=True, tag="message_stop"):
    """End of a message of the model, with its usage."""

    type: ClassVar[Literal["message_stop"]] = "message_stop"
    message_id: str | None = None
    stop_reason: str | None = None
    usage: Usage | None = None
    parent_tool_use_id: str | None = None


class Retracted(EventBase, frozen=True, tag="retracted"):
    """Retraction by the CLI of text already shown: drop the blocks of `message_id` from `from_index` on."""

    type: ClassVar[Literal["retracted"]] = "retracted"
    message_id: str | None = None
    from_index: int = kept(0)
    reason: str = kept("")


class UsageReport(EventBase, frozen=True, tag="usage"):
    """Usage of a model call, where the CLI reports it as an event of its own."""

    type: ClassVar[Literal["usage"]] = "usage"
    usage: Usage
    context_tokens: int | None = None


class RateLimit(EventBase, frozen=True, tag="rate_limit"):
    """Report of the CLI on the rate limit of its account."""

    type: ClassVar[Literal["rate_limit"]] = "rate_limit"
    status: str
    limit_type: str | None = None
    utilization: float | None = None
    resets_at: str | None = None
    retry_after_s: float | None = None


class BackendRetry(EventBase, frozen=True, tag="retry"):
    """Repetition of a model request by the CLI itself."""

    type: ClassVar[Literal["retry"]] = "retry"
    attempt: int | None = None
    max_attempts: int | None = None
    delay_s: float | None = None
    error: TurnError | None = None


class TaskUpdate(EventBase, frozen=True, kw_only=True, tag="task"):
    """Subagent or background task.

    `state` is running, or the way it ended; `report` is a subagent's result in its own words.
    """

    payload: ClassVar[tuple[str, ...]] = ("report",)
    type: ClassVar[Literal["task"]] = "task"
    task_id: str
    kind: str | None = None
    state: str
    description: str | None = None
    tool_use_id: str | None = None
    report: str | None = None
    blob: str | None = None


class ApprovalRequested(EventBase, frozen=True, tag="approval_requested"):
    """Question of the CLI about a tool call.

    `suggestions` are the CLI's own offers of rules to remember, `reason` is its text.
    """

    payload: ClassVar[tuple[str, ...]] = ("input",)
    type: ClassVar[Literal["approval_requested"]] = "approval_requested"
    approval_id: str
    tool_name: str
    input: JsonObject = kept({})
    suggestions: tuple[JsonObject, ...] = kept(())
    tool_use_id: str | None = None
    reason: str | None = None
    blob: str | None = None


ResolvedBy = Literal["client", "rule", "unattended", "backend", "end", "exit"]


class ApprovalResolved(EventBase, frozen=True, kw_only=True, tag="approval_resolved"):
    """End of an approval: no approval is open any more under this id. `by` names the cause.

    Causes: a client (`actor`), a rule (`rule`), an unattended session, a withdrawal by the CLI, the order to end the run, its exit.
    """

    type: ClassVar[Literal["approval_resolved"]] = "approval_resolved"
    approval_id: str
    tool_name: str | None = None
    decision: Literal["allow", "deny", "cancelled"]
    by: ResolvedBy = kept("backend")
    actor: Actor | None = None
    rule: str | None = None
    message: str | None = None
    remember: bool | None = None
    option: str | None = None
    input_changed: bool | None = None


class BackendStatus(EventBase, frozen=True, tag="status"):
    """Status that the CLI reports."""

    type: ClassVar[Literal["status"]] = "status"
    status: str
    detail: str | None = None


class StderrLine(EventBase, frozen=True, tag="stderr"):
    """Line of the CLI's stderr."""

    type: ClassVar[Literal["stderr"]] = "stderr"
    text: str


class WatchdogNotice(EventBase, frozen=True, tag="watchdog"):
    """Action of the watchdog and its evidence. `credited` grants a new window, `warned` warns, `fired` ends the run."""

    type: ClassVar[Literal["watchdog"]] = "watchdog"
    action: Literal["warned", "fired", "credited"]
    phase: str
    limit_s: float | None = None
    idle_s: float | None = None
    evidence: JsonObject | None = None


class ProcessExited(EventBase, frozen=True, tag="process_exited"):
    """Exit of the CLI's process. `actor` is the client that had asked for the end.

    `survivors` outlived the process and had to be killed. The orphan policy let `kept` processes go on, and `left`
    processes could not be killed (pid, comm each).
    """

    type: ClassVar[Literal["process_exited"]] = "process_exited"
    exit_code: int | None = None
    signal: int | None = None
    ended_by: str = kept("unknown")
    actor: Actor | None = None
    survivors: tuple[JsonObject, ...] = kept(())
    kept: tuple[JsonObject, ...] | None = None
    left: tuple[JsonObject, ...] | None = None
    duration_s: float | None = None
    max_rss_kb: int | None = None
    note: str | None = None


class TurnCompleted(EventBase, frozen=True, tag="turn_completed"):
    """Single end of a turn. `usage` and `cost_usd` are of this turn alone; `denied` names the tools that were refused.

    `delivery` is set if it is uncertain whether the CLI took the prompt; `evidence` is then the content of its own
    transcript. `prompt_ids` are the prompts that the turn took, steered ones too, if a live CLI reports them.
    """

    payload: ClassVar[tuple[str, ...]] = ("text",)
    type: ClassVar[Literal["turn_completed"]] = "turn_completed"
    outcome: TurnOutcome
    stop_reason: str | None = None
    text: str = kept("")
    usage: Usage = kept(UNKNOWN_USAGE)
    cost_usd: float | None = None
    cost_source: Literal["reported", "estimated", "unknown"] = kept("unknown")
    denied: tuple[str, ...] = kept(())
    error: TurnError | None = None
    duration_s: float | None = None
    structured: Any = None
    prompt_ids: tuple[str, ...] | None = None
    delivery: Literal["uncertain"] | None = None
    evidence: JsonObject | None = None
    blob: str | None = None


class Unparsed(EventBase, frozen=True, tag="unparsed"):
    """Output that is no known event.

    `excerpt` is its beginning, `blob` names it in the spool; of one line, or of `lines`.
    """

    type: ClassVar[Literal["unparsed"]] = "unparsed"
    reason: Literal["malformed", "unknown_type", "oversize", "truncated"]
    bytes: int
    excerpt: str = kept("")
    lines: int | None = None
    blob: str | None = None


class Notice(EventBase, frozen=True, tag="notice"):
    """Notice from the daemon: `code` is stable, `message` is for people.

    A client's own notice (`session/note`) has a code that begins with `client.`. It may bring `data`, and `actor` names
    the client.
    """

    type: ClassVar[Literal["notice"]] = "notice"
    code: str
    message: str
    data: JsonObject | None = None
    actor: Actor | None = None


Event = (
    SessionInit | PromptAccepted | TurnStarted | ProcessStarted | MessageStart | ContentDelta | AssistantMessage | ToolUse
    | ToolProgress | ToolResult | PermissionDenied | MessageStop | Retracted | UsageReport | RateLimit | BackendRetry
    | TaskUpdate | ApprovalRequested | ApprovalResolved | BackendStatus | StderrLine | WatchdogNotice | ProcessExited
    | TurnCompleted | Unparsed | Notice | SessionForked | SessionSeeded
)  # fmt: skip

EVENT_CLASSES: dict[str, type[EventBase]] = {cls.type: cls for cls in EventBase.__subclasses__()}
EVENT_TYPES: tuple[str, ...] = tuple(EVENT_CLASSES)
