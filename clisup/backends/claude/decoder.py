"""Decoder of claude's stdout (`--output-format stream-json --include-partial-messages --verbose`).

Frames were recorded with claude 2.1.329 and spot-checked with 2.1.197. Frequent frames (`stream_event`, `assistant`, `user`)
become typed structs. Rare frames go by name through tables. Unknown frames, and lines that are no JSON object, become
`unparsed`. Nothing raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from clisup.backends.approvals import ApprovalAnswer, Questions
from clisup.backends.base import Background, Carried, Control, Decoded, Decoder, LaunchRequest, OpenWork, Terminal
from clisup.backends.claude.control import (
    INTERRUPT,
    LiveState,
    asked,
    control_line,
    control_request,
    refused,
    withdrawn,
)
from clisup.backends.claude.errors import ClaudeFailure, explain_compaction, explain_hook, explain_report
from clisup.backends.claude.frames import (
    Assistant,
    BlockDelta,
    BlockStop,
    HotFrame,
    MessageDelta,
    MessageStartEvent,
    MessageStopEvent,
    StreamEvent,
    System,
    User,
    decode_hot,
    raw_delta_text,
)
from clisup.backends.claude.messages import ClaudeMessages, blocks_of, tool_result, tool_uses, user_text
from clisup.backends.claude.rare_frames import RARE, SILENT, STREAM_SILENT, Tasks, rate_limit
from clisup.backends.claude.result import Denials, terminal_of
from clisup.backends.errors import LOST_END
from clisup.backends.frames import Frame, MalformedError, decode_any, get_dict, get_str, mend, too_deep
from clisup.backends.lines import decode_broken, unparsed
from clisup.backends.long_texts import claude_passes_on
from clisup.model.events import AssistantMessage, Block, EventBase, TurnError
from clisup.model.lines.framing import Line
from clisup.model.verdict import sum_of

__all__ = ["ClaudeDecoder"]

_NOTHING = Decoded(())
_NO_FAILURE = ClaudeFailure()
_HOT_TYPES = frozenset({"stream_event", "assistant", "user"})
_SYNTHETIC = "<synthetic>"
_LOCAL_OUTPUT = "<local-command-"
_STREAM_EVENTS = STREAM_SILENT.keys() | {"message_start", "content_block_delta", "message_stop"}
_DELTAS = STREAM_SILENT.keys() | {"text_delta", "thinking_delta", "input_json_delta"}


class ClaudeState(Struct, kw_only=True):
    """State of a turn. `refused` is why the prompt did nothing (a hook refused it, or the compaction failed), `uses` that of `Questions`.

    `reported` is the sum of the results without an answer: they hold the tokens of sub-agents, and another result follows.
    """

    tasks: Tasks
    carried_usd: float | None
    messages: ClaudeMessages = field(default_factory=ClaudeMessages)
    denials: Denials = field(default_factory=Denials)
    live: LiveState = field(default_factory=LiveState)
    failure: ClaudeFailure = _NO_FAILURE
    resets_at: str | None = None
    refused: TurnError | None = None
    reported: Terminal | None = None
    uses: dict[str, int] = field(default_factory=dict)


class ClaudeDecoder(Decoder):
    """Decoder of one claude process's stdout, from the first line of a turn on.

    `carried` is the running cost at the turn's start. After a `result` the decoder is ready for the next turn of the same process
    (a follow-up after background work), with the total of that result.
    """

    passes_on = staticmethod(claude_passes_on)
    state: ClaudeState

    def __init__(self, carried: Carried, request: LaunchRequest | None = None) -> None:
        self._live = request is not None and request.live
        self._questions = Questions(request.run if request is not None else 0)
        self.restore(self._begin(carried))

    def _begin(self, carried: Carried) -> ClaudeState:
        return ClaudeState(tasks=Tasks.of(carried.background), carried_usd=carried.cost_usd)

    def restore(self, state: Any) -> None:
        """Go on from this state."""
        self.state = state
        self._questions.uses = state.uses

    @property
    def background(self) -> Background:
        """Background tasks that were announced and have not ended. The daemon keeps the process while there are any.

        A decoder for a follow-up turn needs the tasks in `Carried`.
        """
        return self.state.tasks.background

    @property
    def open_work(self) -> OpenWork:
        """Work for the phases of the watchdog, the failure in the last message of the CLI's own, and whether a result got lost."""
        failure = self.state.failure
        told = explain_report(failure) if failure.code or failure.api_error else None
        return OpenWork(self.background, ended=self._live and self.state.live.lost_end, failure=told)

    def settle(self) -> Decoded | None:
        """Return the failure of a turn whose result got lost."""
        if not self.open_work.ended:
            return None
        self.state.live.has_result = True
        return Decoded(
            [*self.state.messages.finish(), *self._questions.close()], Terminal(is_error=True, error=LOST_END)
        )

    def interrupt(self) -> str | None:
        """Return the request that ends the turn of a live process, which lives on (10 ms, 2.1.329).

        One-shot claude reacts to signals alone. Messages that the process received during its work end with the turn.
        """
        return control_request(INTERRUPT, "interrupt", cancel_queued=True) if self._live else None

    def control(self, request_id: str, control: Control, value: str | None) -> str | None:
        """Return the line that sends this request to a live process. The answer names `request_id` again."""
        return control_line(request_id, control, value) if self._live else None

    @property
    def prompts(self) -> tuple[str, ...]:
        """Ids of the prompts with which a live process began its turn."""
        return self.state.live.prompts

    @property
    def idle(self) -> bool:
        """Tell whether a live process has reported that only background tasks are left."""
        return self.state.live.idle

    @property
    def ends_when_idle(self) -> bool:
        """Tell whether the turn has started background work.

        A live process with sub-agents at work is not idle (2.1.330). The process prints another result after their reports.
        """
        return self._live and self.state.tasks.begun

    @property
    def given_up(self) -> frozenset[str]:
        """Ids of prompts that a live process cancelled, before or after their beginning."""
        return self.state.live.given_up

    def answer(self, approval_id: str, answer: ApprovalAnswer) -> str | None:
        """Return the `control_response` to an open permission request of a live process."""
        return self._questions.answer(approval_id, answer)

    def decode(self, line: Line) -> Decoded:
        """Decode one line. A `result` ends the turn. The method never raises."""
        if line.oversize:
            return unparsed(line, "oversize")
        try:
            frame = decode_hot(line.data)
        except (ValueError, RecursionError):  # a rare frame, or no frame
            return self._decode_other(line)
        if type(frame) is StreamEvent:
            return Decoded(self._stream_event(frame, line, line.data))
        return self._hot(frame, line, line.data)

    def _decode_other(self, line: Line) -> Decoded:
        try:
            return self._rare(decode_any(line.data), line, line.data)
        except (ValueError, RecursionError):
            return self._decode_broken(line)

    def _decode_broken(self, line: Line) -> Decoded:
        """Decode a line that is no valid JSON. Some lines are valid after a repair of broken characters."""
        if not line.data.strip():
            return _NOTHING  # an empty line gives no event
        data = mend(line.data)
        try:
            if data == line.data:
                raise ValueError("nothing to mend")
            value = decode_any(data)
        except (ValueError, RecursionError):
            return decode_broken(line, self.decode)
        try:
            frame = decode_hot(data)
        except (ValueError, RecursionError):
            return self._rare(value, line, data)
        return self._hot(frame, line, data)

    def _hot(self, frame: HotFrame, line: Line, data: bytes) -> Decoded:
        if type(frame) is StreamEvent:
            return Decoded(self._stream_event(frame, line, data))
        try:
            if type(frame) is Assistant:
                return Decoded(self._assistant(frame, data))
            if type(frame) is User:
                return Decoded(self._user(frame, data))
        except MalformedError:
            return unparsed(line, "malformed")
        if type(frame) is System and "system/" + frame.subtype in SILENT:
            return _NOTHING
        return self._decode_other(line) if data is line.data else self._rare(decode_any(data), line, data)

    # The frequent frames

    def _stream_event(self, frame: StreamEvent, line: Line, data: bytes) -> Sequence[EventBase]:
        event, parent = frame.event, frame.parent_tool_use_id
        if type(event) is BlockDelta:
            delta = event.delta
            if delta.text is None:
                return ()  # STREAM_SILENT says why
            if data is line.data:
                return self.state.messages.delta(parent, event.index, delta.kind, delta.text)
            # The line was repaired, so the original may hold halves of surrogate pairs.
            text = raw_delta_text(line.data) or delta.text
            return self.state.messages.broken_delta(parent, event.index, delta.kind, text)
        if type(event) is MessageStartEvent:
            return self.state.messages.start(parent, event.message)
        if type(event) is BlockStop:
            return self.state.messages.stop_block(parent)
        if type(event) is MessageDelta:
            self.state.messages.note_end(parent, event.delta.stop_reason, event.usage)
            return ()
        if type(event) is MessageStopEvent:
            return self.state.messages.stop(parent, frame.abandoned_blocks)
        return ()  # STREAM_SILENT says why

    def _assistant(self, frame: Assistant, data: bytes) -> list[EventBase]:
        message, parent = frame.message, frame.parent_tool_use_id
        if not isinstance(message.content, str) and too_deep(data, [block.input for block in message.content]):
            raise MalformedError("nested too deep")
        blocks = blocks_of(message.content)
        synthetic = message.model == _SYNTHETIC or frame.is_api_error_message is True
        if parent is None:
            self.state.failure = _failure_of(frame, blocks) if synthetic else _NO_FAILURE
        return [
            *self.state.messages.confirm(parent, message.id),
            AssistantMessage(
                message_id=message.id, blocks=blocks, parent_tool_use_id=parent, synthetic=True if synthetic else None
            ),
            *tool_uses(message.content, parent),
        ]

    def _user(self, frame: User, data: bytes) -> list[EventBase]:
        """Return tool results, and texts. In a one-shot run these texts are the CLI's own.

        The events of a subagent's first text (the prompt of its Agent call) and of a replayed text (the caller's prompt) exist already.
        """
        content, parent = frame.message.content, frame.parent_tool_use_id
        events: list[EventBase] = []
        if not isinstance(content, str):
            if too_deep(data, [block.content for block in content]):
                raise MalformedError("nested too deep")
            events += [tool_result(block, parent) for block in content if block.type == "tool_result"]
            self.state.denials.see(events)
        if parent is not None:
            return events
        if frame.replay:
            local = isinstance(content, str) and content.startswith(_LOCAL_OUTPUT)
            return events + (user_text(content, "local_command_output") if local else [])
        return events + user_text(content, "synthetic_prompt" if frame.synthetic else "user_message")

    # The rare frames

    def _rare(self, value: object, line: Line, data: bytes) -> Decoded:
        if not isinstance(value, dict) or not isinstance(value.get("type"), str):
            return unparsed(line, "malformed")
        key = _key(value)
        if self._live and (decoded := self._live_frame(self.state.live, key, value)) is not None:
            return decoded
        if key in SILENT:
            return _NOTHING
        try:
            if too_deep(data, value):
                raise MalformedError("nested too deep")
            if key == "result":
                return self._result(value)
            if key == "control_request":
                return self._request(value, line)
            if (stateful := _STATEFUL.get(key)) is not None:
                return Decoded(stateful(self, value))
            return Decoded(RARE[key](value))
        except LookupError:
            return unparsed(line, "malformed" if _is_known(key, value) else "unknown_type")
        except (MalformedError, ValueError):
            return unparsed(line, "malformed")

    @staticmethod
    def _live_frame(live: LiveState, key: str, frame: Frame) -> Decoded | None:
        """Decode a frame of a live process only. Return None for a frame that one-shot runs have too."""
        if key == "control_response":
            return Decoded((), answers=live.answered(frame))
        if key == "system/session_state_changed":
            live.changed(frame)
            return _NOTHING
        if key == "command_lifecycle":
            live.followed(frame)
        elif key == "system/init":
            live.initialised(frame)
        return None

    def _request(self, frame: Frame, line: Line) -> Decoded:
        """Decode a request of a live process.

        A request that is no question for an approval gets an immediate answer: without an answer the turn would wait for ever.
        """
        try:
            return Decoded(asked(self._questions, frame))
        except (LookupError, MalformedError, ValueError):
            told, reply = unparsed(line, "unknown_type"), refused(frame)
        return replace(told, replies=(reply,)) if reply is not None and self._live else told

    def _rate_limit(self, frame: Frame) -> list[EventBase]:
        event = rate_limit(frame)
        if event.status == "rejected":
            self.state.resets_at = event.resets_at
        return [event]

    def _denied(self, frame: Frame) -> list[EventBase]:
        events = RARE["system/permission_denied"](frame)
        self.state.denials.see(events)
        return events

    def _informed(self, frame: Frame) -> list[EventBase]:
        outcome = get_dict(frame, "prompt_submit_outcome")
        refused = explain_hook(outcome=get_str(outcome, "kind"), reason=get_str(outcome, "reason"))
        self.state.refused = refused or self.state.refused
        return RARE["system/informational"](frame)

    def _status(self, frame: Frame) -> list[EventBase]:
        """Report a status, and note the outcome of a compaction."""
        if result := get_str(frame, "compact_result"):
            failed = result == "failed"
            self.state.refused = explain_compaction(get_str(frame, "compact_error")) if failed else None
        return RARE["system/status"](frame)

    def _result(self, frame: Frame) -> Decoded:
        self.state.live.has_result = True
        failure = replace(self.state.failure, resets_at=self.state.resets_at)
        terminal = terminal_of(frame, carried_usd=self.state.carried_usd, failure=failure)
        terminal = replace(terminal, denied=tuple(dict.fromkeys((*terminal.denied, *self.state.denials.unlisted))))
        events = [*self.state.messages.finish(), *self._questions.close(), *self.state.denials.rest(frame)]
        if self.state.refused is not None and not terminal.is_error and frame.get("num_turns") == 0:
            cancelled = self.state.refused.kind == "cancelled"
            terminal = replace(terminal, is_error=True, text="", error=self.state.refused, interrupted=cancelled)
        self.state.failure, self.state.resets_at, self.state.refused = _NO_FAILURE, None, None
        self.state.carried_usd = terminal.cost_total_usd
        terminal = terminal if self.state.reported is None else sum_of([self.state.reported, terminal])
        answers = not (terminal.follow_up and _asked_nobody(frame))
        self.state.reported = None if answers else terminal
        return Decoded(events, terminal if answers else None)


