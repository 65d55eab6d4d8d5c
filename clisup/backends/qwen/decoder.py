"""Decoder of Qwen Code's stdout (`--output-format stream-json --include-partial-messages`).

The format is claude's, so this is claude's decoder with these differences (0.24.4):

- One answer of the model has one `message_start`, but an `assistant` frame for each run of blocks, each with its own id and block
  numbers. All blocks become blocks of the started message.
- Usage and stop reason stand in the `assistant` frames, not in a `message_delta`. `input_tokens` includes cached tokens.
- A failed request is a text of the model, "[API Error: ...]". The text becomes a synthetic message without a delta.
- The failure of an MCP tool is a sentence of the CLI with the tool's result as JSON. The sentence becomes the tool's own text.
- `system/retry` retracts a message after its end, unless the frame says that the text goes on.
- The result's usage runs on over resumes, and over the turns of a live process.
- A live process denies a tool by itself after 10 minutes, without a frame. Only the tool's result shows that it waits no longer.
- A live process may begin a turn for the output of its tool `monitor`. Then the notification comes before the `init` frame.
- The answers to questions of the model go by the place of the question.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from clisup.backends.approvals import ApprovalAnswer, answers_by_place
from clisup.backends.base import Carried, Decoded, LaunchRequest
from clisup.backends.claude.decoder import ClaudeDecoder, ClaudeState
from clisup.backends.claude.frames import Assistant, StreamEvent, UsageCounts, User
from clisup.backends.claude.messages import blocks_of, tool_uses
from clisup.backends.claude.rare_frames import Tasks, session_init
from clisup.backends.claude.result import denied_tools
from clisup.backends.frames import (
    Count,
    Frame,
    MalformedError,
    get_dict,
    get_dicts,
    get_int,
    get_number,
    get_str,
    get_tokens,
    status,
    too_deep,
)
from clisup.backends.long_texts import qwen_passes_on
from clisup.backends.qwen.errors import UNASKED, explain_error, explain_retry
from clisup.model.events import (
    ApprovalRequested,
    AssistantMessage,
    BackendRetry,
    Block,
    ContentDelta,
    DeltaKind,
    EventBase,
    MessageStart,
    Retracted,
    ToolProgress,
    ToolResult,
)
from clisup.model.lines.framing import Line
from clisup.model.usage import NO_USAGE, Usage
from clisup.model.verdict import Terminal

__all__ = ["QwenDecoder", "own_words"]

API_ERROR = "[API Error: "
_ASKS_USER = "ask_user_question"


class _EndCounts(Struct):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None


class _EndBody(Struct):
    stop_reason: str | None = None
    usage: _EndCounts | None = None


class _EndFrame(Struct):
    """Fields of an `assistant` frame beside its blocks."""

    message: _EndBody


_END = msgspec.json.Decoder(_EndFrame)


class _Open(Struct):
    """Message that is being streamed, or that was streamed last."""

    message_id: str | None = None
    confirmed: Count = 0
    """Blocks confirmed by assistant frames; the CLI counts from 0 again after each frame."""
    error_text: str | None = None
    """A waiting delta that looks like the CLI's own words."""
    error_index: Count = 0
    shown: bool = False
    """Part of it is an event, and no tool result has answered it."""


class QwenState(ClaudeState, kw_only=True):
    """State of a turn.

    `asked` holds the open permission requests by tool call: the approval, the CLI's own id, and the questions of the model.
    """

    carried_usage: Usage | None
    asked: dict[str, tuple[str, str, list[str] | None]] = field(default_factory=dict)
    began: bool = False
    notified: bool = False
    last: _Open = field(default_factory=_Open)


