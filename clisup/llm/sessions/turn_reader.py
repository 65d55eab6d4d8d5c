"""Reader of a turn's events as a model's answer: envelopes in, `StreamEvent`s and a `Completion` out.

CLIs differ in messages. claude sends a `message` for each block. codex sends a `message` for each item, but not for a tool call.
gemini sends no thinking, and some CLIs stream no deltas. The reader's output is the same for all: each message comes once, whole,
after deltas with every word of the message.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

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
from clisup.llm.answers import (
    Completion,
    Cost,
    Finished,
    FinishReason,
    MessageDone,
    ModelName,
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

Fetch = Callable[[str], Awaitable[bytes]]
"""Function that returns the payload of a `blob`: `AsyncSession.blob`."""

# event -> the field with its full value in the event's `blob`
_FIELDS: dict[type, str] = {
    ContentDelta: "text",
    TaskUpdate: "report",
    ToolUse: "input",
    ToolResult: "content",
    TurnCompleted: "text",
}


async def whole(envelope: Envelope, fetch: Fetch) -> Envelope:
    """Return the envelope with every payload in place. Fetch payloads too large for the event."""
    event: Any = envelope.event
    updates: dict[str, Any] = {}
    name = _FIELDS.get(type(event))
    if name is not None and event.blob is not None:
        updates[name] = _value(name, await fetch(event.blob))
    if isinstance(event, AssistantMessage | ToolResult) and any(block.blob for block in event.blocks or ()):
        updates["blocks"] = tuple([await _block(block, fetch) for block in event.blocks or ()])
    return replace(envelope, event=structs.replace(event, **updates)) if updates else envelope


async def _block(block: SaidBlock, fetch: Fetch) -> SaidBlock:
    if block.blob is None:
        return block
    name = "input" if block.input is not None else "data" if block.data is not None else "text"
    return structs.replace(block, **{name: _value(name, await fetch(block.blob))})


def _value(name: str, payload: bytes) -> Any:
    text = payload.decode("utf-8", "replace")
    if name != "input":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # nested too deeply
        return {"_head": text}


BRIDGE_PREFIX = "mcp__clisup__"
"""Prefix of this program's tools at the CLIs: the MCP server of the tools (`clisup mcp-bridge`)."""

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
    """Return a tool's own name, and whether the tool belongs to this program."""
    if name.startswith(BRIDGE_PREFIX):
        return name.removeprefix(BRIDGE_PREFIX), True
    return name, False


@dataclass(slots=True)
class _OpenMessage:
    """Unfinished message of the model or a sub-agent. `shown` is streamed text without confirmation yet."""

    id: str | None = None
    blocks: list[SaidBlock] = field(default_factory=list)
    shown: dict[str, str] = field(default_factory=dict)

    @property
    def calls(self) -> set[str]:
        return {block.tool_use_id for block in self.blocks if block.kind == "tool_use" and block.tool_use_id}


