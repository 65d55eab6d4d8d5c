"""The events of a turn, read as a model's answer: envelopes in, `StreamEvent`s and a `Completion` out. Pure.

The CLIs differ in how they tell a message. claude gives one `message` for each block of it, codex one for each item and none for
a tool call, gemini no thinking; some stream deltas and some do not. What comes out is the same for all: a message is given once,
whole, and every word of it was a delta before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from clisup.client.events import (
    ApprovalRequested,
    AssistantMessage,
    BackendRetry,
    ContentDelta,
    Envelope,
    MessageStart,
    MessageStop,
    Notice,
    RateLimit,
    TaskUpdate,
    ToolResult,
    ToolUse,
    TurnCompleted,
)
from clisup.client.events import Block as SaidBlock
from clisup.client.events import Retracted as TakenBack
from clisup.llm.chat import (
    Completion,
    Cost,
    Finished,
    FinishReason,
    MessageDone,
    Retracted,
    StreamEvent,
    TaskChanged,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolInputDelta,
    ToolStarted,
    Waiting,
)
from clisup.llm.failures import LLMError, Uncertain, error_of_turn
from clisup.llm.messages import ImageBlock, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from clisup.llm.names import ModelName

__all__ = ["BRIDGE_PREFIX", "TurnReader", "own_name"]

BRIDGE_PREFIX = "mcp__clisup__"
"""The CLIs name a tool of ours by the MCP server that brings it (`clisup mcp-bridge`)."""

UNANSWERED = "This tool had not answered when the conversation went on."
_FINISH_REASONS = {
    "max_tokens": FinishReason.LENGTH,
    "length": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "refusal": FinishReason.REFUSAL,
    "content_filter": FinishReason.REFUSAL,
}
_ANSWERING = {"StructuredOutput", "structured_output"}  # claude 2.1.330; qwen 0.24.4
_LATER = {"held", "resumed"}
_Said = TextBlock | ThinkingBlock | ToolUseBlock


def own_name(name: str) -> tuple[str, bool]:
    """A tool's own name, and whether it is one of ours."""
    if name.startswith(BRIDGE_PREFIX):
        return name.removeprefix(BRIDGE_PREFIX), True
    return name, False


@dataclass(slots=True)
class _Open:
    """The message that is being made, of the model or of one sub-agent. `shown` is what was streamed and not yet confirmed."""

    id: str | None = None
    blocks: list[SaidBlock] = field(default_factory=list)
    shown: dict[str, str] = field(default_factory=dict)

    @property
    def calls(self) -> set[str]:
        return {block.tool_use_id for block in self.blocks if block.kind == "tool_use" and block.tool_use_id}