class QwenDecoder(ClaudeDecoder):
    """Decoder of one qwen process's stdout. `carried` holds the running usage at the turn's start."""

    passes_on = staticmethod(qwen_passes_on)
    state: QwenState

    def __init__(self, carried: Carried, request: LaunchRequest | None = None) -> None:
        super().__init__(carried, request)
        self._expand = request is not None and request.expand  # a command of the CLI may need no model

    def _begin(self, carried: Carried) -> QwenState:
        tasks = Tasks.of(carried.background)
        return QwenState(tasks=tasks, carried_usd=carried.cost_usd, carried_usage=carried.usage)

    @property
    def ends_when_idle(self) -> bool:
        """Return False: the result comes after the reports of all sub-agents."""
        return False

    def answer(self, approval_id: str, answer: ApprovalAnswer) -> str | None:
        """Return the `control_response` to an open permission request of a live process. Raises `UsageError` for odd answers."""
        questions = next((texts for named, _, texts in self.state.asked.values() if named == approval_id), None)
        if questions is not None and answer.decision == "allow":
            places = answers_by_place(questions, answer)
            answer = replace(answer, updated_input={**(answer.updated_input or {}), "answers": places})
        return super().answer(approval_id, answer)

    # The frequent frames

    def _stream_event(self, frame: StreamEvent, line: Line, data: bytes) -> Sequence[EventBase]:
        return self._placed(super()._stream_event(frame, line, data)) if frame.parent_tool_use_id is None else ()

    def _placed(self, told: Sequence[EventBase]) -> list[EventBase]:
        """Return the same events with each delta at its place in the whole message."""
        events: list[EventBase] = []
        for event in told:
            if isinstance(event, MessageStart):
                self.state.last = _Open(event.message_id)
            events += self._shown(event) if isinstance(event, ContentDelta) else [event]
        return events

    def _shown(self, event: ContentDelta) -> list[ContentDelta]:
        """Return a delta at its place in the whole message. A delta like a failure waits for its `assistant` frame."""
        last = self.state.last
        event = replace(event, index=(event.index or 0) + last.confirmed)
        given = self._release()
        if event.kind == "text" and event.text.startswith(API_ERROR):
            last.error_text, last.error_index = event.text, event.index or 0
            return given
        last.shown = True
        return [*given, event]

    def _release(self) -> list[ContentDelta]:
        """Return the delta that waited: the model's text follows, so the delta was no failure."""
        last = self.state.last
        if last.error_text is None:
            return []
        kind: DeltaKind = "text"
        held = ContentDelta(kind=kind, text=last.error_text, index=last.error_index, message_id=last.message_id)
        last.error_text, last.shown = None, True
        return [held]

    def _assistant(self, frame: Assistant, data: bytes) -> list[EventBase]:
        """Return the blocks of a frame as blocks of the open message. Without partial messages the frame has its own id."""
        message, parent, last = frame.message, frame.parent_tool_use_id, self.state.last
        if parent is not None:
            return super()._assistant(frame, data)
        if not isinstance(message.content, str) and too_deep(data, [block.input for block in message.content]):
            raise MalformedError("nested too deep")
        if last.message_id is None:
            self.state.last = last = _Open(message.id)
        events = self._placed(self.state.messages.confirm(None, last.message_id))
        blocks, error = _without_error(blocks_of(message.content), last.error_text)
        if blocks:
            events.append(AssistantMessage(message_id=last.message_id, blocks=blocks))
        if error is not None:
            events.append(
                AssistantMessage(message_id=None if last.shown else last.message_id, blocks=(error,), synthetic=True)
            )
        last.confirmed += len(blocks_of(message.content))
        last.error_text, last.shown = None, last.shown or bool(blocks)
        self._note_usage(data)
        return [*events, *tool_uses(message.content, None)]

    def _note_usage(self, data: bytes) -> None:
        """Read the usage. Only the last frame of a message has it; earlier frames have 0."""
        try:
            end = _END.decode(data).message
        except ValueError:
            return
        counts = end.usage
        used = counts is not None and bool(counts.input_tokens or counts.output_tokens)
        self.state.messages.note_end(None, end.stop_reason, _counts(counts) if counts is not None and used else None)

    def _user(self, frame: User, data: bytes) -> list[EventBase]:
        """Return tool results. They answer the message before them, so a later retry does not retract that message."""
        events = [
            _of_the_tool(event) if isinstance(event, ToolResult) else event for event in super()._user(frame, data)
        ]
        results = [event for event in events if isinstance(event, ToolResult)]
        self.state.last.shown = self.state.last.shown and not results
        for result in results:
            if (asked := self.state.asked.pop(result.tool_use_id or "", None)) is not None:
                events += self._questions.withdraw(asked[1])
        return events

    # The rare frames

    def _rare(self, value: object, line: Line, data: bytes) -> Decoded:
        handle = _OWN.get(_key(value)) if isinstance(value, dict) else None
        if handle is None or too_deep(data, value):
            return super()._rare(value, line, data)
        try:
            return Decoded(handle(self, value)) if isinstance(value, dict) else Decoded(())
        except (MalformedError, ValueError):
            return super()._rare(None, line, data)

    def _request(self, frame: Frame, line: Line) -> Decoded:
        decoded = super()._request(frame, line)
        for event in decoded.events:
            if isinstance(event, ApprovalRequested) and event.tool_use_id is not None:
                asks = [get_str(asked, "question") or "" for asked in get_dicts(event.input, "questions")]
                texts = asks if event.tool_name == _ASKS_USER else None
                self.state.asked[event.tool_use_id] = (event.approval_id, get_str(frame, "request_id") or "", texts)
        return decoded

    def _init(self, frame: Frame) -> list[EventBase]:
        self.state.began = True
        return session_init(frame, mode="permission_mode", version="qwen_code_version")

    def _retry(self, frame: Frame) -> list[EventBase]:
        """Report a retry. With a delay it is a rate limit, without one the answer was broken, empty or cut."""
        told = get_dict(frame, "data")
        delay_ms = get_number(told, "delayMs")
        events: list[EventBase] = []
        again = told.get("preserveText") is not True
        if again and (self.state.last.shown or get_int(told, "discardedToolCalls")):
            events.append(Retracted(message_id=self.state.last.message_id, reason="the request is repeated"))
            self.state.last.shown = False
        events.append(
            BackendRetry(
                attempt=get_int(told, "attempt"),
                max_attempts=get_int(told, "maxRetries"),
                delay_s=None if delay_ms is None else delay_ms / 1000,
                error=explain_retry(limited=delay_ms is not None),
            )
        )
        return events

    def _task_started(self, frame: Frame) -> list[EventBase]:
        task = get_dict(frame, "data")
        return self.state.tasks.runs({**task, "task_type": task.get("subagent_type")})

    def _task_notified(self, frame: Frame) -> list[EventBase]:
        self.state.notified = self.state.notified or not self.state.began
        return self.state.tasks.notified(get_dict(frame, "data"))

    def _result(self, frame: Frame) -> Decoded:
        said = frame.get("is_error")
        if not isinstance(said, bool):
            raise MalformedError("is_error is missing")
        error = get_dict(frame, "error")
        idle = not said and self.state.last.message_id is None  # the model was not asked
        share, total = _share(_usage(get_dict(frame, "usage")), self.state.carried_usage, idle=idle)
        self.state.carried_usage = total
        text = "" if said else get_str(frame, "result") or ""
        failure = explain_error(get_str(error, "message") or "") if said else None
        if idle and not text and not self._expand:
            failure = UNASKED
        terminal = Terminal(
            is_error=failure is not None,
            text=text,
            usage=share,
            usage_total=total,
            error=failure,
            denied=denied_tools(frame),
            structured=frame.get("structured_result"),
            follow_up=self.state.notified,
            interrupted=failure is not None and failure.kind == "cancelled",
        )
        self.state.began = self.state.notified = False
        return Decoded(
            [*self.state.messages.finish(), *self._questions.close(), *self.state.denials.rest(frame)], terminal
        )


