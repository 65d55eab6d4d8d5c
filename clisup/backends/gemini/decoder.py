"""Decoder of gemini's stdout (`--output-format stream-json`).

Frames were recorded with gemini 0.61.0. gemini prints deltas only: no whole message, no thinking, no sign of a retry. The decoder
builds a message from the first delta on. A tool call confirms the text before it. A tool's result or the turn's end ends the
message.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from clisup.backends.base import Decoded, OpenWork
from clisup.backends.frames import Count, Frame, MalformedError, get_dict, get_str, join_halves
from clisup.backends.gemini.result import explain_refusal, is_denial, terminal_of
from clisup.backends.lines import FrameDecoder
from clisup.backends.long_texts import gemini_passes_on
from clisup.model.events import (
    AssistantMessage,
    BackendStatus,
    Block,
    ContentDelta,
    EventBase,
    MessageStart,
    MessageStop,
    PermissionDenied,
    SessionInit,
    ToolResult,
    ToolUse,
)
from clisup.model.lines.framing import Line

__all__ = ["GeminiDecoder"]


class _AnswerText(Struct):
    """Message that is being streamed: its text since the last tool call, and the index of the next block."""

    id: str
    index: Count = 0
    pieces: list[str] = field(default_factory=list)

    def text(self) -> str:
        return "".join(self.pieces)


class GeminiState(Struct):
    """State of a turn.

    `answer` is the model's text since the last tool call, `complaint` an error after which the model has not gone on, and
    `tools` has the names of the called tools, by call.
    """

    message: _AnswerText | None = None
    answer: list[str] = field(default_factory=list)
    complaint: str | None = None
    denied: dict[str, None] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)


class GeminiDecoder(FrameDecoder):
    """Decoder of one gemini process's stdout, from the first line of a turn on.

    gemini ends a turn on signals alone, asks for no approvals in this mode, and reports no background tasks.
    """

    passes_on = staticmethod(gemini_passes_on)

    def __init__(self) -> None:
        self.state: GeminiState = GeminiState()

    @property
    def open_work(self) -> OpenWork:
        """Tell the last error, after which the model has not gone on."""
        complaint = self.state.complaint
        return OpenWork({}, failure=None if complaint is None else explain_refusal(complaint, None))

    def decode_frame(self, frame: Frame, line: Line) -> Decoded | None:
        """Decode a frame. A `result` ends the turn."""
        match frame.get("type"):
            case "message":
                return Decoded(self._text(frame, line))
            case "tool_use":
                return Decoded(self._tool_use(frame, line))
            case "tool_result":
                return Decoded(self._tool_result(frame))
            case "init":
                return Decoded((_init(frame),))
            case "error":
                return Decoded(self._error(frame))
            case "result":
                events = self._stop()
                return Decoded(
                    events, terminal_of(frame, "".join(self.state.answer), self.state.complaint, self.state.denied)
                )
            case str():
                return None
        raise MalformedError("a frame without a type")

    def _text(self, frame: Frame, line: Line) -> Sequence[EventBase]:
        role, text = get_str(frame, "role"), get_str(frame, "content")
        if role == "user":
            return ()  # an echo of the prompt
        if role != "assistant" or text is None:
            raise MalformedError("a message without its role or text")
        if not text:
            return ()
        text = join_halves(text)[0]
        events, message = self._start(line)
        message.pieces.append(text)
        self.state.answer.append(text)
        return (*events, ContentDelta(kind="text", text=text, index=message.index, message_id=message.id))

    def _start(self, line: Line) -> tuple[Sequence[EventBase], _AnswerText]:
        """Return the open message. gemini has no message ids, so the place of the first line names a message."""
        ended: Sequence[EventBase] = ()
        if self.state.complaint is not None:  # a hook asked for another answer
            ended, self.state.complaint = self._stop(), None
            self.state.answer.clear()
        if self.state.message is not None:
            return (), self.state.message
        self.state.message = _AnswerText(f"line-{line.start}")
        return (*ended, MessageStart(message_id=self.state.message.id)), self.state.message

    def _tool_use(self, frame: Frame, line: Line) -> Sequence[EventBase]:
        call, name = get_str(frame, "tool_id"), get_str(frame, "tool_name")
        if call is None or name is None:
            raise MalformedError("a tool call without its id or name")
        arguments = get_dict(frame, "parameters")
        events, message = self._start(line)
        self.state.tools[call] = name
        self.state.answer.clear()  # a text before a call is no final answer
        block = Block(kind="tool_use", tool_use_id=call, name=name, input=arguments)
        confirmed = self._confirm(message)
        message.index += 1
        return (
            *events,
            *confirmed,
            AssistantMessage(message_id=message.id, blocks=(block,)),
            ToolUse(tool_use_id=call, name=name, input=arguments),
        )

    def _tool_result(self, frame: Frame) -> Sequence[EventBase]:
        call, status = get_str(frame, "tool_id"), get_str(frame, "status")
        if call is None or status is None:
            raise MalformedError("a tool result without its call or status")
        error = get_dict(frame, "error")
        message = get_str(error, "message")
        content = get_str(frame, "output") or message or ""
        events: list[EventBase] = list(self._stop())
        name = self.state.tools.get(call)
        if name is not None and is_denial(get_str(error, "type"), name):
            self.state.denied[name] = None
            events.append(PermissionDenied(tool_use_id=call, name=name, reason=message))
        events.append(ToolResult(tool_use_id=call, content=content, is_error=status == "error"))
        return events

    def _error(self, frame: Frame) -> Sequence[EventBase]:
        severity, message = get_str(frame, "severity"), get_str(frame, "message")
        if message is None:
            raise MalformedError("an error without its message")
        self.state.complaint = message
        return (BackendStatus(status=severity or "error", detail=message),)

    def _confirm(self, message: _AnswerText) -> Sequence[EventBase]:
        """Return the whole text since the last tool call."""
        text = message.text()
        if not text:
            return ()
        message.pieces.clear()
        message.index += 1
        block = Block(kind="text", text=text)
        return (AssistantMessage(message_id=message.id, blocks=(block,)),)

    def _stop(self) -> Sequence[EventBase]:
        message, self.state.message = self.state.message, None
        if message is None:
            return ()
        return (*self._confirm(message), MessageStop(message_id=message.id))


def _init(frame: Frame) -> SessionInit:
    return SessionInit(native_session_id=get_str(frame, "session_id"), model=get_str(frame, "model"))
