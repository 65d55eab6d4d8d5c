"""Seam of the model layer: a `LanguageModel` opens a `Chat`, and a chat streams answers in order.

Conversations, signatures and workflows use only `LanguageModel` and `Chat`. Sessions of the daemon, models with fallbacks, scripts
and recordings provide both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field, field_validator

from clisup.client.raw import JsonObject
from clisup.errors import UsageError
from clisup.llm.answers import ModelName, StreamEvent
from clisup.llm.failures import Unsupported, usage_error
from clisup.llm.messages import Message, Prompt
from clisup.llm.shapes import NamedOptions
from clisup.llm.tools import AnyTool, Tool, ToolDefinition, as_tools, definitions_of


class Sampling(NamedOptions):
    """Params of each answer. None means the backend's own value. CLIs have no such params and refuse them (`Unsupported`).

    `stop` is a text, or several texts, at which the answer ends. `tool_choice` is `any`, or `tool:` and the name of the tool that the
    model has to call first. Raises `UsageError` for values that no API takes.
    """

    max_tokens: int | None = Field(default=None, gt=0, strict=True)
    temperature: float | None = Field(default=None, ge=0, strict=True)
    top_p: float | None = Field(default=None, gt=0, le=1, strict=True)
    stop: tuple[Annotated[str, Field(min_length=1, strict=True)], ...] | None = None
    seed: int | None = Field(default=None, strict=True)
    tool_choice: str | None = Field(default=None, strict=True, pattern=r"^(any|tool:.{1,128})$")
    parallel_tool_calls: bool | None = Field(default=None, strict=True)

    @field_validator("stop", mode="before")
    @classmethod
    def _as_tuple(cls, stop: Any) -> Any:
        return (stop,) if isinstance(stop, str) else stop or None

    def __bool__(self) -> bool:
        return bool(self.to_wire())

    def to_wire(self) -> JsonObject:
        """Return the `sampling` of `session/prompt` without unset params."""
        return self.model_dump(mode="json", exclude_none=True)

    def over(self, defaults: Sampling | None) -> Sampling:
        """Return these params, filled up by `defaults`."""
        return self if defaults is None else Sampling(**{**defaults.to_wire(), **self.to_wire()})

    def check(self, name: ModelName, capabilities: Mapping[str, Any]) -> None:
        """Raise `Unsupported` if the backend lacks any of these params."""
        has = capabilities.get("sampling") or ()
        if lacking := [param for param in self.to_wire() if param not in has]:
            raise Unsupported(
                f"the backend {name.backend} has no {', '.join(lacking)}: "
                + (f"it takes only {', '.join(has)}" if has else "its CLI has no sampling params"),
                hint="leave it out, or ask a model of an API-key backend",
                param="sampling",
            )


@dataclass(frozen=True, slots=True)
class SessionBudget:
    """Limits of a session, set by the daemon (`budget` of session/new). None means no limit of this kind."""

    usd: float | None = None
    tokens: int | None = None
    turns: int | None = None
    wall_s: float | None = None

    def to_wire(self) -> dict[str, float]:
        """Return the limits for `session/new`, without unset limits."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class Chat(Protocol):
    """Conversation with a model. Each prompt follows all earlier messages. A chat has one stream at a time."""

    @property
    def model(self) -> ModelName:
        """Model that answers now. A client with fallbacks may change the model."""

    @property
    def session_id(self) -> str | None:
        """Daemon's session of the chat, or None."""

    def stream(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> AsyncIterator[StreamEvent]:
        """Stream the events of an answer. The last event is `Finished`. Leaving the iteration early interrupts the turn.

        `output_schema` is the JSON Schema of an object. A backend with structured output fills `Completion.structured`. Any other
        backend raises `Unsupported`. Raises `LLMError`s.
        """


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Options of a new chat. `history` is the conversation before the chat, and ends with a message of the model.

    `cli_tools="none"` omits the CLI's own tools and the CLI's system prompt of a coding agent, if the backend has this feature.
    `"default"` keeps both. None is the default of each call.
    """

    system: str | None = None
    history: Sequence[Message] = ()
    tools: Sequence[AnyTool] = ()
    budget: SessionBudget | None = None
    cwd: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    session: Mapping[str, Any] = field(default_factory=dict)
    """Further params of `session/new`, see docs/reference/protocol.md: `permission_mode`, `timeouts`, `mode` ..."""
    sampling: Sampling | None = None
    cli_tools: Literal["none", "default"] | None = None

    def plain(self, do: str) -> ChatOptions:
        """Return these options for a call with a value as its result: without a CLI's own tools by default.

        Raises `UsageError` for a tool of the caller: the call named by `do` has no place for results of tools.
        """
        if definitions := definitions_of(self.offered):
            raise usage_error(
                f"the tool {definitions[0].name} cannot be used to {do}, because the caller runs it",
                "make it a tool that runs here, with @tool",
            )
        return self if self.cli_tools is not None else replace(self, cli_tools="none")

    @property
    def offered(self) -> tuple[Tool | ToolDefinition, ...]:
        """Tools, with each mapping as a `ToolDefinition`."""
        return as_tools(self.tools)

    def __post_init__(self) -> None:
        """Raise `UsageError` for wrong types, before the opening of a session."""
        object.__setattr__(self, "tools", as_tools(self.tools))
        object.__setattr__(self, "labels", labels_of(self.labels))
        wrong = next((part for part in self.history if not isinstance(part, Message)), None)
        if wrong is not None:
            raise UsageError(
                f"the history has a value of type {type(wrong).__name__}, which is not a message",
                hint="give messages: Message.user(...), Message.assistant(...)",
            )
        if not isinstance(self.session, Mapping):
            raise usage_error(
                f"params of a session are a mapping, not of type {type(self.session).__name__}",
                'give a dict: session={"permission_mode": "plan"}',
            )
        if self.budget is not None and not isinstance(self.budget, SessionBudget):
            raise UsageError(
                f"the budget of a chat is a SessionBudget, not of type {type(self.budget).__name__}",
                hint="give SessionBudget(usd=...), or session_budget() of a Budget's reservation",
            )
        if not isinstance(self.sampling, Sampling | None):
            raise usage_error(
                f"the sampling of a chat is a Sampling, not of type {type(self.sampling).__name__}",
                "give Sampling(temperature=0.2)",
            )
        if self.cli_tools not in (None, "none", "default"):
            raise usage_error(f"cli_tools is {self.cli_tools!r:.100}", 'give "none" or "default"')


def labels_of(labels: Mapping[str, str] | None) -> dict[str, str]:
    """Return the labels as a dict. Raises `UsageError` for anything but a mapping of texts to texts."""
    if labels is None:
        return {}
    if not isinstance(labels, Mapping) or not all(isinstance(word, str) for pair in labels.items() for word in pair):
        raise UsageError(
            f"labels map texts to texts, unlike {labels!r:.100}",
            hint='give a dict: labels={"team": "docs"}',
        )
    return dict(labels)


class LanguageModel(Protocol):
    """Model that opens chats."""

    def chat(self, options: ChatOptions | None = None) -> AbstractAsyncContextManager[Chat]:
        """Open a chat. The chat ends with the block. Raises `LLMError`s at the block's beginning."""


def checked_model(model: LanguageModel) -> LanguageModel:
    """Return the model. Raises `UsageError` for a value without a `chat` method."""
    if not callable(getattr(model, "chat", None)):
        raise UsageError(
            f"a value of type {type(model).__name__} is not a model",
            hint='give a name such as "claude/opus", or a model of resolve()',
        )
    return model