def _key(frame: Frame) -> str:
    if frame.get("type") == "stream_event":
        return f"stream_event/{get_str(get_dict(frame, 'event'), 'type')}"
    return f"{frame.get('type')}/{get_str(frame, 'subtype')}"


def _tool_progress(frame: Frame) -> list[EventBase]:
    return [ToolProgress(tool_use_id=get_str(get_dict(frame, "event"), "tool_use_id"))]


def _of_the_tool(result: ToolResult) -> ToolResult:
    return replace(result, content=own_words(result.content)) if result.is_error else result


def _said(name: str, frame: Frame) -> list[EventBase]:
    """Report a frame as a status. Its detail is the texts of `data`."""
    texts = [value for value in get_dict(frame, "data").values() if isinstance(value, str)]
    return [status(name, ", ".join(texts))]


def _without_error(blocks: tuple[Block, ...], held: str | None) -> tuple[tuple[Block, ...], Block | None]:
    """Separate the model's blocks from the CLI's words for a failed request at their end."""
    last = blocks[-1] if blocks else None
    if held is None or last is None or last.text is None or not last.text.endswith(held):
        return blocks, None
    said = last.text.removesuffix(held)
    kept = (*blocks[:-1], Block(kind="text", text=said)) if said else blocks[:-1]
    return kept, Block(kind="text", text=held)