_STATEFUL: dict[str, Callable[[ClaudeDecoder, Frame], list[EventBase]]] = {
    "system/task_started": lambda decoder, frame: decoder.state.tasks.runs(frame),
    "system/task_progress": lambda decoder, frame: decoder.state.tasks.runs(frame),
    "system/task_updated": lambda decoder, frame: decoder.state.tasks.updated(frame),
    "system/task_notification": lambda decoder, frame: decoder.state.tasks.notified(frame),
    "system/background_tasks_changed": lambda decoder, frame: decoder.state.tasks.changed(frame),
    "system/informational": ClaudeDecoder._informed,
    "system/permission_denied": ClaudeDecoder._denied,
    "system/status": ClaudeDecoder._status,
    "rate_limit_event": ClaudeDecoder._rate_limit,
    "control_cancel_request": lambda decoder, frame: withdrawn(decoder._questions, frame),
}
"""Handlers of rare frames that change the decoder. A table of bound methods would keep each decoder alive after its turn."""


def _failure_of(frame: Assistant, blocks: Sequence[Block]) -> ClaudeFailure:
    """Return the failure in a synthetic message, for a later result that fails.

    The turn may go on instead: a later message of the model discards the failure.
    """
    return ClaudeFailure(
        text="\n".join(block.text or "" for block in blocks),
        code=frame.error,
        api_error=frame.api_error,
        api_type=frame.api_error_type,
        status=frame.api_error_status,
    )


def _asked_nobody(frame: Frame) -> bool:
    """Tell whether the CLI only noted the end of a background task, without a request to the model.

    claude does so when it resumes a session whose task had not ended: the prompt follows (2.1.329). Of agents that report at
    once all but the last have such a result, and one request for all of them follows (2.1.332).
    """
    return frame.get("num_turns") == 0 and frame.get("is_error") is False


def _key(frame: Frame) -> str:
    kind: str = frame["type"]
    return f"system/{get_str(frame, 'subtype')}" if kind == "system" else kind


def _is_known(key: str, frame: Frame) -> bool:
    """Tell whether the type of an undecoded frame is known. Then the shape of the frame is wrong."""
    if key == "system/None":
        return True
    if key not in _HOT_TYPES:
        return False
    if key != "stream_event":
        return True
    event = get_dict(frame, "event")
    delta = get_dict(event, "delta")
    kind = get_str(event, "type")
    if kind == "content_block_delta":
        return get_str(delta, "type") in _DELTAS or "type" not in delta
    return kind is None or kind in _STREAM_EVENTS