class TurnReader:
    """Reads one turn. Give it the envelopes of that turn in order, with payloads whole (`clisup.llm.payloads`).

    `callers` names the tools that the caller runs, as the backend names them. `calling` are their calls without a result, `running`
    those of our tools that run here.
    """

    def __init__(
        self,
        model: ModelName,
        session_id: str | None = None,
        turn_id: str | None = None,
        callers: Collection[str] = (),
    ) -> None:
        self._model, self._session_id, self._turn_id = model, session_id, turn_id
        self._callers = frozenset(callers)
        self.calling: dict[str, ToolUseBlock] = {}
        self.running: dict[str, ToolUseBlock] = {}
        self._brought: dict[str, ToolResultBlock] = {}
        self._begun: set[str | None] = set()
        self._open: dict[str | None, _Open] = {}
        self._calls: dict[str, str | None] = {}
        self._ran_tools = False
        self._answered: set[str] = set()
        self._messages: list[Message] = []
        self._results: list[ToolResultBlock] = []

    @property
    def side_effects(self) -> bool:
        """Was a tool called? The tool by which a CLI takes a structured answer does nothing, and the caller knows its own."""
        return self._ran_tools

    def is_whole(self, call_id: str) -> bool:
        """Return whether the message of this call has ended, for a backend that tells the ends of messages."""
        return self._calls.get(call_id) not in self._begun

    def bring(self, results: Sequence[ToolResultBlock]) -> None:
        """Take the caller's results: they are the prompt of this round, so the answer does not hold them again."""
        self._brought |= {result.tool_use_id: result for result in results}
        self._answered |= self._brought.keys()

    def pause(self, calls: Sequence[ToolUseBlock], at: str = "") -> Iterator[StreamEvent]:
        """End the answer at calls that wait for the caller. What is read afterwards is the next answer."""
        waiting = {call.id for call in calls}
        for parent in [parent for parent, open_ in self._open.items() if waiting & open_.calls]:
            yield from self._done(parent, at)
        if self._results:
            self._messages.append(Message.user(self._results))
        messages, self._messages, self._results = tuple(self._messages), [], []
        said = [message for message in messages if message.role == "assistant"]
        yield Finished(
            Completion(
                message=said[-1] if said else Message.assistant(()),
                model=self._model,
                finish_reason=FinishReason.TOOL_CALLS,
                messages=messages,
                session_id=self._session_id,
                turn_id=self._turn_id,
                tool_calls=tuple(calls),
            )
        )

    def read(self, envelope: Envelope) -> list[StreamEvent]:
        """What the envelope means; `Finished` for the turn's end. Raises an `LLMError` where it ended without an answer."""
        rule = _RULES.get(type(envelope.event))
        return [] if rule is None else list(rule(self, envelope.event, envelope.ts))

    # -- what is said

    def _started(self, event: MessageStart, at: str) -> Iterator[StreamEvent]:
        self._begun.add(event.parent_tool_use_id)
        yield from self._on(event.parent_tool_use_id, event.message_id, at)

    def _delta(self, event: ContentDelta, at: str) -> Iterator[StreamEvent]:
        parent = event.parent_tool_use_id
        if event.kind == "tool_input":
            if event.text:
                yield ToolInputDelta(None, None, event.text, parent, event.index)
            return
        yield from self._on(parent, event.message_id, at)
        shown = self._open[parent].shown
        shown[event.kind] = shown.get(event.kind, "") + event.text
        yield _delta_of(event.kind, event.text, parent)

    def _message(self, event: AssistantMessage, at: str) -> Iterator[StreamEvent]:
        if event.synthetic:
            return
        parent = event.parent_tool_use_id
        yield from self._on(parent, event.message_id, at)
        open_ = self._open[parent]
        for block in event.blocks:
            if block.kind == "tool_use" and self._is_there(open_, block.tool_use_id):
                continue
            open_.blocks.append(block)
            if block.kind in ("text", "thinking") and (rest := _unshown(open_.shown, block.kind, block.text or "")):
                yield _delta_of(block.kind, rest, parent)

    def _stopped(self, event: MessageStop, at: str) -> Iterator[StreamEvent]:
        self._begun.discard(event.parent_tool_use_id)
        if (open_ := self._open.get(event.parent_tool_use_id)) and open_.id in (None, event.message_id):
            yield from self._done(event.parent_tool_use_id, at)

    def _retracted(self, event: TakenBack, at: str) -> Iterator[StreamEvent]:
        for open_ in self._open.values():
            if open_.id == event.message_id:
                for block in open_.blocks[event.from_index :]:
                    self._over(block.tool_use_id or "")
                del open_.blocks[event.from_index :]
                open_.shown.clear()
        yield Retracted(event.reason)

    # -- tools

    def _tool_use(self, event: ToolUse, at: str) -> Iterator[StreamEvent]:
        """codex and others tell a call without a message around it."""
        parent = event.parent_tool_use_id
        self._calls[event.tool_use_id] = parent
        of_caller = event.name in self._callers
        self._ran_tools = self._ran_tools or not (of_caller or event.name in _ANSWERING)
        open_ = self._open.setdefault(parent, _Open())
        name, ours = own_name(event.name)
        if of_caller or ours:
            calls = self.calling if of_caller else self.running
            calls[event.tool_use_id] = ToolUseBlock(id=event.tool_use_id, name=name, input=dict(event.input))
        yield ToolStarted(event.tool_use_id, name, dict(event.input), parent, at, ours or of_caller)
        if not self._is_there(open_, event.tool_use_id):
            block = SaidBlock(kind="tool_use", tool_use_id=event.tool_use_id, name=event.name, input=event.input)
            open_.blocks.append(block)

    def _over(self, tool_use_id: str) -> None:
        self.calling.pop(tool_use_id, None)
        self.running.pop(tool_use_id, None)

    def _is_there(self, open_: _Open, tool_use_id: str | None) -> bool:
        return tool_use_id in open_.calls

    def _tool_result(self, event: ToolResult, at: str) -> Iterator[StreamEvent]:
        parent = self._calls.get(event.tool_use_id, event.parent_tool_use_id)
        yield from self._done(parent, at)
        self._over(event.tool_use_id)
        result = ToolResultBlock(tool_use_id=event.tool_use_id, content=_content(event), is_error=event.is_error)
        brought = self._brought.get(event.tool_use_id)
        if brought is not None and (brought.text, brought.is_error) == (result.text, result.is_error):
            return
        if parent is None and event.tool_use_id not in self._answered:
            self._answered.add(event.tool_use_id)
            self._results.append(result)
        yield ToolEnded(result, parent, at)

    # -- whole messages

    def _on(self, parent: str | None, message_id: str | None, at: str) -> Iterator[StreamEvent]:
        """Go on with this message; another one that was open is done."""
        open_ = self._open.setdefault(parent, _Open(message_id))
        if open_.id is None and not open_.blocks:
            open_.id = message_id
        elif message_id is not None and open_.id != message_id:
            yield from self._done(parent, at)
            self._open[parent] = _Open(message_id)

    def _done(self, parent: str | None, at: str) -> Iterator[StreamEvent]:
        open_ = self._open.pop(parent, None)
        blocks = [said for block in (open_.blocks if open_ else ()) if (said := _said(block))]
        if not blocks:
            return
        message = Message.assistant(blocks)
        if parent is None:
            self._answer()
            self._messages.append(message)
        yield MessageDone(message, parent, at)

    def _answer(self, waiting: Collection[str] = ()) -> None:
        """The results that came since the last message are the user's next one. No call stays without: no API takes such a history.

        Calls that wait for the caller do.
        """
        for call in self._messages[-1].tool_uses if self._messages else ():
            if call.id not in self._answered and call.id not in waiting:
                self._answered.add(call.id)
                self._results.append(ToolResultBlock(tool_use_id=call.id, content=UNANSWERED, is_error=True))
        if self._results:
            self._messages.append(Message.user(self._results))
            self._results = []

    # -- the rest

    def _task(self, event: TaskUpdate, at: str) -> Iterator[StreamEvent]:
        yield TaskChanged(event.task_id, event.state, event.description or "", event.tool_use_id, at, event.report)

    def _retry(self, event: BackendRetry, at: str) -> Iterator[StreamEvent]:
        yield Waiting(f"retry: {event.error.kind}" if event.error else "retry", event.delay_s)

    def _limit(self, event: RateLimit, at: str) -> Iterator[StreamEvent]:
        if event.status == "rejected":
            yield Waiting(f"rate_limit: {event.limit_type}" if event.limit_type else "rate_limit", event.retry_after_s)

    def _approval(self, event: ApprovalRequested, at: str) -> Iterator[StreamEvent]:
        yield Waiting(f"approval: {own_name(event.tool_name)[0]}")

    def _notice(self, event: Notice, at: str) -> Iterator[StreamEvent]:
        if event.code in _LATER:
            yield Waiting(event.code)

    def _ended(self, end: TurnCompleted, at: str) -> Iterator[StreamEvent]:
        for parent in list(self._open):
            yield from self._done(parent, at)
        waiting = self.calling if end.outcome == "completed" and end.stop_reason == "tool_use" else {}
        self._answer(waiting)
        finish_reason = _FINISH_REASONS.get(end.stop_reason or "", FinishReason.STOP)
        if waiting:
            finish_reason = FinishReason.TOOL_CALLS
        if end.outcome != "completed":
            if end.error is None or end.error.kind != "max_turns" or not self._has_text():
                raise self._failure(end)
            finish_reason = FinishReason.MAX_TURNS
        yield Finished(self._completion(end, finish_reason, tuple(waiting.values())))

    def _has_text(self) -> bool:
        return any(message.text for message in self._messages)

    def _failure(self, end: TurnCompleted) -> LLMError:
        if end.delivery != "uncertain":
            return error_of_turn(end, side_effects=self.side_effects)
        return Uncertain(
            "nobody saw whether the CLI took the prompt",
            kind=end.error.kind if end.error else "crashed",
            hint="where twice does no harm, ask again",
            side_effects=True,
            evidence=end.evidence or {},
        )

    def _unsaid(self, end: TurnCompleted, last: str) -> str:
        """What the CLI gives as its answer and was in no message. A value is given by a tool, whose result would be the last message: no
        history may end with that.
        """
        if end.structured is not None and not self._ends_with_text():
            return end.text or json.dumps(end.structured, ensure_ascii=False, separators=(",", ":"))
        return "" if last or not end.text else end.text

    def _ends_with_text(self) -> bool:
        return bool(self._messages) and self._messages[-1].role == "assistant" and bool(self._messages[-1].text)

    def _completion(
        self, end: TurnCompleted, finish_reason: FinishReason, waiting: tuple[ToolUseBlock, ...]
    ) -> Completion:
        said = [message for message in self._messages if message.role == "assistant"]
        if not waiting and (answer := self._unsaid(end, said[-1].text if said else "")):
            said.append(Message.assistant(answer))
            self._messages.append(said[-1])
        cost = None
        if end.cost_usd is not None and end.cost_source != "unknown":
            cost = Cost(end.cost_usd, end.cost_source)
        return Completion(
            message=said[-1] if said else Message.assistant(()),
            model=self._model,
            finish_reason=finish_reason,
            usage=end.usage,
            cost=cost,
            structured=end.structured,
            messages=tuple(self._messages),
            session_id=self._session_id,
            turn_id=self._turn_id,
            tool_calls=waiting,
        )


