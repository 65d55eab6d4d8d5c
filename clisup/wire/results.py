"""Results of the methods, and the params of the daemon's own requests: what the daemon writes. See docs/reference/protocol.md."""

# Not `from __future__ import annotations`: pydantic would compile and evaluate each annotation at every start.

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from clisup.config.keys import Effect
from clisup.model.prompts.options import ToolSpec
from clisup.model.structs import JsonObject
from clisup.model.usage import Usage
from clisup.policy.rate_limit import AccountLimit

GcItemKind = Literal[
    "session", "events", "private", "run", "scratch", "temporary", "trash", "cgroup", "socket", "worktree"
]


class Result(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)

    def to_json(self) -> bytes:
        return self.model_dump_json().encode()


class Done(Result):
    ok: bool = True


class InitializeResult(Result):
    protocol_version: int
    server: JsonObject
    limits: dict[str, int]
    backends: list[str]


class PingResult(Result):
    time: str


class RestartResult(Result):
    running: int
    instance_id: str


class ChangedKey(Result):
    key: str
    what: Literal["changed", "added", "removed"]
    effect: Effect


class ReloadResult(Result):
    file: str
    changed: list[ChangedKey]


class MetricsResult(Result):
    text: str
    content_type: str


class LogResult(Result):
    lines: list[JsonObject]
    dropped: int
    held_back: dict[str, int]


class GcItem(Result):
    """Removed file or directory. With `dry_run`: a file or directory that a real run would remove."""

    kind: GcItemKind
    path: str
    session_id: str | None
    bytes: int
    reason: str


class GcFailure(Result):
    """File or directory that the daemon failed to remove, with the reason."""

    path: str
    error: str


class GcResult(Result):
    """`items` lists what one call removed, or with `dry_run` would remove. `more` counts findings beyond the limit of one call.

    `foreign` lists leftovers of programs that clisup did not start. They stay, unless the request has `foreign`.
    `kept` lists worktrees of closed sessions that stay because work is in them, each with the reason.
    """

    dry_run: bool
    items: list[GcItem]
    bytes: int
    failed: list[GcFailure]
    more: int
    foreign: list[GcItem] = []
    kept: list[GcFailure] = []


class NotifyRow(Result):
    """Target of one `[[notify]]` table, with its counts since the daemon's start. `target` is a program or a host."""

    name: str
    on: list[str]
    kind: Literal["command", "url"]
    target: str
    format: str
    signed: bool
    labels: dict[str, str]
    backends: list[str]
    state: Literal["ok", "failing"]
    failing_since: str | None
    error: str | None
    delivered: int
    failed: int
    given_up: int


class NotifyListResult(Result):
    targets: list[NotifyRow]


class NotifyTest(Result):
    """Result of a test message. `output` is the head of what the command printed, or of the server's answer."""

    name: str
    target: str
    ok: bool
    detail: str
    output: str
    duration_s: float


class NotifyTestResult(Result):
    results: list[NotifyTest]


class SharedAccount(Result):
    """Account that the configuration names. Times of `limit` are seconds since the epoch, as its CLI reported them."""

    account: str
    limit: AccountLimit
    waiting: list[str]
    probe: str | None


class AccountListResult(Result):
    accounts: list[SharedAccount]
    limit_hold_s: float


class BackendInfo(Result):
    name: str
    kind: str
    command: list[str]
    path: str | None
    version: str | None
    supported: bool
    supported_versions: str
    newer_than: str | None = None
    """Newest version that clisup was checked with, if the installed one is newer. It is used all the same."""
    capabilities: JsonObject
    unavailable_reason: str | None
    default: bool


class NameRule(Result):
    name: str
    rule: str


class CheckedList(Result):
    list: str
    source: str
    date: str


class BackendEnvResult(Result):
    kept: list[NameRule]
    dropped: list[NameRule]
    set: list[NameRule]
    lists: list[CheckedList] = []
    held_back: list[str] = []
    keys: list[str] = []
    """Variables with which the CLI logs in, whether or not the daemon has them."""


class BackendModelsResult(Result):
    models: list[str]


class NativeSessionInfo(Result):
    """Session of a CLI. `session_id` is the session of clisup that has or had it. `updated_at` is the time of its transcript."""

    backend: str
    native_session_id: str
    title: str | None
    prompt: str | None
    branch: str | None
    started_at: str | None
    updated_at: str
    session_id: str | None = None


class BackendSessionsResult(Result):
    """Sessions, newest first. `skipped` names backends whose files could not be read in time."""

    sessions: list[NativeSessionInfo]
    skipped: list[str] = []


class CheckFinding(Result):
    check: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    fix: str
    backend: str | None


class SessionNewResult(Result):
    session_id: str
    native_session_id: str | None = None
    cwd: str | None = None
    worktree: JsonObject | None = None
    backend: str = ""


class SessionForkResult(Result):
    session_id: str
    native_session_id: str


