"""Report on an agent since a seq, in few words: the answers of the tools. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from pydantic import BaseModel

from clisup.client.answers import Approval
from clisup.client.events import ApprovalRequested, AssistantMessage, Envelope, ToolUse, TurnCompleted
from clisup.doors.tool_calls import changed_files, title_of

__all__ = ["TEXT_CHARS", "AgentNews", "AgentRow", "NewsFold", "WaitingCall", "asked_of", "cut", "news_of"]

TEXT_CHARS = 20_000
"""Characters of a text at most. claude shows its model no longer results than 25,000 tokens by default."""

MAX_FILES = 50
MAX_TOOLS = 50

NewsState = Literal["running", "waiting", "done", "failed", "interrupted", "timed_out", "idle", "closed"]
_OUTCOMES: dict[str, NewsState] = {
    "completed": "done", "failed": "failed", "interrupted": "interrupted", "timed_out": "timed_out",
}  # fmt: skip
_NEXT = {
    "running": "Call follow with this session and after_seq.",
    "waiting": "A person must answer: `clisup approvals`, an editor or the web page. Then call follow.",
    "done": "Call send for more work, or close.",
    "failed": "Read the error. Call send to try again, or close.",
    "interrupted": "Call send to go on, or close.",
    "timed_out": "Call send to go on, or close.",
    "idle": "Nothing runs and nothing is new. Call send for more work, or close.",
    "closed": "This session is over. Call start for a new one.",
}


class WaitingCall(BaseModel):
    """Tool call of an agent that waits for a decision."""

    approval_id: str
    session: str
    tool: str
    about: str
    input: dict[str, Any] | None = None
    """The tool's input, unless it is too large."""


class AgentNews(BaseModel):
    """Report on what an agent has done since a seq.

    `state` is `running`, `waiting` (for an approval), the outcome of the turn (`done`, `failed`, `interrupted`,
    `timed_out`), `idle` or `closed`. `text` is the last words. `files` are those that the agent asked to change.
    """

    session: str
    turn: str | None = None
    state: NewsState
    text: str = ""
    tools: dict[str, int] = {}
    files: list[str] = []
    cost_usd: float | None = None
    error: str | None = None
    approvals: list[WaitingCall] = []
    after_seq: int
    next: str


class AgentRow(BaseModel):
    """One session in a list."""

    session: str
    title: str | None
    backend: str
    state: str
    phase: str | None
    cwd: str
    approvals: int
    turns: int
    cost_usd: float | None
    labels: dict[str, str]
    yours: bool
    """Whether an agent has started it. Other sessions can only be read."""


class NewsFold:
    """News of one session, from its events. `ended` is the end of the turn, once it is there."""

    def __init__(self, after_seq: int, turn_id: str | None = None) -> None:
        """`turn_id` is the turn whose end counts; None: of the first that ends."""
        self.after_seq, self.turn_id = after_seq, turn_id
        self.ended: TurnCompleted | None = None
        self._text = ""
        self._tools: Counter[str] = Counter()
        self._files: dict[str, None] = {}

    def take(self, envelope: Envelope) -> None:
        """Take the next event."""
        self.after_seq = envelope.seq
        match envelope.event:
            case AssistantMessage(parent_tool_use_id=None, blocks=blocks):
                words = "".join(block.text or "" for block in blocks if block.kind == "text")
                self._text = words or self._text
            case ToolUse(name=name, input=given):
                if name in self._tools or len(self._tools) < MAX_TOOLS:
                    self._tools[name] += 1
                self._files.update(dict.fromkeys(changed_files(name, given)))
            case TurnCompleted() as end if self.turn_id in (None, envelope.turn_id):
                self.ended, self.turn_id = end, envelope.turn_id

    def progress(self, envelope: Envelope) -> str | None:
        """Return a line about an event for a person who waits, or None for an event that tells nothing."""
        match envelope.event:
            case ToolUse(name=name, input=given):
                return title_of(name, given)
            case ApprovalRequested(tool_name=name, input=given):
                return f"waits for an approval: {title_of(name, given)}"
            case AssistantMessage(parent_tool_use_id=None):
                return " ".join(self._text[-200:].split()) or None
        return None

    def news(self, session_id: str, state: NewsState, **more: Any) -> AgentNews:
        """Return the news so far. Of an ended turn, `state` is ignored."""
        end = self.ended
        state = _OUTCOMES[end.outcome] if end else state
        error = None if end is None or end.error is None else cut(f"{end.error.kind}: {end.error.message}", 2_000)
        return AgentNews(
            session=session_id,
            turn=self.turn_id,
            state=state,
            text=cut(self._text),
            tools=dict(self._tools),
            files=list(self._files)[:MAX_FILES],
            cost_usd=end.cost_usd if end else None,
            error=error,
            after_seq=self.after_seq,
            next=_uncertain(end) or _NEXT[state],
            **more,
        )


def news_of(state: str, *, waits: bool, busy: bool) -> NewsState:
    """Return the state of a session in which no turn has ended."""
    if state == "closed":
        return "closed"
    return "waiting" if waits else "running" if busy else "idle"


def asked_of(approval: Approval) -> WaitingCall:
    """Return an approval as the tools give it."""
    small = approval.blob is None and len(str(approval.input)) <= TEXT_CHARS
    about = title_of(approval.tool_name, approval.input)
    return WaitingCall(
        approval_id=approval.approval_id, session=approval.session_id, tool=approval.tool_name, about=about,
        input=approval.input if small else None,
    )  # fmt: skip


def cut(text: str, limit: int = TEXT_CHARS) -> str:
    """Return the head of a text that is too long, with the number of characters left out."""
    return text if len(text) <= limit else f"{text[:limit]}\n[{len(text) - limit} more characters are left out]"


def _uncertain(end: TurnCompleted | None) -> str | None:
    if end is None or end.delivery != "uncertain":
        return None
    return "Nobody knows whether the CLI received the prompt. Look at its work before you send it again."
