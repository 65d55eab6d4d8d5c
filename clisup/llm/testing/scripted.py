"""A model that follows a script, for tests of code above models.

model = ScriptedModel("Hello.", Reply(ToolCall("add", {"a": 1, "b": 2}), "It is 3."), Overloaded("busy", kind="overloaded"))
...
model.assert_used_up()
assert model.asked[0].prompt.text == "Hi"
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import trio
from pydantic import BaseModel

from clisup.errors import UsageError
from clisup.llm.answers import (
    Completion,
    Cost,
    Finished,
    FinishReason,
    MessageDone,
    ModelName,
    StreamEvent,
    TaskChanged,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolStarted,
    parse_model,
)
from clisup.llm.calls import ModelCalls
from clisup.llm.chat import Chat, ChatOptions
from clisup.llm.failures import LLMError, Unsupported, usage_error
from clisup.llm.histories import open_round, results_in
from clisup.llm.messages import Message, Prompt, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock, as_messages
from clisup.llm.streams import EventStream
from clisup.llm.tools import Tool, ToolDefinition, ToolOutput
from clisup.model.usage import UNKNOWN_USAGE, Usage


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


_AT = "2026-01-01T00:00:00.000000Z"
"""Time of all events, so that the results are the same each time."""

_Said = TextBlock | ThinkingBlock | ToolUseBlock
Action = StreamEvent | Callable[[], Awaitable[object]]
"""An event, or an async function to await before the next event."""


class ReplyEvents:
    """Events of one reply, in the order of a real turn. `tools` are the chat's. A call of a caller's tool ends the reply."""

    def __init__(self, reply: Reply, model: ModelName, tools: Sequence[Tool | ToolDefinition]) -> None:
        self._reply, self._model = reply, model
        self._tools = {tool.name: tool for tool in tools}
        self._calls = 0
        self._messages: list[Message] = []
        self._waiting: tuple[ToolUseBlock, ...] = ()
        self._last = Message.assistant(())

    def actions(self) -> Iterator[Action]:
        """Return all events with `Finished` at the end, or raise the reply's error."""
        yield from self._play(self._reply.parts, None)
        if (error := self._reply.error) is not None:
            if isinstance(error, LLMError) and self._calls:
                error = copy.copy(error)  # the script may raise the same error elsewhere
                error.side_effects = True
            raise error
        yield Finished(
            Completion(
                message=self._last,
                model=self._model,
                finish_reason=FinishReason.TOOL_CALLS if self._waiting else self._reply.finish_reason,
                usage=self._reply.usage,
                cost=self._reply.cost,
                structured=self._reply.structured,
                messages=tuple(self._messages),
                tool_calls=self._waiting,
            )
        )

    def _play(self, parts: Sequence[Part], parent: str | None) -> Iterator[Action]:
        blocks: list[_Said] = []
        for part in parts:
            if self._waiting:
                raise usage_error(
                    f"the reply goes on after a call of {self._waiting[0].name}, which waits for the caller",
                    "move the rest into the next step of the script",
                )
            if isinstance(part, str):
                blocks.append(TextBlock(text=part))
                yield from (TextDelta(piece, parent) for piece in _pieces(part))
            elif isinstance(part, Thinking):
                blocks.append(ThinkingBlock(text=part.text))
                yield ThinkingDelta(part.text, parent)
            elif isinstance(part, ToolCall):
                yield from self._call(blocks, [part], parent)
                blocks = []
            elif isinstance(part, list | tuple):
                yield from self._call(blocks, list(part), parent)
                blocks = []
            else:
                yield part
        if blocks:
            yield self._done(blocks, parent)

    def _done(self, blocks: list[_Said], parent: str | None) -> MessageDone:
        message = Message.assistant(blocks)
        if parent is None:
            self._messages.append(message)
            self._last = message
        return MessageDone(message, parent, _AT)

    def _call(self, said: list[_Said], calls: list[ToolCall], parent: str | None) -> Iterator[Action]:
        """Return the calls of one message, then their results in order."""
        pairs = [(ToolUseBlock(id=self._id_of(call), name=call.name, input=dict(call.input)), call) for call in calls]
        for use, _ in pairs:
            yield ToolStarted(use.id, use.name, use.input, parent, _AT, ours=use.name in self._tools)
        yield self._done([*said, *(use for use, _ in pairs)], parent)
        for use, call in pairs:
            if call.inside:
                yield TaskChanged(f"task-{use.id}", "running", call.name, use.id, _AT)
                yield from self._play(call.inside, use.id)
                yield TaskChanged(f"task-{use.id}", "completed", call.name, use.id, _AT)
        self._waiting = tuple(use for use, call in pairs if self._is_callers(call))
        here = [(use, call) for use, call in pairs if not self._is_callers(call)]
        results: dict[str, ToolResultBlock] = {}
        yield lambda: self._run(here, results)
        yield from (ToolEnded(results[use.id], parent, _AT) for use, _ in here)
        if parent is None and here:
            self._messages.append(Message.user([results[use.id] for use, _ in here]))

    def _is_callers(self, call: ToolCall) -> bool:
        return call.result is None and isinstance(self._tools.get(call.name), ToolDefinition)

    def _id_of(self, call: ToolCall) -> str:
        self._calls += 1
        return call.id or f"call-{self._calls}"

    async def _run(self, pairs: Sequence[tuple[ToolUseBlock, ToolCall]], results: dict[str, ToolResultBlock]) -> None:
        """Run the calls in parallel."""

        async def run(use: ToolUseBlock, call: ToolCall) -> None:
            output = await self._output(call)
            content = output.content if isinstance(output.content, str) else tuple(output.content)
            results[use.id] = ToolResultBlock(tool_use_id=use.id, content=content, is_error=output.is_error)

        async with trio.open_nursery() as nursery:
            for use, call in pairs:
                nursery.start_soon(run, use, call)

    async def _output(self, call: ToolCall) -> ToolOutput:
        if isinstance(call.result, ToolOutput):
            return call.result
        if isinstance(call.result, Exception):
            return ToolOutput(str(call.result), is_error=True)
        if call.result is not None:
            return ToolOutput(call.result)
        if (tool := self._tools.get(call.name)) is not None and not isinstance(tool, ToolDefinition):
            return await tool.run(dict(call.input))
        if call.inside:
            last = [part for part in call.inside if isinstance(part, str)]
            return ToolOutput(last[-1] if last else "")
        return ToolOutput(f"there is no tool {call.name!r}", is_error=True)