class TurnReader:
    """Reader of a turn. `read` takes the turn's envelopes in order, after `whole`.

    `callers` are the backend's names of the caller's tools. `calling` are calls of these tools without a result. `running` are
    calls of local tools.
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
        self._open: dict[str | None, _OpenMessage] = {}
        self._calls: dict[str, str | None] = {}
        self.side_effects = False  # a tool has run, other than the caller's and a CLI's tool for structured answers
        self._answered: set[str] = set()
        self._messages: list[Message] = []
        self._results: list[ToolResultBlock] = []

    def is_whole(self, call_id: str) -> bool:
        """Return whether the message of this call has ended, on a backend with `message_stop`."""
        return self._calls.get(call_id) not in self._begun

    def bring(self, results: Sequence[ToolResultBlock]) -> None:
        """Take the caller's results. The results are the prompt of this round, so the answer does not repeat the results."""
        self._brought |= {result.tool_use_id: result for result in results}
        self._answered |= self._brought.keys()

    def pause(self, calls: Sequence[ToolUseBlock], at: str = "") -> Iterator[StreamEvent]:
        """End the answer at calls waiting for the caller. Later events belong to the next answer."""
        waiting = {call.id for call in calls}
        for parent in [parent for parent, open_ in self._open.items() if waiting & open_.calls]:
            yield from self._done(parent, at)
        if self._results:
            self._messages.append(Message.user(self._results))
        completion = self._completion(FinishReason.TOOL_CALLS, calls)
        self._messages, self._results = [], []
        yield Finished(completion)

    def read(self, envelope: Envelope) -> list[StreamEvent]:
        """Return the stream events of an envelope. Raises an `LLMError` if the turn ended without an answer."""
        rule = _RULES.get(type(envelope.event))
        return [] if rule is None else list(rule(self, envelope.event, envelope.ts))

    # -- messages

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
            if block.kind == "tool_use" and block.tool_use_id in open_.calls:
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
        """Start a tool call. codex and others send calls outside of messages."""
        parent = event.parent_tool_use_id
        self._calls[event.tool_use_id] = parent
        of_caller = event.name in self._callers
        self.side_effects = self.side_effects or not (of_caller or event.name in _ANSWERING)
        open_ = self._open.setdefault(parent, _OpenMessage())
        name, ours = own_name(event.name)
        if of_caller or ours:
            calls = self.calling if of_caller else self.running
            calls[event.tool_use_id] = ToolUseBlock(id=event.tool_use_id, name=name, input=dict(event.input))
        yield ToolStarted(event.tool_use_id, name, dict(event.input), parent, at, ours or of_caller)
        if event.tool_use_id not in open_.calls:
            block = SaidBlock(kind="tool_use", tool_use_id=event.tool_use_id, name=event.name, input=event.input)
            open_.blocks.append(block)

    def _over(self, tool_use_id: str) -> None:
        self.calling.pop(tool_use_id, None)
        self.running.pop(tool_use_id, None)

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
        """Continue this message, and finish another open message."""
        open_ = self._open.setdefault(parent, _OpenMessage(message_id))
        if open_.id is None and not open_.blocks:
            open_.id = message_id
        elif message_id is not None and open_.id != message_id:
            yield from self._done(parent, at)
            self._open[parent] = _OpenMessage(message_id)

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
        """Put the results since the last message into a message of the user.

        Calls without a result get a result, because every API requires results in a history. Calls waiting for the caller get no
        result.
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
            has_text = any(message.text for message in self._messages)
            if end.error is None or end.error.kind != "max_turns" or not has_text:
                raise self._failure(end)
            finish_reason = FinishReason.MAX_TURNS
        if not waiting and (answer := self._unsaid(end)):
            self._messages.append(Message.assistant(answer))
        completion = self._completion(finish_reason, tuple(waiting.values()))
        cost = None
        if end.cost_usd is not None and end.cost_source != "unknown":
            cost = Cost(end.cost_usd, end.cost_source)
        yield Finished(replace(completion, usage=end.usage, cost=cost, structured=end.structured))

    def _failure(self, end: TurnCompleted) -> LLMError:
        if end.delivery != "uncertain":
            return error_of_turn(end, side_effects=self.side_effects)
        return Uncertain(
            "it is unknown whether the CLI took the prompt",
            kind=end.error.kind if end.error else "crashed",
            hint="ask again only if a second run does no harm",
            side_effects=True,
            evidence=end.evidence or {},
        )

    def _unsaid(self, end: TurnCompleted) -> str:
        """Return the CLI's answer, if no message contains the answer.

        A structured value comes by a tool, and the tool's result would be the last message. No history may end with a result.
        """
        if end.structured is not None and not self._ends_with_text():
            return end.text or json.dumps(end.structured, ensure_ascii=False, separators=(",", ":"))
        last = next((message.text for message in reversed(self._messages) if message.role == "assistant"), "")
        return "" if last else end.text or ""

    def _ends_with_text(self) -> bool:
        return bool(self._messages) and self._messages[-1].role == "assistant" and bool(self._messages[-1].text)

    def _completion(self, finish_reason: FinishReason, waiting: Sequence[ToolUseBlock]) -> Completion:
        said = [message for message in self._messages if message.role == "assistant"]
        return Completion(
            message=said[-1] if said else Message.assistant(()),
            model=self._model,
            finish_reason=finish_reason,
            messages=tuple(self._messages),
            session_id=self._session_id,
            turn_id=self._turn_id,
            tool_calls=tuple(waiting),
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
    """Return the part of a whole block that no delta has shown. A block with other deltas counts as shown."""
    before = shown.get(kind, "")
    if before.startswith(text):  # several streamed blocks wait for confirmation
        shown[kind] = before[len(text) :]
        return ""
    shown[kind] = ""
    return text.removeprefix(before) if text.startswith(before) else ""


def _said(block: SaidBlock) -> _Said | None:
    """Return a block of the message, or None for a block without content (encrypted thinking, kinds of the CLI)."""
    if block.kind == "text" and block.text:
        return TextBlock(text=block.text)
    if block.kind == "thinking" and block.text:
        return ThinkingBlock(text=block.text, signature=block.signature)
    if block.kind == "tool_use" and block.tool_use_id:
        return ToolUseBlock(id=block.tool_use_id, name=own_name(block.name or "")[0], input=block.input or {})
    return None


def _content(event: ToolResult) -> str | tuple[TextBlock | ImageBlock, ...]:
    """Return the text, or blocks if any block is an image."""
    blocks: list[TextBlock | ImageBlock] = []
    for block in event.blocks or ():
        if block.kind == "text" and block.text:
            blocks.append(TextBlock(text=block.text))
        elif block.kind == "image" and block.data and block.media_type in _IMAGES:
            blocks.append(ImageBlock.model_validate({"media_type": block.media_type, "data": block.data}))
    return tuple(blocks) if any(isinstance(block, ImageBlock) for block in blocks) else event.content


_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