def _counts(counts: _EndCounts) -> UsageCounts:
    fresh = _fresh(counts.input_tokens, counts.cache_read_input_tokens)
    return UsageCounts(fresh, counts.output_tokens, None, counts.cache_read_input_tokens)


def _fresh(whole: int | None, cached: int | None) -> int | None:
    """Return the tokens of the prompt that came from no cache."""
    return None if whole is None else max(0, whole - (cached or 0))


def _usage(usage: Frame) -> Usage:
    whole, cached = get_tokens(usage, "input_tokens"), get_tokens(usage, "cache_read_input_tokens")
    output = get_tokens(usage, "output_tokens")
    if whole is None and output is None:
        return Usage()
    return Usage(
        input_tokens=_fresh(whole, cached), output_tokens=output, cache_read_input_tokens=cached, source="reported"
    )


def _share(total: Usage, carried: Usage | None, *, idle: bool) -> tuple[Usage, Usage | None]:
    """Return the turn's own usage, and the total to carry over.

    Zeros mean a failed request, or an endpoint without usage. They prove nothing, unless the CLI was `idle`: it asked no model. The
    previous total then stays, because the next total covers all turns again.
    """
    if total.source == "unknown":
        return total, None
    counted = _is_used(total)
    share = total.since(carried) if counted else _UNUSED
    return share if idle or _is_used(share) else Usage(), total if counted else carried


_UNUSED = replace(NO_USAGE, cache_creation_input_tokens=None, reasoning_tokens=None)


def _is_used(usage: Usage) -> bool:
    return bool(usage.total_input_tokens or usage.output_tokens)


_OWN: dict[str, Callable[[QwenDecoder, Frame], list[EventBase]]] = {
    "system/init": QwenDecoder._init,
    "system/retry": QwenDecoder._retry,
    "system/task_started": QwenDecoder._task_started,
    "system/task_notification": QwenDecoder._task_notified,
    "system/model_fallback": lambda _, frame: _said("model_fallback", frame),
    "system/worktree_started": lambda _, frame: _said("worktree_started", frame),
    "system/worktree_restored": lambda _, frame: _said("worktree_restored", frame),
    "system/continue_turn_failed": lambda _, frame: _said("continue_turn_failed", frame),
    "stream_event/tool_progress": lambda _, frame: _tool_progress(frame),
    "stream_event/goal_state": lambda *_: [],  # a feature for interactive use: a goal over many turns
}


_BEGIN = re.compile(r"MCP tool '.*?' reported tool error for function call: ")
_BEHIND_THE_CALL = " with response: "
_JSON = json.JSONDecoder()


def own_words(content: str) -> str:
    """Return the texts of the tool's own result. Content without such a sentence, or with a cut one, stays unchanged."""
    begin = _BEGIN.match(content)
    if begin is None:
        return content
    try:
        _, end = _JSON.raw_decode(content, begin.end())
        (response,) = json.loads(content[end:].removeprefix(_BEHIND_THE_CALL))
        parts = response["functionResponse"]["response"]["content"]
        return "\n".join(part["text"] for part in parts if part["type"] == "text") or content
    except (ValueError, LookupError, TypeError, RecursionError):
        return content