class SessionSummary(Result):
    """Row of a session. `branch` is the git branch of `cwd`. `closed_by` is "client" or "idle" for a closed session."""

    session_id: str
    title: str | None = None
    backend: str
    model: str | None
    state: str
    phase: str | None
    turn_id: str | None
    native_session_id: str | None
    cwd: str
    branch: str | None = None
    labels: dict[str, str]
    created_at: str
    closed_by: str | None = None
    pid: int | None
    keeper_pid: int | None
    rss_bytes: int | None
    live: bool
    idle_s: float | None
    age_s: float | None
    turns: int
    last_turn: JsonObject | None
    held: JsonObject | None
    approvals: int
    queue: list[JsonObject]
    tokens: Usage
    cost_usd: float | None
    cost_source: str
    budget: JsonObject | None
    subscribers: int
    first_seq: int
    next_seq: int
    last_event: JsonObject | None
    next_timer: JsonObject | None
    worktree: JsonObject | None = None


class SessionListResult(Result):
    sessions: list[SessionSummary]
    next_cursor: str | None = None


class SessionDetail(SessionSummary):
    tools: JsonObject | None = None
    timers: list[JsonObject]
    watch: JsonObject | None
    last_events: list[JsonObject]
    turn_cost_usd: float | None


class CloseResult(Done):
    """`worktree_kept` is the reason why the session's worktree stays, or null."""

    worktree_kept: str | None = None


class WorktreeCommit(Result):
    id: str
    subject: str


class ChangedFile(Result):
    """File with its added and deleted lines: null for a binary file."""

    path: str
    added: int | None
    deleted: int | None


class DiffResult(Result):
    """Changes since commit `base`. `not_landed` counts the commits that the branch `target` lacks.

    `diff` has the text of committed and uncommitted changes, without untracked files. `truncated`: a list or the text is
    longer than its limit.
    """

    path: str
    branch: str
    target: str | None
    base: str
    head: str
    commits: list[WorktreeCommit]
    not_landed: int
    files: list[ChangedFile]
    untracked: list[str]
    uncommitted: int
    diff: str | None
    truncated: bool


class LandResult(Result):
    """Branch and its commit before and after. `committed` is the commit that the daemon made of uncommitted changes."""

    branch: str
    before: str
    after: str
    commits: int
    committed: str | None


class DiscardResult(Result):
    """Removed worktree and branch. `commit` has all the work until git prunes it, ignored files apart."""

    path: str
    branch: str
    commit: str
    commits: int
    uncommitted: int


class PromptResult(Result):
    turn_id: str
    seq: int
    delivery: Literal["delivered", "queued", "steered", "duplicate", "uncertain"]
    position: int | None = None
    prompt_id: str | None = None
    held: JsonObject | None = None
    evidence: JsonObject | None = None


class TurnResult(Result):
    turn_id: str
    outcome: str
    text: str
    usage: Usage
    cost_usd: float | None = None
    cost_source: str | None = None
    stop_reason: str | None = None
    denied: list[str] = []
    error: JsonObject | None = None
    structured: Any = None
    delivery: Literal["uncertain"] | None = None
    evidence: JsonObject | None = None


class SetResult(Result):
    applied: Literal["now", "next_turn"]
    value: str


class SetBudgetResult(Result):
    """Budget as `session/get` shows it. Null if the session has no limit any more."""

    budget: JsonObject | None


class ContextUsageResult(Result):
    total_tokens: int | None
    max_tokens: int | None
    percentage: float | None
    model: str | None
    categories: list[JsonObject]


class InterruptResult(Result):
    turn_id: str
    outcome: str


class NoteResult(Result):
    """Seq of the `notice` in the journal."""

    seq: int


class OpenApproval(Result):
    """Approval that waits for a decision. `title`, `backend` and `cwd` belong to the session."""

    approval_id: str
    session_id: str
    title: str | None = None
    backend: str = ""
    cwd: str = ""
    turn_id: str | None
    tool_name: str
    input: JsonObject
    suggestions: list[JsonObject]
    requested_at: str
    seq: int
    tool_use_id: str | None = None
    reason: str | None = None
    blob: str | None = None


class ApprovalListResult(Result):
    approvals: list[OpenApproval]


class RespondResult(Result):
    approval_id: str
    session_id: str
    decision: Literal["allow", "deny"]


class SubscribeResult(Result):
    next_seq: int | None = None
    first_seq: int | None = None
    after_seq: int | None = None
    cursors: dict[str, int] | None = None


class AckResult(Result):
    seq: int


class BlobResult(Result):
    data_base64: str
    size: int
    eof: bool


class ToolServeResult(Result):
    session_id: str
    tools: list[str]
    open: int


class ToolCallParams(Result):
    session_id: str
    turn_id: str | None
    call_id: str
    tool_use_id: str | None
    name: str
    input: JsonObject


class ToolCancelledParams(Result):
    session_id: str
    call_id: str
    reason: str


class BridgeHelloResult(Result):
    session_id: str
    tools: list[ToolSpec]
    max_frame_bytes: int
    max_calls: int


class BridgeCallResult(Result):
    content: Any
    is_error: bool
