"""One scripted reply as the events of a stream, in the order in which a real turn has them."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterator, Sequence

import trio

from clisup.errors import UsageError
from clisup.llm.chat import (
    Completion,
    Finished,
    FinishReason,
    MessageDone,
    StreamEvent,
    TaskChanged,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolStarted,
)
from clisup.llm.failures import LLMError
from clisup.llm.messages import Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from clisup.llm.names import ModelName
from clisup.llm.testing.script import Part, Reply, Thinking, ToolCall
from clisup.llm.tools import Tool, ToolDefinition, ToolOutput

__all__ = ["Action", "Playing"]

_AT = "2026-01-01T00:00:00.000000Z"
"""All that is scripted happens at once: what is made of it is the same each time."""

_Said = TextBlock | ThinkingBlock | ToolUseBlock
Action = StreamEvent | Callable[[], Awaitable[object]]
"""An event to give, or an async function to await before the next one."""


class Playing:
    """Plays one reply. `tools` are those of the chat; at calls of those that the caller runs, the reply ends."""

    def __init__(self, reply: Reply, model: ModelName, tools: Sequence[Tool | ToolDefinition]) -> None:
        self._reply, self._model = reply, model
        self._tools = {tool.name: tool for tool in tools}
        self._calls = 0
        self._messages: list[Message] = []
        self._waiting: tuple[ToolUseBlock, ...] = ()
        self._last = Message.assistant(())

    def actions(self) -> Iterator[Action]:
        """All events, `Finished` at last; or the reply's error."""
        yield from self._play(self._reply.parts, None)
        if (error := self._reply.error) is not None:
            if isinstance(error, LLMError) and self._calls:
                error = copy.copy(error)  # the script may raise it elsewhere, too
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
                raise UsageError(
                    f"the reply goes on after a call of {self._waiting[0].name}, whose result the caller brings",
                    kind="usage",
                    hint="make what follows the next step of the script",
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
        """The calls of one message, then their results in the order of the calls."""
        uses = [ToolUseBlock(id=self._id_of(call), name=call.name, input=dict(call.input)) for call in calls]
        for use in uses:
            yield ToolStarted(use.id, use.name, use.input, parent, _AT, ours=use.name in self._tools)
        yield self._done([*said, *uses], parent)
        for use, call in zip(uses, calls, strict=True):
            if call.inside:
                yield TaskChanged(f"task-{use.id}", "running", call.name, use.id, _AT)
                yield from self._play(call.inside, use.id)
                yield TaskChanged(f"task-{use.id}", "completed", call.name, use.id, _AT)
        pairs = list(zip(uses, calls, strict=True))
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
        """Side by side."""

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
    """Word by word, each with the white space before it; together the text."""
    pieces: list[str] = []
    start = 0
    for place in range(1, len(text)):
        if text[place].isspace() and not text[place - 1].isspace():
            pieces.append(text[start:place])
            start = place
    return [*pieces, text[start:]] if text else []