def _pieces(text: str) -> list[str]:
    """Split a text into words, each with the white space before it."""
    pieces: list[str] = []
    start = 0
    for place in range(1, len(text)):
        if text[place].isspace() and not text[place - 1].isspace():
            pieces.append(text[start:place])
            start = place
    return [*pieces, text[start:]] if text else []


class ScriptError(AssertionError):
    """The script and the prompts of a test do not fit together."""


class ScriptedModel(ModelCalls):
    """Model that returns its steps in order to all its chats. `then` answers all later prompts.

    `structured=True` adds structured output, as claude and codex have it; without it `output_schema` raises `Unsupported`.
    `asked` are the prompts, `opened` counts the chats.
    """

    def __init__(
        self, *steps: Step, name: str = "scripted/model", structured: bool = False, then: Step | None = None
    ) -> None:
        self.steps: tuple[Step, ...] = steps
        self.name, self.has_structured, self.then = parse_model(name), structured, then
        self.asked: list[Asked] = []
        self.opened = 0

    @asynccontextmanager
    async def _chat(self, options: ChatOptions) -> AsyncIterator[Chat]:
        self.opened += 1
        yield ScriptedChat(self, options)

    def assert_used_up(self) -> None:
        """Raise `ScriptError` if a step is left."""
        left = len(self.steps) - len(self.asked)
        if left > 0:
            raise ScriptError(f"{left} of {len(self.steps)} steps were never asked for: {self.steps[-left:]!r}")

    async def _answer(self, asked: Asked) -> Reply:
        place = len(self.asked)
        step = self.steps[place] if place < len(self.steps) else self.then
        if step is None:
            raise ScriptError(
                f"the script has {len(self.steps)} steps and no answer to prompt {place + 1}: {asked.prompt.text[:200]!r}"
            )
        self.asked.append(asked)
        return reply_of(await _resolved(step, asked))


async def _resolved(step: Step, asked: Asked) -> Answer:
    if not callable(step):
        return step
    answer = step(asked)
    return await answer if inspect.isawaitable(answer) else answer


class ScriptedChat:
    """Chat of a `ScriptedModel`. `messages` is the conversation so far."""

    session_id: str | None = None

    def __init__(self, model: ScriptedModel, options: ChatOptions) -> None:
        self._model, self.options = model, options
        self.messages: tuple[Message, ...] = tuple(options.history)
        self.notes: list[tuple[str, str, Any]] = []

    @property
    def model(self) -> ModelName:
        """The model's name."""
        return self._model.name

    def stream(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> EventStream:
        """Return the events of the next step."""
        return EventStream(self._events(prompt, output_schema))

    async def _events(
        self, prompt: Prompt, output_schema: Mapping[str, Any] | None
    ) -> AsyncGenerator[StreamEvent, None]:
        if output_schema is not None and not self._model.has_structured:
            raise Unsupported(f"{self.model} has no structured output", kind="unsupported")
        *before, said = as_messages(prompt)
        self._check_results(said)
        asked = Asked(said, (*self.messages, *before, said), self.options, output_schema)
        reply = await self._model._answer(asked)
        asked.outcome = "left"
        try:
            for action in ReplyEvents(reply, self.model, self.options.offered).actions():
                await trio.lowlevel.checkpoint()
                if callable(action):
                    await action()
                    continue
                if isinstance(action, Finished):
                    asked.outcome = "finished"
                    self.messages = (*asked.messages, *action.completion.messages)
                yield action
        except Exception:
            asked.outcome = "failed"
            raise

    def _check_results(self, said: Message) -> None:
        """Check the prompt against waiting calls, as a real chat does."""
        stopped = open_round(self.messages)
        if stopped is None:
            results_in(said, ())
        else:
            results_in(said, stopped.waiting, stopped.brought)

    async def note(self, code: str, message: str, data: Any = None) -> None:
        """Keep a note in `notes`. A session of the daemon writes it into its event log."""
        await trio.lowlevel.checkpoint()
        self.notes.append((code, message, data))
