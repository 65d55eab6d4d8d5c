"""The seam of the model layer: a `LanguageModel` opens a `Chat`, and a chat streams one answer after the other.

All above it (conversations, signatures, workflows) knows only these two, and so does all below: a session of the daemon
(`clisup.llm.sessions`), a chain of models (`clisup.llm.chain`), a script or a recording in a test
(`clisup.llm.testing`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, Protocol

from clisup.errors import UsageError
from clisup.llm.messages import Message, Prompt, ToolResultBlock, ToolUseBlock
from clisup.llm.names import ModelName
from clisup.llm.sampling import Sampling
from clisup.llm.tools import AnyTool, Tool, ToolDefinition, as_tools, definitions_of
from clisup.model.usage import Usage, whole_usd

__all__ = [
    "Chat",
    "ChatOptions",
    "Completion",
    "Cost",
    "FinishReason",
    "Finished",
    "LanguageModel",
    "MessageDone",
    "Retracted",
    "SessionBudget",
    "StreamEvent",
    "TaskChanged",
    "TextDelta",
    "ThinkingDelta",
    "ToolEnded",
    "ToolInputDelta",
    "ToolStarted",
    "Waiting",
    "checked_model",
    "labels_of",
]


UNKNOWN_USAGE = Usage()


class FinishReason(StrEnum):
    """Why an answer ended where it did. What is no answer at all is an exception (`clisup.llm.failures`)."""

    STOP = "stop"
    LENGTH = "length"
    REFUSAL = "refusal"
    MAX_TURNS = "max_turns"
    TOOL_CALLS = "tool_calls"
    """The model called tools that the caller runs: `Completion.tool_calls`. The next prompt brings their results."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Cost:
    """US dollars. `reported` by the CLI, or `estimated` here from a price table."""

    usd: float
    source: Literal["reported", "estimated"]

    def __add__(self, other: Cost) -> Cost:
        """A sum is as sure as its less sure part."""
        both = (self.source, other.source)
        return Cost(whole_usd(self.usd + other.usd), "estimated" if "estimated" in both else "reported")


@dataclass(frozen=True, slots=True)
class Completion:
    """One whole answer. `message` is the model's last word; `messages` are all that the turn added after its prompt, tool calls and
    their results included, in order, without those of sub-agents. `cost` is None where nobody knows it.
    `structured` is the CLI's own structured output, where one was asked for and the backend has it.
    `tool_calls` are the calls that wait for the caller's results (`FinishReason.TOOL_CALLS`).
    """

    message: Message
    model: ModelName
    finish_reason: FinishReason = FinishReason.STOP
    usage: Usage = UNKNOWN_USAGE
    cost: Cost | None = None
    structured: Any = None
    messages: tuple[Message, ...] = ()
    session_id: str | None = None
    turn_id: str | None = None
    tool_calls: tuple[ToolUseBlock, ...] = ()

    @property
    def text(self) -> str:
        """The text of the last word."""
        return self.message.text


