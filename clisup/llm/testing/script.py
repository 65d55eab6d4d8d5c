"""Scripts of models: replies of text, thinking and tool calls, or errors. Data only."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from clisup.errors import UsageError
from clisup.llm.answers import UNKNOWN_USAGE, Cost, FinishReason
from clisup.llm.chat import ChatOptions
from clisup.llm.messages import Message
from clisup.llm.tools.definitions import ToolOutput
from clisup.model.usage import Usage


@dataclass(slots=True)
class Asked:
    """Prompt that a model received. `messages` is the whole conversation: history, earlier turns, and this prompt at the end."""

    prompt: Message
    messages: tuple[Message, ...]
    options: ChatOptions
    output_schema: Mapping[str, Any] | None = None
    outcome: Literal["running", "finished", "failed", "left"] = "running"
    """`left`: the stream was abandoned or cancelled."""

    @property
    def system(self) -> str | None:
        """The system prompt."""
        return self.options.system


@dataclass(frozen=True, slots=True)
class Thinking:
    """A part of a reply: a thinking block."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A part of a reply: a tool call.

    With a `result`, the tool is the CLI's own (an exception is an error with its text). Without one, the chat's tool of this name
    really runs; without such a tool, the result is an error. `inside` makes the call a sub-agent with these parts.
    """

    name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    result: str | ToolOutput | Exception | None = None
    id: str | None = None
    inside: Sequence[Part] = ()


Part = str | Thinking | ToolCall | list[ToolCall] | tuple[ToolCall, ...] | Callable[[], Awaitable[object]]
"""Text, thinking, a tool call, several parallel tool calls in one message, or an async function to await at this point, for a test
that steps through the stream."""


class Reply:
    """One whole answer, part by part. A tool call ends a message, and later parts are the next message.

    The default `usage` is unknown. `structured` is the CLI's own structured output. After the parts, the stream raises `error`;
    a tool call before it sets its `side_effects`, as with a real model.
    """

    def __init__(
        self,
        *parts: Part,
        usage: Usage = UNKNOWN_USAGE,
        cost: Cost | None = None,
        structured: Any = None,
        finish_reason: FinishReason = FinishReason.STOP,
        error: Exception | None = None,
    ) -> None:
        self.parts: tuple[Part, ...] = parts
        self.usage, self.cost, self.structured = usage, cost, structured
        self.finish_reason, self.error = finish_reason, error

    def __repr__(self) -> str:
        return f"Reply({', '.join(map(repr, self.parts))})"


Answer = str | Reply | Mapping[str, Any] | BaseModel | Exception
Step = Answer | Callable[[Asked], Answer | Awaitable[Answer]]
"""One answer: a text, a `Reply`, a value (as JSON, or as structured output if the prompt asks for it), an exception, or a sync or
async function that takes the `Asked` and returns one of these."""


def reply_of(answer: Answer) -> Reply:
    """Return the `Reply` of an answer. Raises `UsageError` for other values."""
    if isinstance(answer, Reply):
        return answer
    if isinstance(answer, Exception):
        return Reply(error=answer)
    if isinstance(answer, str):
        return Reply(answer)
    if not isinstance(answer, Mapping | BaseModel):
        raise UsageError(
            f"a value of type {type(answer).__name__} is not an answer",
            hint="give a text, a Reply, a dict or pydantic object, an exception, or a function that returns one",
        )
    if isinstance(answer, BaseModel):
        return Reply(answer.model_dump_json(), structured=answer.model_dump(mode="json"))
    return Reply(json.dumps(dict(answer), ensure_ascii=False), structured=dict(answer))
