"""Params of the methods: what the daemon reads. Params are strict and refuse unknown members. See docs/reference/protocol.md."""

# Not `from __future__ import annotations`: pydantic would compile and evaluate each annotation at every start.

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator

from clisup.config.model import Seconds
from clisup.model.prompts.content import Content, Image, text_of
from clisup.model.prompts.history import History, HistoryImage, text_or_blocks
from clisup.model.prompts.options import OutputSchema, SamplingParams, Tools
from clisup.model.sessions.budget import Budget
from clisup.model.structs import JsonObject
from clisup.policy.approval_rules import MAX_RULES, ApprovalRule

SessionId = Annotated[str, Field(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")]
TurnId = Annotated[str, Field(pattern=r"^t[1-9][0-9]{0,15}$")]
NativeId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]
Label = Annotated[str, Field(max_length=256)]
Path = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^/[^\x00]*$")]
Seq = Annotated[int, Field(ge=0, le=2**53)]
CursorName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
ModelName = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f-][^\x00-\x1f]*$")]
PermissionMode = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
ApprovalId = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,15}:.", max_length=512)]
CliTools = (
    Literal["default", "none"]
    | Annotated[
        list[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,127}$")]], Field(min_length=1, max_length=128)
    ]
)
AnySession = SessionId | Literal["*"]


class Params(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)  # 80 ms less at the start


class Empty(Params):
    pass


class ClientInfo(Params):
    name: Annotated[str, Field(max_length=64, pattern=r"^[\w .:/@+-]*$")]
    version: Annotated[str, Field(max_length=64)] | None = None


class InitializeParams(Params):
    protocol_version: int | None = None
    client: ClientInfo | None = None


class ShutdownParams(Params):
    mode: Literal["drain", "detach", "kill"] = "drain"


class ReloadParams(Params):
    dry_run: bool = False


MetricsFormat = Literal["prometheus", "openmetrics"]


class MetricsParams(Params):
    format: MetricsFormat = "prometheus"


class LogParams(Params):
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    session_id: SessionId | None = None


OLDER_THAN_S = 7 * 86_400.0


class GcParams(Params):
    """`older_than_s` (seconds) applies to closed sessions only. Leftovers are removed at any age.

    `foreign` removes leftovers of programs that clisup did not start, too.
    """

    dry_run: bool = False
    older_than_s: Annotated[float, Field(ge=0, le=3.2e9, allow_inf_nan=False)] = OLDER_THAN_S
    foreign: bool = False


class NotifyTestParams(Params):
    """`name` is the name of a `[[notify]]` table. Without it every table is tested."""

    name: Annotated[str, Field(max_length=64)] | None = None


AccountName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,47}$")]
EpochSeconds = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]


class LearnedLimit(Params):
    """Limit of an account as another box reports it. Times are seconds since the epoch."""

    state: Literal["ok", "warned", "limited"]
    said_at: EpochSeconds
    until: EpochSeconds | None = None
    limit_type: Annotated[str, Field(max_length=200)] | None = None
    utilization: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] | None = None
    message: Annotated[str, Field(max_length=200)] | None = None


class AccountReportParams(Params):
    """`probe` names the boxes that have the first try after the limit's end."""

    account: AccountName
    limit: LearnedLimit | None = None
    probe: Literal["here", "elsewhere"] = "here"


class BackendEnvParams(Params):
    name: Annotated[str, Field(max_length=64)]
    env: dict[str, str] = {}


class BackendModelsParams(Params):
    name: Annotated[str, Field(max_length=64)]


class BackendCheckParams(Params):
    name: Annotated[str, Field(max_length=64)] | None = None
    cwd: Path | None = None


class BackendSessionsParams(Params):
    """`backend` names one backend; without it all are asked."""

    cwd: Path
    backend: Annotated[str, Field(max_length=64)] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class Timeouts(Params):
    startup: Seconds | None = None
    opening: Seconds | None = None
    model_idle: Seconds | None = None
    tool_idle: Seconds | None = None
    hook: Seconds | None = None
    compaction: Seconds | None = None
    login: Seconds | None = None
    approval: Seconds | None = None
    background: Seconds | None = None
    tail: Seconds | None = None
    linger: Seconds | None = None
    turn: Seconds | None = None
    int_grace: Seconds | None = None
    term_grace: Seconds | None = None


class ApprovalsParams(Params):
    rules: Annotated[list[ApprovalRule], Field(max_length=MAX_RULES)] = []
    unattended: Literal["wait", "deny"] | None = None