# -- what a stream gives. `parent` is the tool_use id of the sub-agent's call that it belongs to; None for the model itself.


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of text."""

    text: str
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of thinking."""

    text: str
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class ToolInputDelta:
    """A piece of a tool's input, as JSON text, while the model writes it. `ToolStarted` has the whole input.

    `id` and `name` are None where the CLI tells them only with the whole call. `index` is the place of the call among the blocks of
    its message: by it the pieces of calls side by side are told apart.
    """

    id: str | None
    name: str | None
    json: str
    parent: str | None = None
    index: int | None = None


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool was called. `name` is the tool's own: that of a tool of ours is without the bridge's prefix, and `ours` is set."""

    id: str
    name: str
    input: dict[str, Any]
    parent: str | None = None
    at: str = ""
    """When: RFC 3339, UTC."""
    ours: bool = False


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """A tool answered."""

    result: ToolResultBlock
    parent: str | None = None
    at: str = ""


@dataclass(frozen=True, slots=True)
class MessageDone:
    """A message is whole."""

    message: Message
    parent: str | None = None
    at: str = ""


@dataclass(frozen=True, slots=True)
class TaskChanged:
    """A sub-agent or background task of the CLI's began, went on or ended. `tool_use_id` is the call that made it; `report` is what
    a sub-agent in the background found.
    """

    task_id: str
    state: str
    description: str = ""
    tool_use_id: str | None = None
    at: str = ""
    report: str | None = None


@dataclass(frozen=True, slots=True)
class Retracted:
    """Text that was streamed already was taken back: forget it from the last `MessageDone` on. With `all`, forget everything
    that this stream gave: the answer begins anew, from this model or the next one.
    """

    reason: str
    all: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing comes for now: the CLI tries again, the account is limited, somebody has to approve."""

    reason: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of every stream that does not raise."""

    completion: Completion


StreamEvent = (
    TextDelta
    | ThinkingDelta
    | ToolInputDelta
    | ToolStarted
    | ToolEnded
    | MessageDone
    | TaskChanged
    | Retracted
    | Waiting
    | Finished
)


@dataclass(frozen=True, slots=True)
class SessionBudget:
    """What the daemon holds a session to (`budget` of session/new); None: no limit of that kind."""

    usd: float | None = None
    tokens: int | None = None
    turns: int | None = None
    wall_s: float | None = None

    def to_wire(self) -> dict[str, float]:
        """For `session/new`: only what is set."""
        fields = {"usd": self.usd, "tokens": self.tokens, "turns": self.turns, "wall_s": self.wall_s}
        return {name: value for name, value in fields.items() if value is not None}


class Chat(Protocol):
    """One conversation with one model: each prompt comes after all that was said before it. One stream at a time."""

    @property
    def model(self) -> ModelName:
        """Who answers now: a client with fallbacks may have gone on to another."""

    @property
    def session_id(self) -> str | None:
        """The daemon's session, where there is one."""

    def stream(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> AsyncIterator[StreamEvent]:
        """The events of one answer, the last one `Finished`. Leaving the iteration early interrupts the turn.

        With `output_schema` (JSON Schema of an object) and a backend that can, `Completion.structured` holds what fits it;
        raises `Unsupported` where the backend cannot. Raises `LLMError`s else.
        """


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What a chat is opened with. `history` is what was said before, ending with the model's word.

    `cli_tools="none"` asks the model without the CLI's own tools and without its system prompt for a coding agent, where the
    backend can do that; `"default"` with both. None: each call's own default.
    """

    system: str | None = None
    history: Sequence[Message] = ()
    tools: Sequence[AnyTool] = ()
    budget: SessionBudget | None = None
    cwd: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    session: Mapping[str, Any] = field(default_factory=dict)
    """Further params of `session/new`, as docs/protocol.md has them: `permission_mode`, `timeouts`, `mode` ..."""
    sampling: Sampling | None = None
    cli_tools: Literal["none", "default"] | None = None

    def plain(self, do: str) -> ChatOptions:
        """Return these options for a call that wants a value: without a CLI's own tools, unless they say otherwise.

        Raises `UsageError` where a tool is among them that the caller runs: the call to `do` has no place for its results.
        """
        if definitions := definitions_of(self.offered):
            raise UsageError(
                f"the tool {definitions[0].name} cannot be used to {do}, because the caller runs it",
                kind="usage",
                hint="make it a tool that runs here, with @tool",
            )
        return self if self.cli_tools is not None else replace(self, cli_tools="none")

    @property
    def offered(self) -> tuple[Tool | ToolDefinition, ...]:
        """Tools, each mapping as the `ToolDefinition` that it is."""
        return as_tools(self.tools)

    def __post_init__(self) -> None:
        """Raises `UsageError` for what is no tool, message, label or budget of a session: best said before a session is opened."""
        object.__setattr__(self, "tools", as_tools(self.tools))
        object.__setattr__(self, "labels", labels_of(self.labels))
        wrong = next((part for part in self.history if not isinstance(part, Message)), None)
        if wrong is not None:
            raise UsageError(
                f"cannot take this history, because a value of type {type(wrong).__name__} is no message",
                hint="give messages: Message.user(...), Message.assistant(...)",
            )
        if not isinstance(self.session, Mapping):
            raise UsageError(
                f"cannot open a session with params of type {type(self.session).__name__}",
                kind="usage",
                hint='give a dict: session={"permission_mode": "plan"}',
            )
        if self.budget is not None and not isinstance(self.budget, SessionBudget):
            raise UsageError(
                f"cannot hold a chat to a budget of type {type(self.budget).__name__}, because the daemon knows only a SessionBudget",
                hint="give SessionBudget(usd=...); of a Budget: call.session_budget() of its reservation",
            )
        if not isinstance(self.sampling, Sampling | None):
            raise UsageError(
                f"a chat cannot sample by a value of type {type(self.sampling).__name__}",
                kind="usage",
                hint="give Sampling(temperature=0.2)",
            )
        if self.cli_tools not in (None, "none", "default"):
            raise UsageError(f"cli_tools is {self.cli_tools!r:.100}", kind="usage", hint='give "none" or "default"')


def labels_of(labels: Mapping[str, str] | None) -> dict[str, str]:
    """The labels, or none. Raises `UsageError` for what is no mapping of texts to texts."""
    if labels is None:
        return {}
    if not isinstance(labels, Mapping) or not all(isinstance(word, str) for pair in labels.items() for word in pair):
        raise UsageError(
            f"cannot give a session the labels {labels!r:.100}, because these are no texts by name",
            hint='give a dict: labels={"team": "docs"}',
        )
    return dict(labels)


class LanguageModel(Protocol):
    """Whatever can open a chat."""

    def chat(self, options: ChatOptions | None = None) -> AbstractAsyncContextManager[Chat]:
        """A chat that ends with the block. Raises `LLMError`s at its beginning."""


def checked_model(model: LanguageModel) -> LanguageModel:
    """The same. Raises `UsageError` for what can open no chat."""
    if not callable(getattr(model, "chat", None)):
        raise UsageError(
            f"cannot ask a value of type {type(model).__name__}, because it is no model",
            hint='give a name, "claude/opus", or what resolve() gives',
        )
    return model
