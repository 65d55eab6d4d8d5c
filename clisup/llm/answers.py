"""One answer of a model: the events of its stream, and its completion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from clisup.client.raw import JsonObject
from clisup.errors import UsageError
from clisup.llm.messages import Message, ToolResultBlock, ToolUseBlock
from clisup.model.usage import UNKNOWN_USAGE, Usage, whole_usd


class ModelName(NamedTuple):
    """Backend of the daemon's configuration and its model. A model of None is the backend's default."""

    backend: str
    model: str | None = None

    def __str__(self) -> str:
        return self.backend if self.model is None else f"{self.backend}/{self.model}"


def parse_model(name: str | ModelName) -> ModelName:
    """Parse `"claude/opus"` as `ModelName("claude", "opus")`. The model may contain slashes. Raises `UsageError`."""
    if isinstance(name, ModelName):
        return name
    backend, slash, model = name.strip().partition("/") if isinstance(name, str) else ("", "", "")
    if not backend or (slash and not model.strip()) or any(char.isspace() for char in backend):
        raise UsageError(
            f"{name!r} does not name a model: it is not of the form backend/model",
            hint='write "claude/opus", or "claude" for the default model of the backend',
        )
    return ModelName(backend, model.strip() or None)


class FinishReason(StrEnum):
    """Reason for the end of an answer. A failed turn is an exception instead (`clisup.llm.failures`)."""

    STOP = "stop"
    LENGTH = "length"
    REFUSAL = "refusal"
    MAX_TURNS = "max_turns"
    TOOL_CALLS = "tool_calls"
    """The model called tools of the caller: `Completion.tool_calls`. The next prompt brings their results."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Cost:
    """US dollars, `reported` by the CLI or `estimated` from a price table."""

    usd: float
    source: Literal["reported", "estimated"]

    def __add__(self, other: Cost) -> Cost:
        """Add two costs. The sum of a reported and an estimated cost is estimated."""
        both = (self.source, other.source)
        return Cost(whole_usd(self.usd + other.usd), "estimated" if "estimated" in both else "reported")


def sum_of_known(costs: Iterable[Cost | None]) -> Cost | None:
    """Return the sum of all known costs, or None without any."""
    known = [cost for cost in costs if cost is not None]
    return sum(known[1:], known[0]) if known else None


@dataclass(frozen=True, slots=True)
class Completion:
    """One whole answer. `message` is the model's last message.

    `messages` are all messages after the prompt, with tool calls and results, without those of sub-agents. An unknown `cost` is None.
    `structured` is the CLI's own structured output, if the backend has such output and the prompt asked for it.
    `tool_calls` wait for the caller's results (`FinishReason.TOOL_CALLS`).
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
        """The text of the last message."""
        return self.message.text


# -- events of a stream. `parent` is the id of the call that made the sub-agent, or None for the model itself.


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

    `id` and `name` are None if the CLI sends them only with the whole call. `index` is the place of the call among the blocks of
    its message, and tells parallel calls apart.
    """

    id: str | None
    name: str | None
    json: str
    parent: str | None = None
    index: int | None = None


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """Start of a tool call. `ours` marks a tool of this program. Its `name` comes without the bridge's prefix."""

    id: str
    name: str
    input: JsonObject
    parent: str | None = None
    at: str = ""
    """Time of the call: RFC 3339, UTC."""
    ours: bool = False


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """End of a tool call."""

    result: ToolResultBlock
    parent: str | None = None
    at: str = ""


@dataclass(frozen=True, slots=True)
class MessageDone:
    """A whole message."""

    message: Message
    parent: str | None = None
    at: str = ""


@dataclass(frozen=True, slots=True)
class TaskChanged:
    """News of a sub-agent or background task of the CLI.

    `tool_use_id` is the call that made the task. `report` is the result of a sub-agent in the background.
    """

    task_id: str
    state: str
    description: str = ""
    tool_use_id: str | None = None
    at: str = ""
    report: str | None = None


@dataclass(frozen=True, slots=True)
class Retracted:
    """Streamed text is void, from the last `MessageDone` on.

    With `all`, the whole stream is void: the answer starts again, from this model or the next one.
    """

    reason: str
    all: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pause: the CLI tries again, the account is limited, or a tool waits for approval."""

    reason: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """Last event of every stream that does not raise."""

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
