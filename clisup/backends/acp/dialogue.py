"""Client side of the Agent Client Protocol, version 1: one process, one session, one prompt or many.

The start sends `initialize`. Each answer decides the next request: authenticate, session/new (or resume, or load), the model,
the mode, session/prompt, a round trip behind the answer's end, and the end of input. A live process gets the next session/prompt
instead, and may get another model or mode at any time. `requests` has the requests of the agent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from clisup.backends.acp.dialect import AcpDialect
from clisup.backends.acp.requests import AgentRequests
from clisup.backends.acp.rpc_lines import prompt_params, prompt_request, read_frame, request_text
from clisup.backends.acp.settings import Offers, Setting
from clisup.backends.acp.updates import SAID, Updates, UpdatesState, late_words
from clisup.backends.approvals import ApprovalAnswer
from clisup.backends.base import (
    END_OF_INPUT,
    Carried,
    Control,
    ControlAnswer,
    Decoded,
    Decoder,
    LaunchRequest,
    OpenWork,
    Terminal,
)
from clisup.backends.errors import NO_ANSWER
from clisup.backends.frames import (
    Count,
    Frame,
    MalformedError,
    first_str,
    get_dict,
    get_dicts,
    get_int,
    get_str,
    too_deep,
)
from clisup.backends.lines import decode_broken, unparsed
from clisup.backends.long_texts import acp_passes_on
from clisup.errors import UsageError
from clisup.model.events import BackendStatus, EventBase, SessionInit, TurnError, TurnErrorKind
from clisup.model.lines.framing import Line
from clisup.model.prompts.content import Content
from clisup.model.usage import Usage

__all__ = ["PROTOCOL_VERSION", "AcpDecoder"]

PROTOCOL_VERSION = 1
QUIET = "_clisup/quiet"  # an unknown method: its refusal shows that all earlier output has arrived
_AUTH_REQUIRED = -32000
_CONTROL = "control-"  # begins the id of a change of a setting
_OTHERS = 32
"""Other sessions that are reported in a turn."""
_END = "end-"  # begins the id of a round trip behind the end of an answer
_END_ROUNDS = 20
"""Round trips behind the end of an answer, if words come during each of them."""
_METHODS = 10  # login methods in a message
_NOTHING = Decoded(())
_UNASKED = TurnError(kind="server", message="the agent cancelled the turn, and nobody asked for that", retryable=True)


class _Opened(Struct, frozen=True):
    """Facts of an opened session that later turns of the process need. `session` is its id in requests."""

    session: str
    offers: Offers


class AcpState(Struct, kw_only=True):
    """State of a turn. `uses` is that of `Questions`.

    `said` is the id of the last request, which an answer must have, and `asked` its method, None after the end. `loaded`:
    session/load replays old updates.
    """

    said: Count | str
    asked: str | None
    session: str | None
    opened: _Opened | None
    version: str | None = None
    agent: str | None = None
    can: Frame = field(default_factory=dict)
    methods: list[Frame] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    model: str | None = None
    mode: str | None = None
    loaded: bool = False
    unsettled: bool = False
    others: list[str] = field(default_factory=list)
    named: bool = False
    """An update of the turn has named this session."""
    end: Frame | None = None
    """Result of session/prompt, while the rest of the answer is read."""
    rounds: Count = 0
    updates: UpdatesState = field(default_factory=UpdatesState)
    uses: dict[str, int] = field(default_factory=dict)


class AcpDecoder(Decoder):
    """Decoder of one turn with an agent. `mcp_servers` is ACP's own list, `prompt` the texts and images to send."""

    passes_on = staticmethod(acp_passes_on)
    state: AcpState

    def __init__(
        self,
        dialect: AcpDialect,
        carried: Carried,
        request: LaunchRequest,
        mcp_servers: list[Frame],
        prompt: Content,
    ) -> None:
        self._dialect = dialect
        self._carried = carried
        self._request = request
        self._mcp_servers = mcp_servers
        self._prompt = prompt
        self._updates = Updates(dialect)
        self._requests = AgentRequests(dialect, self._updates, request.run)
        said, asked = (prompt_request(request), "session/prompt") if request.later else (0, "initialize")
        session = request.native_session_id if request.resume or request.later else None
        self.restore(AcpState(said=said, asked=asked, session=session, opened=carried.kept))

    def restore(self, state: Any) -> None:
        """Go on from this state."""
        self.state = state
        self._updates.state = state.updates
        self._requests.questions.uses = state.uses
        agent = self._carried.agent if self._request.later else state.agent
        self._updates.habits = self._dialect.habits(agent)

    @property
    def _wire(self) -> str | None:
        """Session id of requests."""
        return self._dialect.wire_id(self.state.session, resumed=self._request.resume) if self.state.session else None

    def interrupt(self) -> str | None:
        """Return session/cancel during the prompt. Before the prompt, only a signal ends the turn."""
        if not self._is_answering:
            return None
        return request_text(None, "session/cancel", {"sessionId": self._wire})

    @property
    def open_work(self) -> OpenWork:
        """Calls of which goose and others tell the end alone, and the request behind a slow start."""
        opens = self.state.asked not in (None, "initialize") and not self._is_answering
        return OpenWork(
            {}, self._updates.unannounced, self.state.asked if opens else None, ended=self.state.end is not None
        )

    @property
    def _is_answering(self) -> bool:
        """Tell whether updates of the agent belong to the answer."""
        return self.state.asked == "session/prompt" or self.state.end is not None

    @property
    def kept(self) -> _Opened | None:
        """Session and offers of the agent, for a later change of a setting."""
        return self.state.opened

    def control(self, request_id: str, control: Control, value: str | None) -> str | None:
        """Return the request that changes the model or the mode. Raises `UsageError` for a value that the agent lacks."""
        opened = self.state.opened
        if opened is None or value is None or control not in ("model", "permission_mode"):
            return None
        setting = opened.offers.change(control, value)
        if setting.error is not None:
            raise UsageError(setting.error.message, kind="invalid_params", param=control)
        return request_text(_CONTROL + request_id, setting.method, {"sessionId": opened.session, **setting.params})

    def answer(self, approval_id: str, answer: ApprovalAnswer) -> str | None:
        """Return the answer to an open request of the agent."""
        return self._requests.answer(approval_id, answer)

    def decode(self, line: Line) -> Decoded:
        """Decode one line: its events, its replies, and the end of the turn. The method never raises."""
        if line.oversize:
            return unparsed(line, "oversize")
        if not line.data.strip():
            return _NOTHING
        frame = read_frame(line)
        if frame is None:
            return decode_broken(line, self.decode)
        try:
            return self._frame(frame, line)
        except LookupError:
            return unparsed(line, "unknown_type")
        except (MalformedError, ValueError):
            return unparsed(line, "malformed")

    def _frame(self, frame: Frame, line: Line) -> Decoded:
        method = get_str(frame, "method")
        if method is None:
            return self._answer(frame)
        if "id" in frame:
            if self.state.asked is None:  # stdin is closed
                return unparsed(line, "unknown_type")
            return self._requests.take(frame, method, line)
        if too_deep(line.data, frame):
            raise MalformedError("nested too deep")
        if method == "$/cancel_request" and self.state.asked is not None:
            return self._requests.withdraw(get_dict(frame, "params"))
        if method != "session/update":  # an extension of the agent, which needs no answer
            return Decoded((BackendStatus(status="notification", detail=method[:200]),))
        return Decoded(self._update(get_dict(frame, "params")))

    def _update(self, params: Frame) -> Sequence[EventBase]:
        update = get_dict(params, "update")
        name = get_str(update, "sessionUpdate")
        if (other := get_str(params, "sessionId")) is not None and self._is_another(other):
            return self._of_another(other)
        if self.state.asked in (None, "initialize") and name in SAID:
            return (late_words(update),)
        if not self._is_answering and name in SAID:
            # Before the prompt, an agent replays old updates after session/load, even after its answer (gemini 0.61.0), or
            # reports a new mode as a message (gemini). None of them answers the prompt.
            self.state.unsettled = self.state.loaded
            return ()
        self.state.unsettled = self.state.unsettled or (self.state.end is not None and name in SAID)
        events = self._updates.take(update)
        if name == "current_mode_update" and not self._is_answering:
            self.state.mode = get_str(update, "currentModeId") or self.state.mode
            return ()
        return events

    def _is_another(self, session: str) -> bool:
        """Tell whether an update belongs to another session, as that of a sub-agent does (opencode PR 32406).

        An agent that names its session wrongly names it so from the first update of the turn on.
        """
        own = self.state.session is None or session in (self.state.session, self._wire)
        self.state.named = self.state.named or own
        return self.state.named and not own

    def _of_another(self, session: str) -> Sequence[EventBase]:
        """Report the first update of another session. Its words are no part of the turn."""
        if session in self.state.others or len(self.state.others) >= _OTHERS:
            return ()
        self.state.others.append(session)
        return (BackendStatus(status="other_session", detail=session[:200]),)

    # Answers of the agent

    def _answer(self, frame: Frame) -> Decoded:
        number = frame.get("id")
        if isinstance(number, str) and number.startswith(_CONTROL):
            error = get_dict(frame, "error")
            refusal = (get_str(error, "message") or "no reason given") if error else None
            return Decoded(
                (), answers=(ControlAnswer(number.removeprefix(_CONTROL), get_dict(frame, "result"), refusal),)
            )
        if isinstance(number, str) and number.startswith(_END) and number != self.state.said:
            return _NOTHING  # to a round trip that the daemon no longer waits for
        if isinstance(number, bool) or number != self.state.said or self.state.asked is None:
            raise MalformedError("an answer that nobody waits for")
        if "result" not in frame and not isinstance(frame.get("error"), dict):
            raise MalformedError("neither result nor error")
        if "error" in frame and frame["error"] is not None:
            if self.state.asked == QUIET:
                return self._set({})
            return self._end(self._refused(get_dict(frame, "error"), self.state.asked))
        return _THEN.get(self.state.asked, AcpDecoder._set)(self, get_dict(frame, "result"))

    def _refused(self, error: Frame, method: str) -> TurnError:
        """Return the agent's error. If the agent wants a login, the message lists its methods."""
        failure = self._dialect.failure(error, method)
        if get_int(error, "code") != _AUTH_REQUIRED or not self.state.methods:
            return failure
        return replace(
            failure, message=f"{failure.message}, or set the backend's auth_method: {self._listed_methods()}"
        )

    def _listed_methods(self) -> str:
        """Return the login methods of the agent for a message, each with its description."""
        listed = [
            f"{get_str(method, 'id')} ({(first_str(method, 'description', 'name') or 'not described')[:200]})"
            for method in self.state.methods[:_METHODS]
        ]
        return ", ".join(listed) or "none"

    def _initialized(self, result: Frame) -> Decoded:
        version = result.get("protocolVersion")
        if get_int(result, "protocolVersion") != PROTOCOL_VERSION:
            return self._fail(
                "protocol",
                f"cannot talk to the agent, because it speaks version {json.dumps(version)[:40]} of the Agent Client Protocol and clisup "
                f"speaks {PROTOCOL_VERSION}; take a version of the agent that speaks it",
            )
        agent = get_dict(result, "agentInfo")
        self.state.version, self.state.agent = get_str(agent, "version"), get_str(agent, "name")
        self._updates.habits = self._dialect.habits(self.state.agent)
        self.state.can = can = get_dict(result, "agentCapabilities")
        self.state.methods = get_dicts(result, "authMethods")
        for server in self._mcp_servers:
            transport = server.get("type")
            if transport and get_dict(can, "mcpCapabilities").get(transport) is not True:
                return self._fail(
                    "invalid_request",
                    f"cannot give the MCP server {server['name']!r} to the agent, because it takes none over {transport}; "
                    "take a server that is started as a command",
                )
        if self._request.images and get_dict(can, "promptCapabilities").get("image") is not True:
            return self._fail(
                "invalid_request",
                "cannot send the agent an image, because it takes none in its prompts; send text alone",
            )
        if self._request.system_prompt and not isinstance(_of_sessions(can).get("systemPrompt"), dict):
            return self._fail(
                "invalid_request",
                "cannot give the agent a system prompt, because it takes none; put the text into the first prompt",
            )
        return self._log_in() if self._request.auth_method else self._open({})

    def _log_in(self) -> Decoded:
        method = self._request.auth_method
        if method not in [get_str(offered, "id") for offered in self.state.methods]:
            return self._fail(
                "authentication",
                f"cannot log in at the agent by {method!r}, because it has no such method; it has: {self._listed_methods()}",
            )
        return self._ask("authenticate", {"methodId": method})

    def _open(self, _: Frame) -> Decoded:
        """Ask for a new session, or for the session of the request."""
        can = self.state.can
        where: Frame = {"cwd": self._request.cwd, "mcpServers": self._mcp_servers}
        if self._request.system_prompt:
            text = {"type": "text", "text": self._request.system_prompt}
            where["systemPrompt"] = {"mode": "append", "content": [text]}
        if self.state.session is None:
            return self._ask("session/new", where)
        # Resume comes first: a load replays the whole session through the spool, at each turn.
        if isinstance(_of_sessions(can).get("resume"), dict):
            return self._ask("session/resume", {"sessionId": self._wire, **where})
        if can.get("loadSession") is True:
            return self._ask("session/load", {"sessionId": self._wire, **where})
        return self._fail(
            "session_not_found",
            "cannot go on with this session, because the agent offers neither session/resume nor session/load; "
            "open a new session for each prompt",
        )

    def _opened(self, result: Frame) -> Decoded:
        self.state.session = self.state.session or get_str(result, "sessionId")
        if not self.state.session:
            return self._fail("protocol", "cannot prompt the agent, because its answer to session/new has no sessionId")
        self.state.unsettled = self.state.loaded = self.state.asked == "session/load"
        offers = Offers.of(result)
        self.state.opened = _Opened(self._dialect.wire_id(self.state.session, resumed=self._request.resume), offers)
        asked = (offers.model(self._request.model), offers.mode(self._request.permission_mode))
        for setting in asked:
            if setting.error is not None:
                return self._end(setting.error)
        self.state.model, self.state.mode = (setting.value for setting in asked)
        self.state.settings = [setting for setting in asked if setting.method]
        return self._next()

    def _next(self) -> Decoded:
        """Send the next setting, or the prompt. After session/load, a round trip without old updates comes first."""
        if self.state.settings:
            setting = self.state.settings.pop(0)
            return self._ask(setting.method, {"sessionId": self._wire, **setting.params})
        if self.state.unsettled:
            self.state.unsettled = False
            return self._ask(QUIET, {"sessionId": self._wire})
        init = SessionInit(
            native_session_id=self.state.session,
            model=self.state.model,
            permission_mode=self.state.mode,
            backend_version=self.state.version,
            agent=self.state.agent,
        )
        asked = self._ask("session/prompt", prompt_params(self._wire, self._prompt))
        return replace(asked, events=(init,))

    def _set(self, _: Frame) -> Decoded:
        """Go on after a setting, or after a round trip."""
        return self._next() if self.state.end is None else self._end_if_quiet()

    def _ask(self, method: str, params: Frame) -> Decoded:
        self.state.said, self.state.asked = int(self.state.said) + 1, method
        return Decoded((), replies=(request_text(self.state.said, method, params),))

    # The end

    def _prompted(self, result: Frame) -> Decoded:
        reason = get_str(result, "stopReason")
        usage = self._usage(result)
        if reason is None:
            return self._fail("protocol", "the agent's answer to session/prompt has no stopReason")
        kind, message = self._dialect.stops.get(reason, (None, ""))
        if kind:
            return self._end(TurnError(kind=kind, message=message), reason, usage)
        # The last words of an answer may come behind its end (opencode #17505, claude-agent-acp #824).
        self.state.end = {name: value for name, value in result.items() if name in ("stopReason", "usage", "_meta")}
        return self._read_on()

    def _read_on(self) -> Decoded:
        """Ask for a round trip, which comes back behind the words that are still on their way."""
        self.state.unsettled, self.state.asked = False, QUIET
        self.state.rounds += 1
        self.state.said = f"{_END}{self.state.rounds}-{self._request.prompt_id or self._request.run}"
        return Decoded((), replies=(request_text(self.state.said, QUIET, {"sessionId": self._wire}),))

    def _end_if_quiet(self) -> Decoded:
        """End the turn, or read on if more words came during the round trip."""
        if self.state.unsettled and self.state.rounds < _END_ROUNDS:
            return self._read_on()
        return self.settle() or _NOTHING

    def settle(self) -> Decoded | None:
        """Return the end of a turn whose agent has told the end and gives no round trip back."""
        result = self.state.end
        if result is None:
            return None
        self.state.end = None
        reason, events = get_str(result, "stopReason") or "", self._updates.finish()
        words = self._updates.failure
        error = self._dialect.failure({"message": words}, "session/prompt") if words else self.unanswered(reason)
        ended = self._end(error, reason, self._usage(result))
        return replace(ended, events=(*events, *ended.events))

    def unanswered(self, reason: str) -> TurnError | None:
        """Return the error of an end without an answer. Agents tell a failed request so, with its words on stderr alone."""
        if reason != "end_turn" or self.state.updates.answers:
            return None
        return TurnError(kind="server", message=NO_ANSWER, retryable=True)

    def _usage(self, result: Frame) -> Usage | None:
        """Return the turn's tokens. They are estimated if the agent counts its last request alone and ran tools."""
        usage = self._dialect.usage(result)
        if usage and self._updates.habits.usage_of_last_request and self._updates.ran_tools:
            return replace(usage, source="estimated")
        return usage

    def _fail(self, kind: TurnErrorKind, message: str) -> Decoded:
        return self._end(TurnError(kind=kind, message=message))

    def _end(self, error: TurnError | None, reason: str | None = None, usage: Usage | None = None) -> Decoded:
        self.state.asked = None
        events = [*self._updates.finish(), *self._requests.close()]
        share, total = self._cost()
        terminal = Terminal(
            is_error=error is not None,
            text="" if error else self.state.updates.text,
            stop_reason=reason,
            usage=usage or self.state.updates.usage or Usage(),
            cost_usd=share,
            cost_total_usd=total,
            error=error,
            interrupted=error is not None and error.kind == "cancelled",
            # An agent also cancels a turn whose approval was denied (codex-acp 2.6.0).
            unasked=None if self.state.uses else _UNASKED,
        )
        return Decoded(events, terminal, () if self._request.live else (END_OF_INPUT,))

    def _cost(self) -> tuple[float | None, float | None]:
        """Return the turn's cost, and the session's cost to carry over."""
        told, carried = self.state.updates.cost_usd, self._carried.cost_usd
        if told is None:
            return None, carried
        if self._request.later and self._dialect.cost_spans == "process":
            return None, None  # the sum has earlier turns of the process
        is_first = not self._request.resume and not self._request.later
        if is_first or self._dialect.cost_spans == "process":
            return told, None if carried is None else carried + told
        if self._dialect.cost_spans is None or carried is None:
            return None, told
        return (told - carried if told >= carried else told), told


def _of_sessions(can: Frame) -> Frame:
    return get_dict(can, "sessionCapabilities")


_THEN: dict[str, Callable[[AcpDecoder, Frame], Decoded]] = {
    "initialize": AcpDecoder._initialized,
    "authenticate": AcpDecoder._open,
    "session/new": AcpDecoder._opened,
    "session/resume": AcpDecoder._opened,
    "session/load": AcpDecoder._opened,
    "session/prompt": AcpDecoder._prompted,
}
"""Handlers of the agent's answers, by the method of the request. All other requests are settings."""