class WorktreeParams(Params):
    """Git worktree of a new session: a new one, or the one of the open session `session_id`.

    `within` is a directory, as a path without links. The daemon refuses a worktree whose place or repository is outside.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] | None = None
    base: Annotated[str, Field(pattern=r"^[^\x00-\x20-][^\x00-\x20]{0,255}$")] | None = None
    session_id: SessionId | None = None
    within: Path | None = None


Title = Annotated[
    str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$")
]
"""Title of a session: one line with a visible character."""


class SessionNewParams(Params):
    """A missing `backend` is the configuration's `defaults.backend`, else the only installed CLI."""

    backend: Annotated[str, Field(max_length=64)] | None = None
    cwd: Path
    session_id: SessionId | None = None
    mode: Literal["one-shot", "live"] | None = None
    model: ModelName | None = None
    system_prompt: Annotated[str, Field(max_length=4 * 1024 * 1024)] | None = None
    permission_mode: PermissionMode | None = None
    env: dict[str, str] | None = None
    mcp_config: JsonObject | None = None
    timeouts: Timeouts | None = None
    approvals: ApprovalsParams | None = None
    budget: Budget | None = None
    labels: Annotated[dict[Label, Label], Field(max_length=64)] | None = None
    resume_native_id: NativeId | None = None
    tools: Tools | None = None
    history: History | None = None
    cli_tools: CliTools | None = None
    system_prompt_mode: Literal["append", "replace"] | None = None
    worktree: WorktreeParams | bool | None = None
    title: Title | None = None


class SessionForkParams(Params):
    session_id: SessionId
    session_id_new: SessionId | None = None
    at_turn: TurnId | None = None


class SessionListParams(Params):
    labels: dict[Label, Label] | None = None
    state: str | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    cursor: SessionId | None = None


class SessionParams(Params):
    session_id: SessionId


class TextBlock(Params):
    type: Literal["text"]
    text: str
    cache: bool = False


class ImageBlock(HistoryImage):
    pass


SaidBlock = Annotated[TextBlock | ImageBlock, Field(discriminator="type")]


class ToolResultBlock(Params):
    type: Literal["tool_result"]
    tool_use_id: Annotated[str, Field(min_length=1, max_length=256)]
    content: str | list[SaidBlock] = ""
    is_error: bool = False
    cache: bool = False

    @property
    def images(self) -> list[ImageBlock]:
        """Images among the blocks of the result."""
        return [] if isinstance(self.content, str) else [b for b in self.content if isinstance(b, ImageBlock)]


PromptBlock = Annotated[TextBlock | ImageBlock | ToolResultBlock, Field(discriminator="type")]
# The discriminator looks at the type first, so that an error names the faulty block, not "a list is no string".
Prompt = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[PromptBlock], Tag("blocks")],
    Discriminator(text_or_blocks),
]


class PromptParams(Params):
    session_id: SessionId
    prompt: Prompt
    key: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    when_busy: Literal["queue", "refuse", "steer"] = "queue"
    when_limited: Literal["wait", "refuse"] = "wait"
    expand: bool = False
    output_schema: OutputSchema | None = None
    tools: Tools | None = None
    sampling: SamplingParams | None = None
    timeout_s: Annotated[float, Field(gt=0, le=31_536_000, allow_inf_nan=False)] | None = None
    wait: bool = False

    @property
    def text(self) -> str:
        """Text of the prompt: all text blocks joined."""
        return self.prompt if isinstance(self.prompt, str) else text_of(self.content)

    @property
    def content(self) -> Content:
        """Texts and images in order. A prompt given as a string is one text."""
        if isinstance(self.prompt, str):
            return (self.prompt,)
        return tuple(
            Image(block.media_type, block.data) if isinstance(block, ImageBlock) else block.text
            for block in self.prompt
            if not isinstance(block, ToolResultBlock)
        )

    @property
    def cached(self) -> tuple[int, ...]:
        """Indices of the parts of `content` that end a cached prefix of an API request."""
        blocks = [] if isinstance(self.prompt, str) else [b for b in self.prompt if not isinstance(b, ToolResultBlock)]
        return tuple(index for index, block in enumerate(blocks) if block.cache)

    @property
    def tool_results(self) -> list[ToolResultBlock]:
        """Tool results among the blocks."""
        return [] if isinstance(self.prompt, str) else [b for b in self.prompt if isinstance(b, ToolResultBlock)]

    @property
    def images(self) -> list[ImageBlock]:
        """Images among the blocks, including images in tool results."""
        blocks = [] if isinstance(self.prompt, str) else self.prompt
        inner = [image for result in self.tool_results for image in result.images]
        return [*(block for block in blocks if isinstance(block, ImageBlock)), *inner]


