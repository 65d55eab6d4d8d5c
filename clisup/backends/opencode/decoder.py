"""Decoder of `opencode run --format json`.

Frames were recorded with opencode 1.18.34. A step is one request to the model, and a message of clisup. opencode prints whole texts,
and a tool with its result in one line, when the tool has ended. It has no frame for the end of a turn: a step whose reason is not
`tool-calls` ends the turn, unless opencode goes on by itself, to compact its context for example. Each such step is a terminal
frame, and clisup sums them up.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from clisup.backends.base import Decoded, OpenWork
from clisup.backends.frames import (
    Frame,
    MalformedError,
    get_cost,
    get_dict,
    get_int,
    get_str,
    get_tokens,
    status,
)
from clisup.backends.lines import FrameDecoder
from clisup.backends.opencode.errors import error_of
from clisup.model.events import (
    AssistantMessage,
    Block,
    EventBase,
    MessageStart,
    MessageStop,
    PermissionDenied,
    SessionInit,
    ToolResult,
    ToolUse,
    TurnError,
)
from clisup.model.lines.framing import Line
from clisup.model.lines.long_line import Path
from clisup.model.usage import Usage
from clisup.model.verdict import Terminal

__all__ = ["EVENTS", "OpencodeDecoder"]

EVENTS = (
    "message", "message_start", "message_stop", "permission_denied", "session_init", "status", "tool_result", "tool_use",
    "unparsed",
)  # fmt: skip
_GOES_ON = frozenset({"content-filter", "tool-calls", "unknown"})  # an `error` frame follows the first
_REJECTED = "The user rejected permission"  # nobody can be asked, so opencode ends the turn
_FORBIDDEN = "The user has specified a rule which prevents"  # the model is told, and goes on
_UNANSWERED = TurnError(kind="server", message="opencode ended the turn without an answer", retryable=True)
_EXHAUSTED = TurnError(kind="output_limit", message="the model used up its tokens of output before an answer")
_OUTPUT = (("part", "state", "output"), ("part", "state", "metadata", "output"))


class OpencodeState(Struct):
    """State of a turn.

    `message` is the open step, `texts` are those of the step, and `usage`, `cost`, `denied`, `rejected` and `delegated`
    count since the last terminal frame. `delegated`: a sub-agent has worked, whose tokens opencode does not tell (1.18.34).
    `answered`: the model has said or called something in the turn. `failure` is an error after which opencode may go on.
    """

    session: str | None = None
    message: str | None = None
    texts: list[str] = field(default_factory=list)
    usage: Usage = Usage()
    cost: float = 0.0
    denied: dict[str, None] = field(default_factory=dict)
    rejected: bool = False
    delegated: bool = False
    answered: bool = False
    failure: TurnError | None = None


class OpencodeDecoder(FrameDecoder):
    """Decoder of one opencode process's stdout, from the first line of a turn on.

    opencode ends a turn on signals alone, asks for no approvals in this mode, and reports no background tasks.
    """

    def __init__(self) -> None:
        self.state: OpencodeState = OpencodeState()

    @property
    def open_work(self) -> OpenWork:
        """Tell the last error, after which opencode has not gone on."""
        return OpenWork({}, failure=self.state.failure)

    @staticmethod
    def passes_on(frame: Frame, path: Path) -> bool:
        """Tell for the output of a tool, and for opencode's copy of it. Errors are searched, and texts remembered."""
        return path in _OUTPUT

    def decode_frame(self, frame: Frame, line: Line) -> Decoded | None:
        """Decode a frame. `step_finish` and `error` may end the turn."""
        kind, session = get_str(frame, "type"), get_str(frame, "sessionID")
        if kind is None:
            raise MalformedError("a frame without a type")
        decoded = self._decode(kind, frame)
        if decoded is None or session is None or self.state.session is not None:
            return decoded
        self.state.session = session
        return Decoded((SessionInit(native_session_id=session), *decoded.events), decoded.terminal)

    def _decode(self, kind: str, frame: Frame) -> Decoded | None:
        part = get_dict(frame, "part")
        match kind:
            case "step_start":
                return Decoded(self._start(part))
            case "text":
                return Decoded(self._text(part))
            case "reasoning":
                return Decoded(self._block(part, "thinking"))
            case "tool_use":
                return Decoded(self._tool(part))
            case "step_finish":
                return self._finish(part)
            case "error":
                return self._error(get_dict(frame, "error"))
        return None

    def _start(self, part: Frame) -> Sequence[EventBase]:
        """Open the message of a step. After a broken stream opencode begins the same step again."""
        message = get_str(part, "messageID")
        if message is None:
            raise MalformedError("a part without its message")
        if message == self.state.message:
            return ()
        stopped, self.state.message, self.state.failure = self._stop(), message, None
        self.state.texts.clear()
        return (*stopped, MessageStart(message_id=message))

    def _stop(self, reason: str | None = None, usage: Usage | None = None) -> Sequence[EventBase]:
        message, self.state.message = self.state.message, None
        return () if message is None else (MessageStop(message_id=message, stop_reason=reason, usage=usage),)

    def _text(self, part: Frame) -> Sequence[EventBase]:
        if part.get("synthetic") is True:  # opencode's own prompt after it has compacted the context
            return (status("continued", get_str(part, "text")),)
        events = self._block(part, "text")
        self.state.texts.append(get_str(part, "text") or "")
        self.state.answered = self.state.answered or bool("".join(self.state.texts).strip())
        return events

    def _block(self, part: Frame, kind: str) -> Sequence[EventBase]:
        text = get_str(part, "text")
        if text is None:
            raise MalformedError("a text without its words")
        started = self._start(part)
        block = Block(kind="text" if kind == "text" else "thinking", text=text)
        return (*started, AssistantMessage(message_id=self.state.message, blocks=(block,))) if text else started

    def _tool(self, part: Frame) -> Sequence[EventBase]:
        call, name, state = get_str(part, "callID"), get_str(part, "tool"), get_dict(part, "state")
        if call is None or name is None:
            raise MalformedError("a tool call without its id or name")
        self.state.delegated, self.state.answered = self.state.delegated or name == "task", True
        started, given = self._start(part), get_dict(state, "input")
        failed = get_str(state, "status") == "error" or name == "invalid"
        if name == "invalid":  # opencode's own tool, which tells the model that its call was wrong
            name = get_str(given, "tool") or name
        error = get_str(state, "error")
        content = (error if error is not None else get_str(state, "output")) or ""
        failed = failed or bool(get_int(get_dict(state, "metadata"), "exit"))
        return (
            *started,
            ToolUse(tool_use_id=call, name=name, input=given),
            *self._denial(call, name, error or ""),
            ToolResult(tool_use_id=call, content=content, is_error=failed),
        )

    def _denial(self, call: str, name: str, error: str) -> Sequence[EventBase]:
        self.state.rejected = self.state.rejected or error.startswith(_REJECTED)
        if not error.startswith((_REJECTED, _FORBIDDEN)):
            return ()
        self.state.denied[name] = None
        return (PermissionDenied(tool_use_id=call, name=name, reason=error),)

    def _finish(self, part: Frame) -> Decoded:
        reason = get_str(part, "reason")
        used = _usage(get_dict(part, "tokens"))
        self.state.usage += used
        self.state.cost += get_cost(part, "cost") or 0.0
        text = "".join(self.state.texts)
        stopped = self._stop(reason, None if used.total_tokens is None else used)
        if self.state.rejected:
            tools = ", ".join(self.state.denied)
            error = TurnError(
                kind="permission", message=f"opencode ended the turn, because nobody could allow: {tools}"
            )
            return Decoded(stopped, self._terminal("", error, None))
        if reason in _GOES_ON:
            return Decoded(stopped)
        exhausted = reason == "length" and not text.strip()  # all went into thoughts (opencode #42900)
        missing = _EXHAUSTED if exhausted else None if self.state.answered else _UNANSWERED
        return Decoded(stopped, self._terminal(text, missing, reason))

    def _error(self, error: Frame) -> Decoded:
        """End the turn, unless opencode can go on, or hides the words: the log on stderr then has them."""
        found, stopped = error_of(error), self._stop()
        if found.kind == "context_overflow" or "ref" in get_dict(error, "data"):
            self.state.failure = found
            return Decoded((*stopped, status("error", found.message)))
        return Decoded(stopped, self._terminal("", found, None))

    def _terminal(self, text: str, error: TurnError | None, reason: str | None) -> Terminal:
        usage, cost, denied = self.state.usage, self.state.cost, tuple(self.state.denied)
        if self.state.delegated and usage.source == "reported":
            usage = replace(usage, source="estimated")
        self.state.usage, self.state.cost, self.state.rejected, self.state.delegated = Usage(), 0.0, False, False
        self.state.denied.clear()
        return Terminal(
            is_error=error is not None,
            text=text,
            stop_reason=reason,
            usage=usage,
            cost_usd=cost or None,  # 0 for a model whose prices opencode does not know
            estimated=bool(cost),
            error=error,
            denied=denied,
        )


def _usage(tokens: Frame) -> Usage:
    """Return the tokens of a step. `input` excludes cached tokens, `output` excludes the reasoning."""
    cache = get_dict(tokens, "cache")
    given, output, reasoning = (get_tokens(tokens, name) for name in ("input", "output", "reasoning"))
    if not given and not output:
        return Usage()
    return Usage(
        input_tokens=given,
        output_tokens=(output or 0) + (reasoning or 0),
        cache_creation_input_tokens=get_tokens(cache, "write"),
        cache_read_input_tokens=get_tokens(cache, "read"),
        reasoning_tokens=reasoning,
        source="reported",
    )