_RULES: dict[type, Callable[[TurnReader, Any, str], Iterator[StreamEvent]]] = {
    MessageStart: TurnReader._started,
    ContentDelta: TurnReader._delta,
    AssistantMessage: TurnReader._message,
    MessageStop: TurnReader._stopped,
    TakenBack: TurnReader._retracted,
    ToolUse: TurnReader._tool_use,
    ToolResult: TurnReader._tool_result,
    TaskUpdate: TurnReader._task,
    BackendRetry: TurnReader._retry,
    RateLimit: TurnReader._limit,
    ApprovalRequested: TurnReader._approval,
    Notice: TurnReader._notice,
    TurnCompleted: TurnReader._ended,
}


def _delta_of(kind: str, text: str, parent: str | None) -> StreamEvent:
    return TextDelta(text, parent) if kind == "text" else ThinkingDelta(text, parent)


def _unshown(shown: dict[str, str], kind: str, text: str) -> str:
    """What of a whole block was no delta. One whose deltas were other words was shown: the message is what holds."""
    before = shown.get(kind, "")
    if before.startswith(text):  # several blocks were streamed before they were confirmed
        shown[kind] = before[len(text) :]
        return ""
    shown[kind] = ""
    return text.removeprefix(before) if text.startswith(before) else ""


def _said(block: SaidBlock) -> _Said | None:
    """A block as the model said it; None for what has no words (encrypted thinking, kinds of the CLI's own)."""
    if block.kind == "text" and block.text:
        return TextBlock(text=block.text)
    if block.kind == "thinking" and block.text:
        return ThinkingBlock(text=block.text, signature=block.signature)
    if block.kind == "tool_use" and block.tool_use_id:
        return ToolUseBlock(id=block.tool_use_id, name=own_name(block.name or "")[0], input=block.input or {})
    return None


def _content(event: ToolResult) -> str | tuple[TextBlock | ImageBlock, ...]:
    """The text; blocks only where there is an image among them."""
    blocks: list[TextBlock | ImageBlock] = []
    for block in event.blocks or ():
        if block.kind == "text" and block.text:
            blocks.append(TextBlock(text=block.text))
        elif block.kind == "image" and block.data and block.media_type in _IMAGES:
            blocks.append(ImageBlock.model_validate({"media_type": block.media_type, "data": block.data}))
    return tuple(blocks) if any(isinstance(block, ImageBlock) for block in blocks) else event.content


_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
