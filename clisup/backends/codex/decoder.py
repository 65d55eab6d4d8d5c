"""Dialogue with `codex app-server` on stdio: lines to events, and replies (0.169.0).

The lines are JSON without a version field: initialize, then thread/start or thread/resume, then turn/start. After
turn/completed the daemon closes the stdin of a process for one turn, and the process ends. A live process gets the next
turn/start. The replies are a function of the lines and the request.

The decoder asks for raw response items (an experimental switch). A call that codex refuses, cannot read or takes for denied by
its sandbox has no item: only the raw call and its raw output show the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from clisup.backends.approvals import ApprovalAnswer, Questions
from clisup.backends.base import END_OF_INPUT, Carried, Decoded, LaunchRequest, OpenWork, Terminal
from clisup.backends.codex import items
from clisup.backends.codex.approvals import ask
from clisup.backends.codex.calls import Calls
from clisup.backends.codex.errors import CodexFailure, explain_refusal, explain_report, read_report, retry_of
from clisup.backends.codex.items import CodexMessages
from clisup.backends.codex.notices import NOTICES, SILENT, RateLimits, Tokens
from clisup.backends.codex.protocol import (
    ASK_PROVIDERS,
    DEFAULT_PROVIDER,
    PROVIDERS,
    THREAD,
    answer_to,
    interrupt,
    interrupts,
    open_thread,
    start_turn,
    steer,
    steers,
    turn_request,
)
from clisup.backends.frames import Frame, MalformedError, get_dict, get_str, get_strs, status
from clisup.backends.lines import NOTHING, FrameDecoder
from clisup.backends.long_texts import codex_passes_on
from clisup.model.events import BackendStatus, EventBase, PermissionDenied, SessionInit, TurnError, UsageReport
from clisup.model.lines.framing import Line
from clisup.model.prompts.options import object_in
from clisup.model.usage import Usage
from clisup.policy.watchdog import UNKNOWN_PHASE

__all__ = ["CodexDecoder", "CodexTurn"]

_LATE_CHARS = 2000
_ENDED_TURNS = 20
_OPEN_CALLS = 100
_MODES = {"readOnly": "read-only", "workspaceWrite": "workspace-write", "dangerFullAccess": "danger-full-access"}


UNANSWERED = TurnError(kind="server", message="codex ended the turn without an answer", retryable=True)


class CodexTurnState(Struct, kw_only=True):
    """State of one turn that `codex app-server` and `codex exec` share: its messages, its calls and its end.

    `worked` tells whether the model has begun an item.
    """

    messages: CodexMessages = field(default_factory=CodexMessages)
    calls: Calls = field(default_factory=Calls)
    denied: dict[str, None] = field(default_factory=dict)
    worked: bool = False
    ended: bool = False


_FLAGS = ("waitingOnApproval", "waitingOnUserInput")


class CodexKept(Struct, frozen=True):
    """Facts that a live process has told before: its thread, the ids of the turns that ended, and the names of calls without a result."""

    thread: str | None = None
    ended: tuple[str, ...] = ()
    calls: dict[str, str] = field(default_factory=dict)


class CodexState(CodexTurnState, kw_only=True):
    """State of one turn of app-server.

    `taken` are the ids of steered prompts. `uses` is that of `Questions`.
    `own`: codex has begun the turn by itself. `idle`: codex has told that the
    thread rests, which its report of the turn's end follows. `earlier` is about earlier turns.
    """

    thread: str | None
    tokens: Tokens
    turn: str | None = None
    own: bool = False
    idle: bool = False
    unknown: str = ""
    earlier: CodexKept = field(default_factory=CodexKept)
    provider_asked: bool = False
    limits: RateLimits = field(default_factory=RateLimits)
    usage: Usage = Usage()
    failure: CodexFailure | None = None
    taken: list[str] = field(default_factory=list)
    uses: dict[str, int] = field(default_factory=dict)


class CodexTurn(FrameDecoder):
    """Reader of one turn, common to `codex app-server` and `codex exec`."""

    state: CodexTurnState

    def __init__(self, request: LaunchRequest) -> None:
        self._request = request

    def decode(self, line: Line) -> Decoded:
        """Decode one line. The terminal frame names the tools that codex has refused."""
        decoded = super().decode(line)
        for event in decoded.events:
            if isinstance(event, PermissionDenied):
                self.state.denied[event.name] = None
        return decoded

    def _item(self, item: Frame, *, completed: bool) -> list[EventBase] | None:
        """Return the events of an item, or None for an unknown kind."""
        kind = items.kind_of(item)
        self.state.worked = self.state.worked or items.is_tool(kind) or kind in items.MESSAGES
        if items.is_tool(kind):
            return self.state.calls.completed(item) if completed else self.state.calls.started(item)
        if kind in items.MESSAGES:
            return self.state.messages.completed(item) if completed else []
        if kind == "context_compaction" and not completed:
            return [BackendStatus(status="compacting")]  # codex is then silent until the end of the compaction
        events = items.other_events(item)
        return events if completed or events is None or kind == "todo_list" else []

    @property
    def _worked(self) -> bool:
        """Tell whether the model has done anything. A compaction asks for no answer."""
        return bool(self.state.worked or self.state.calls.names or self._request.command_prompt)

    def _terminal(
        self, error: TurnError | None, usage: Usage, total: Usage | None, *, interrupted: bool = False
    ) -> Terminal:
        """Return the end of the turn.

        A success for which the model wrote no token hides a failure (codex #25619). A refusal has tokens, and no words.
        """
        self.state.ended = True
        if not (error or self._worked or usage.output_tokens):
            error = UNANSWERED
        text = self.state.messages.last_text
        return Terminal(
            is_error=error is not None,
            text="" if error else text,
            usage=usage,
            usage_total=total,
            error=error,
            interrupted=interrupted,
            denied=tuple(self.state.denied),
            structured=object_in(text) if self._request.output_schema is not None and not error else None,
        )


class CodexDecoder(CodexTurn):
    """Decoder of one turn of one app-server process, from its first line on."""

    passes_on = staticmethod(codex_passes_on)
    state: CodexState

    def __init__(self, carried: Carried, request: LaunchRequest) -> None:
        super().__init__(request)
        self._questions = Questions(request.run)
        earlier: CodexKept = carried.kept or CodexKept()
        thread = request.native_session_id if request.later else earlier.thread
        tokens = Tokens.of(carried.usage, resumed=request.resume or request.later)
        self.restore(CodexState(thread=thread, tokens=tokens, earlier=earlier))

    def restore(self, state: Any) -> None:
        """Go on from this state."""
        self.state = state
        self._questions.uses = state.uses

    @property
    def kept(self) -> CodexKept:
        """Ends and open calls of the turns until now."""
        calls = {call: name for call, name in self.state.calls.names.items() if call not in self.state.calls.answered}
        opened = {**self.state.earlier.calls, **calls}
        calls_left = dict([*opened.items()][-_OPEN_CALLS:])
        return CodexKept(self.state.thread, self.state.earlier.ended, calls_left)

    @property
    def open_work(self) -> OpenWork:
        """The end of the turn, if codex has told it by the state of the thread alone, and an error that it does not repeat."""
        ended, failure = self.state.idle and not self.state.ended, self.state.failure
        return OpenWork({}, ended=ended, failure=None if failure is None else explain_report(failure))

    def settle(self) -> Decoded | None:
        """Return the end of a turn whose thread rests, although codex has not reported the end (codex #28495, #35810)."""
        if not self.state.idle or self.state.ended:
            return None
        return self._completed({"id": self.state.turn, "status": "failed" if self.state.failure else "completed"})

    def interrupt(self) -> str | None:
        """Return the requests that end the running turn and its commands, once codex has named the turn.

        The commands of a process for one turn end with the process.
        """
        commands = self.state.calls.processes if self._request.live else ()
        return (
            interrupt(self.state.thread, self.state.turn, commands) if self.state.thread and self.state.turn else None
        )

    def steer(self, later: str, request: LaunchRequest) -> str | None:
        """Return turn/steer for the running turn, once codex has named the turn."""
        return steer(self.state.thread, self.state.turn, request) if self.state.thread and self.state.turn else None

    def answer(self, approval_id: str, answer: ApprovalAnswer) -> str | None:
        """Return the answer to an open question, in the form that codex wants for its kind."""
        return self._questions.answer(approval_id, answer)

    def decode_frame(self, frame: Frame, line: Line) -> Decoded | None:
        """Decode a notification, a request of codex, or an answer."""
        method = frame.get("method")
        if isinstance(method, str):
            return self._request_of(method, frame) if "id" in frame else self._notification(method, frame)
        if "id" in frame and ("result" in frame or "error" in frame):
            return self._answer(frame)
        raise MalformedError("neither a method nor an answer")

    # Answers to our requests

    def _answer(self, frame: Frame) -> Decoded:
        asked = frame["id"]
        if steers(asked):
            return NOTHING  # the item of the prompt shows that the turn has taken it
        if "error" in frame:
            return NOTHING if interrupts(asked) else self._refused(get_dict(frame, "error"), asked)
        result = get_dict(frame, "result")
        if asked == PROVIDERS:
            provider = get_str(result, "defaultProviderId") or DEFAULT_PROVIDER
            return Decoded((), replies=(open_thread(self._request, provider),))
        if asked == THREAD:
            return self._opened(result)
        if asked == turn_request(self._request):
            return self._began(result)
        return NOTHING if interrupts(asked) else Decoded((), replies=(open_thread(self._request),))

    def _refused(self, error: Frame, asked: Any) -> Decoded:
        told = get_dict(error, "data")
        nameless = told.get("type") == "modelProviderNotConfigured" and told.get("modelProvider") == ""
        if asked == THREAD and nameless and not self.state.provider_asked:
            self.state.provider_asked = True
            return Decoded((), replies=(ASK_PROVIDERS,))  # a thread with a written history
        message = get_str(error, "message") or "codex refused without a message"
        return self._end(explain_refusal(message))

    def _opened(self, result: Frame) -> Decoded:
        thread = get_dict(result, "thread")
        self.state.thread = get_str(thread, "id")
        if self.state.thread is None:
            raise MalformedError("a thread without an id")
        init = self._init(result, get_dict(result, "sandbox"), get_str(thread, "cliVersion"))
        return Decoded((init,), replies=(start_turn(self.state.thread, self._request),))

    def _init(self, settings: Frame, sandbox: Frame, version: str | None = None) -> SessionInit:
        """Return the settings of the thread, and note the model."""
        self.state.messages.model = get_str(settings, "model")
        return SessionInit(
            native_session_id=self.state.thread,
            model=self.state.messages.model,
            cwd=get_str(settings, "cwd"),
            permission_mode=_MODES.get(get_str(sandbox, "type") or ""),
            backend_version=version,
        )

    # Requests of the server. A request that no client can answer gets an immediate answer, or the turn would wait for ever

    def _request_of(self, method: str, frame: Frame) -> Decoded:
        asked = frame["id"]
        if not isinstance(asked, str | int):
            raise MalformedError("a request with an odd id")
        params = get_dict(frame, "params")
        question = None if self.state.ended else ask(self._questions, self.state.calls, method, asked, params)
        if question is not None:
            return Decoded((question,))
        call = get_str(params, "itemId")
        name = self.state.calls.name_of(call) or method
        reason = get_str(params, "reason") or get_str(params, "message")
        denied = PermissionDenied(tool_use_id=call, name=name, reason=(reason or "nobody is there to allow it")[:2000])
        return Decoded((denied,), replies=(answer_to(method, asked),))

    # Notifications

    def _notification(self, method: str, frame: Frame) -> Decoded | None:
        params = get_dict(frame, "params")
        if method != "thread/tokenUsage/updated" and _turn_of(params) in self.state.earlier.ended:
            return Decoded(self._late(method, params))
        if method == "turn/started" and not self._is_foreign(params):
            return self._started(params)
        if method == "thread/status/changed" and not self._is_foreign(params):
            # codex 0.171.0 tells that it is idle just before it tells the turn's end.
            told = get_dict(params, "status")
            self.state.idle = self.state.turn is not None and get_str(told, "type") in _AT_REST
            unknown = [flag for flag in get_strs(told, "activeFlags") if flag not in _FLAGS]
            return self._in_state(unknown[0] if unknown else "")
        if method in SILENT:
            return NOTHING
        if method == "serverRequest/resolved":  # the request is answered or withdrawn
            asked = params.get("requestId")
            return Decoded(self._questions.withdraw(asked)) if isinstance(asked, str | int) else NOTHING
        if method == "thread/tokenUsage/updated":
            return Decoded(self._used(params))
        if self._is_foreign(params):
            return NOTHING  # a subagent's thread: the items of this thread report its work
        if method == "turn/completed":
            return self._completed(get_dict(params, "turn"))
        if (handle := _HANDLERS.get(method)) is not None:
            return Decoded(handle(self, params))
        notice = NOTICES.get(method)
        return None if notice is None else Decoded(notice(params))

    def _in_state(self, unknown: str) -> Decoded:
        """Report a state that clisup does not know, and its end."""
        before, self.state.unknown = self.state.unknown, unknown[:200]
        if not unknown:
            return Decoded([status("known_phase")]) if before else NOTHING
        return Decoded([status(UNKNOWN_PHASE, unknown[:200])])

    def _late(self, method: str, params: Frame) -> list[EventBase]:
        """Report what codex tells of a turn that has ended: a command may outlive its turn, and codex may repeat an end."""
        item = get_dict(params, "item")
        if method != "item/completed":
            return []
        kind, call = items.kind_of(item), items.item_id(item)
        if items.is_tool(kind) and (name := self.state.earlier.calls.pop(call, None)) is not None:
            return items.tool_result(item, name)
        text = get_str(item, "text") if kind in items.MESSAGES else None
        return [status("late_update", text[:_LATE_CHARS])] if text else []

    def _is_foreign(self, params: Frame) -> bool:
        thread = get_str(params, "threadId")
        return thread is not None and thread != self.state.thread

    def _started(self, params: Frame) -> Decoded:
        """Note the id of the turn. A process at rest begins turns of its own, for a goal of the model's."""
        is_own = self.state.turn is None and self.state.earlier.thread is not None and not self._request.later
        self._began(params)
        if not is_own:
            return NOTHING
        self.state.own = True
        return Decoded((SessionInit(native_session_id=self.state.thread, model=self.state.messages.model),))

    def _began(self, result: Frame) -> Decoded:
        """Note the id of the turn. The answer to a prompt has it, and the notification alone that of a compaction."""
        self.state.turn = get_str(get_dict(result, "turn"), "id") or self.state.turn
        return NOTHING

    def _changed(self, params: Frame) -> list[EventBase]:
        """Report the model of a later turn, if it is another one: `thread/settings/updated` comes with a change only."""
        if not self._request.later or self.state.ended:
            return []
        changed = get_dict(params, "threadSettings")
        return [self._init(changed, get_dict(changed, "sandboxPolicy"))]

    def _item_started(self, params: Frame) -> list[EventBase]:
        """Begin an item. With a steered prompt, codex gives the message up that the model was writing."""
        item, self.state.failure = get_dict(params, "item"), None
        self.state.worked = self.state.worked or items.kind_of(item) not in ("user_message", "context_compaction")
        if items.kind_of(item) == "user_message" and (prompt := get_str(item, "clientId")) is not None:
            self.state.taken.append(prompt)
            return self.state.messages.retract("a steered prompt replaced it")
        return self._item(item, completed=False) or []

    def _item_completed(self, params: Frame) -> list[EventBase]:
        events = self._item(get_dict(params, "item"), completed=True)
        if events is None:
            raise MalformedError("an item of an unknown type")
        return events

    def _used(self, params: Frame) -> list[EventBase]:
        """Report the tokens of one model call. codex may repeat tokens under the id of the previous turn: they do not count."""
        is_foreign = self._is_foreign(params)
        used, context = self.state.tokens.see(params, main=not is_foreign, worked=self.state.worked)
        if not is_foreign and (self.state.turn is None or get_str(params, "turnId") != self.state.turn):
            return []
        context = None if is_foreign else context
        if used is None:
            return [] if context is None else [UsageReport(usage=Usage(), context_tokens=context)]
        self.state.usage += used
        return [UsageReport(usage=used, context_tokens=context)]

    def _error(self, params: Frame) -> list[EventBase]:
        error = get_dict(params, "error")
        report = read_report(error)
        if params.get("willRetry") is not True:
            self.state.failure = report
            return []
        retry = retry_of(get_str(error, "message") or "", report) or retry_of("Reconnecting...", report)
        return [*self.state.messages.retract("the stream was cut"), *([retry] if retry else [])]

    def _completed(self, turn: Frame) -> Decoded:
        status = get_str(turn, "status")
        if status == "completed":
            return self._end(None)
        if status == "interrupted":
            message = TurnError(kind="cancelled", message="the turn was interrupted")
            return self._end(message, self.state.messages.keep(), interrupted=True)
        if status != "failed":
            raise MalformedError(f"a turn that ended as {status}")
        error = turn.get("error")
        report = read_report(error) if isinstance(error, dict) else self.state.failure
        return self._end(explain_report(report or CodexFailure(), self.state.limits.resets_at))

    def _end(
        self, error: TurnError | None, events: list[EventBase] | None = None, *, interrupted: bool = False
    ) -> Decoded:
        if self.state.ended:
            return NOTHING
        if self.state.turn is not None:
            ended = (*self.state.earlier.ended, self.state.turn)[-_ENDED_TURNS:]
            self.state.earlier = replace(self.state.earlier, ended=ended)
        last = [*(events or []), *self.state.messages.retract("no message confirmed it"), *self._questions.close()]
        terminal = self._terminal(error, self.state.usage, self.state.tokens.total, interrupted=interrupted)
        if not self._request.live:
            return Decoded(last, terminal, (END_OF_INPUT,))
        own = (self._request.prompt_id,) if self._request.prompt_id and not self.state.own else ()
        return Decoded(last, replace(terminal, prompts=(*own, *self.state.taken)))


_AT_REST = ("idle", "systemError")
"""States of a thread without a running turn. In the records (0.169.0, 0.171.0) they come just before `turn/completed`."""


def _turn_of(params: Frame) -> str | None:
    """Return the id of the turn that a notification is about."""
    return get_str(params, "turnId") or get_str(get_dict(params, "turn"), "id")


_HANDLERS: dict[str, Callable[[CodexDecoder, Frame], list[EventBase]]] = {
    "item/started": CodexDecoder._item_started,
    "item/completed": CodexDecoder._item_completed,
    "item/agentMessage/delta": lambda decoder, params: decoder.state.messages.text_delta(params),
    "item/plan/delta": lambda decoder, params: decoder.state.messages.text_delta(params),
    "item/reasoning/summaryTextDelta": lambda decoder, params: decoder.state.messages.thinking_delta(params),
    "item/reasoning/textDelta": lambda decoder, params: decoder.state.messages.thinking_delta(params),
    "rawResponseItem/completed": lambda decoder, params: decoder.state.calls.see(get_dict(params, "item")),
    "thread/settings/updated": CodexDecoder._changed,
    "account/rateLimits/updated": lambda decoder, params: decoder.state.limits.see(params),
    "error": CodexDecoder._error,
}