class SetModelParams(Params):
    session_id: SessionId
    model: ModelName


class SetPermissionModeParams(Params):
    session_id: SessionId
    permission_mode: PermissionMode


class SetTitleParams(Params):
    session_id: SessionId
    title: Title


class SetBudgetParams(Params):
    """`budget` replaces the whole budget. A missing limit is no limit."""

    session_id: SessionId
    budget: Budget


class CompactParams(Params):
    session_id: SessionId
    instructions: Annotated[str, Field(max_length=65536)] | None = None
    key: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    wait: bool = False


class InterruptParams(Params):
    session_id: SessionId
    turn_id: TurnId | None = None
    mode: Literal["graceful", "kill"] = "graceful"


MAX_MESSAGE_BYTES = 4 * 1024
MAX_DATA_BYTES = 64 * 1024


class NoteParams(Params):
    """`code` begins with `client.`, so that no note looks like a notice of the daemon."""

    session_id: SessionId
    code: Annotated[str, Field(pattern=r"^client\.[a-z0-9][a-z0-9_.-]{0,63}$")]
    message: str
    data: JsonObject | None = None

    @field_validator("message")
    @classmethod
    def _is_short(cls, message: str) -> str:
        if len(message.encode("utf-8", "replace")) > MAX_MESSAGE_BYTES:
            raise ValueError(f"the message has more than {MAX_MESSAGE_BYTES} bytes")
        return message

    @field_validator("data")
    @classmethod
    def _is_small(cls, data: JsonObject | None) -> JsonObject | None:
        if data is not None and len(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace")) > MAX_DATA_BYTES:
            raise ValueError(f"the data has more than {MAX_DATA_BYTES} bytes as JSON")
        return data


class ApprovalListParams(Params):
    session_id: SessionId | None = None


class RespondParams(Params):
    approval_id: ApprovalId
    session_id: SessionId | None = None
    decision: Literal["allow", "deny"]
    message: Annotated[str, Field(max_length=16 * 1024)] | None = None
    updated_input: JsonObject | None = None
    remember: bool = False
    option: Annotated[str, Field(max_length=1024)] | None = None


class SubscribeParams(Params):
    session_id: AnySession
    after_seq: Seq | dict[SessionId, Seq] | None = None
    types: Annotated[list[str], Field(max_length=64)] | None = None
    deltas: bool = True
    raw: bool = False
    name: CursorName | None = None


class UnsubscribeParams(Params):
    session_id: AnySession
    name: CursorName | None = None


MAX_DIFF_BYTES = 4 * 1024 * 1024


class DiffParams(Params):
    """Without `patch`, the result has the names of the files and no text. `max_bytes` is the limit of the text."""

    session_id: SessionId
    patch: bool = True
    max_bytes: Annotated[int, Field(ge=1, le=MAX_DIFF_BYTES)] = 1024 * 1024


class LandParams(Params):
    """With `commit`, commit all changes with this message before landing."""

    session_id: SessionId
    commit: Annotated[str, Field(min_length=1, max_length=65536, pattern=r"^[^\x00]*$")] | None = None


class AckParams(Params):
    name: CursorName
    session_id: SessionId
    seq: Seq


class EventsParams(Params):
    session_id: SessionId
    after_seq: Seq = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    types: Annotated[list[str], Field(max_length=64)] | None = None
    raw: bool = False


class BlobParams(Params):
    session_id: SessionId
    blob: Annotated[str, Field(pattern=r"^((raw|blob)-[0-9]+-(out|err)|prompt)-[0-9a-z.-]+$", max_length=128)]
    offset: Seq = 0
    limit: Annotated[int, Field(ge=1, le=8 * 1024 * 1024)] = 1024 * 1024


CallId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]
ToolName = Annotated[str, Field(min_length=1, max_length=256)]
# As in a prompt: the discriminator looks at the type first, so that an error names the faulty block.
ToolContent = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[SaidBlock], Tag("blocks")],
    Discriminator(text_or_blocks),
]


class ToolServeParams(Params):
    session_id: SessionId


class AnswerParams(Params):
    content: ToolContent
    is_error: bool = False


class ToolResultParams(AnswerParams):
    session_id: SessionId
    call_id: CallId


class BridgeHelloParams(Params):
    token: Annotated[str, Field(max_length=256, repr=False)]


class BridgeCallParams(Params):
    call_id: CallId
    name: ToolName
    input: JsonObject = {}
    tool_use_id: Annotated[str, Field(max_length=256)] | None = None
