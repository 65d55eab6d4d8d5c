"""Client side of the Agent Client Protocol, version 1: one process, one session, one prompt or many.

The start sends `initialize`. Each answer decides the next request: authenticate, session/new (or resume, or load), the model,
the mode, session/prompt, and the end of input. A live process gets the next session/prompt instead, and may get another model
or mode at any time. `requests` has the requests of the agent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from clisup.backends.acp.dialect import AcpDialect
from clisup.backends.acp.requests import AgentRequests
from clisup.backends.acp.settings import Offers, Setting
from clisup.backends.acp.updates import CHUNKS, SAID, Updates
from clisup.backends.approvals import ApprovalAnswer
from clisup.backends.base import (
    END_OF_INPUT,
    Carried,
    Control,
    ControlAnswer,
    Decoded,
    Decoder,
    LaunchRequest,
    Terminal,
)
from clisup.backends.frames import (
    Frame,
    MalformedError,
    decode_any,
    first_str,
    get_dict,
    get_dicts,
    get_int,
    get_str,
    mend,
    too_deep,
)
from clisup.backends.lines import unparsed
from clisup.backends.long_texts import acp_passes_on
from clisup.errors import UsageError
from clisup.model.events import BackendStatus, EventBase, SessionInit, TurnError, TurnErrorKind
from clisup.model.lines.framing import Line
from clisup.model.prompts.content import Content, Image
from clisup.model.usage import Usage

__all__ = ["PROTOCOL_VERSION", "AcpDecoder", "prompt_params", "prompt_request", "read_frame", "request_text"]

PROTOCOL_VERSION = 1
QUIET = "_clisup/quiet"  # an unknown method: its refusal shows that all earlier output has arrived
_AUTH_REQUIRED = -32000
_CONTROL = "control-"  # begins the id of a change of a setting
_METHODS = 10  # login methods in a message
_NOTHING = Decoded(())
_STOPS: dict[str, tuple[TurnErrorKind, str]] = {
    "max_tokens": ("output_limit", "the model's answer was cut at its limit of tokens"),
    "max_turn_requests": ("max_turns", "the agent's limit of model requests in one turn is reached"),
    "refusal": ("refusal", "the agent refuses to go on"),
    "cancelled": ("cancelled", "the turn was cancelled"),
}


@dataclass(frozen=True)
class _Opened:
    """Facts of an opened session that later turns of the process need. `session` is its id in requests."""

    session: str
    offers: Offers


class AcpDecoder(Decoder):
    """Decoder of one turn with an agent. `mcp_servers` is ACP's own list, `prompt` the texts and images to send."""

    passes_on = staticmethod(acp_passes_on)
    given = frozenset({"_dialect", "_mcp_servers", "_prompt", "_request"})

    def __init__(
        self,
        dialect: AcpDialect,
        carried: Carried,
        request: LaunchRequest,
        mcp_servers: list[Frame],
        prompt: Content,
    ) -> None:
        self._dialect = dialect
        self._carried_usd = carried.cost_usd
        self._request = request
        self._mcp_servers = mcp_servers
        self._prompt = prompt
        self._updates = Updates(dialect)
        self._said: int | str = 0  # the id of the last request, which an answer must have
        self._asked: str | None = "initialize"
        self._then: _Then = AcpDecoder._initialized
        if request.later:
            self._said, self._asked, self._then = prompt_request(request), "session/prompt", AcpDecoder._prompted
            self._updates.habits = dialect.habits(carried.agent)
        self._version: str | None = None
        self._agent: str | None = None
        self._session: str | None = request.native_session_id if request.resume or request.later else None
        self._opened_as: _Opened | None = carried.kept
        self._can: Frame = {}
        self._methods: list[Frame] = []
        self._settings: list[Setting] = []
        self._model: str | None = None
        self._mode: str | None = None
        self._loaded = False  # by session/load, which replays old updates
        self._unsettled = False
        self._requests = AgentRequests(dialect, self._updates, request.run)

    @property
    def _wire(self) -> str | None:
        """Session id of requests."""
        return self._dialect.wire_id(self._session, resumed=self._request.resume) if self._session else None

    def interrupt(self) -> str | None:
        """Return session/cancel during the prompt. Before the prompt, only a signal ends the turn."""
        if self._asked != "session/prompt":
            return None
        return request_text(None, "session/cancel", {"sessionId": self._wire})

    @property
    def kept(self) -> _Opened | None:
        """Session and offers of the agent, for a later change of a setting."""
        return self._opened_as

    def control(self, request_id: str, control: Control, value: str | None) -> str | None:
        """Return the request that changes the model or the mode. Raises `UsageError` for a value that the agent lacks."""
        opened = self._opened_as
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
            return unparsed(line, "malformed" if line.complete else "truncated")
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
            if self._asked is None:  # stdin is closed
                return unparsed(line, "unknown_type")
            return self._requests.take(frame, method, line)
        if too_deep(line.data, frame):
            raise MalformedError("nested too deep")
        if method == "$/cancel_request" and self._asked is not None:
            return self._requests.withdraw(get_dict(frame, "params"))
        if method != "session/update":  # an extension of the agent, which needs no answer
            return Decoded((BackendStatus(status="notification", detail=method[:200]),))
        return Decoded(self._update(get_dict(frame, "params")))

    def _update(self, params: Frame) -> Sequence[EventBase]:
        update = get_dict(params, "update")
        name = get_str(update, "sessionUpdate")
        if self._asked != "session/prompt" and name in SAID:
            # Before the prompt, an agent replays old updates after session/load, even after its answer (gemini 0.61.0), or
            # reports a new mode as a message (gemini). None of them answers the prompt.
            self._unsettled = self._loaded
            return () if self._asked else (BackendStatus(status="late_update", detail=name),)
        events = self._updates.take(update)
        if name == "current_mode_update" and self._asked != "session/prompt":
            self._mode = get_str(update, "currentModeId") or self._mode
            return ()
        return events

    # Answers of the agent

    def _answer(self, frame: Frame) -> Decoded:
        number = frame.get("id")
        if isinstance(number, str) and number.startswith(_CONTROL):
            error = get_dict(frame, "error")
            refusal = (get_str(error, "message") or "no reason given") if error else None
            return Decoded(
                (), answers=(ControlAnswer(number.removeprefix(_CONTROL), get_dict(frame, "result"), refusal),)
            )
        if isinstance(number, bool) or number != self._said or self._asked is None:
            raise MalformedError("an answer that nobody waits for")
        if "result" not in frame and not isinstance(frame.get("error"), dict):
            raise MalformedError("neither result nor error")
        if "error" in frame and frame["error"] is not None:
            if self._asked == QUIET:
                return self._next()
            return self._end(self._refused(get_dict(frame, "error"), self._asked))
        return self._then(self, get_dict(frame, "result"))

    def _refused(self, error: Frame, method: str) -> TurnError:
        """Return the agent's error. If the agent wants a login, the message lists its methods."""
        failure = self._dialect.failure(error, method)
        if get_int(error, "code") != _AUTH_REQUIRED or not self._methods:
            return failure
        return replace(
            failure, message=f"{failure.message}, or set the backend's auth_method: {self._listed_methods()}"
        )

    def _listed_methods(self) -> str:
        """Return the login methods of the agent for a message, each with its description."""
        listed = [
            f"{get_str(method, 'id')} ({(first_str(method, 'description', 'name') or 'not described')[:200]})"
            for method in self._methods[:_METHODS]
        ]
        return ", ".join(listed) or "none"

    def _initialized(self, result: Frame) -> Decoded:
        version = get_int(result, "protocolVersion")
        if version != PROTOCOL_VERSION:
            return self._fail(
                "protocol",
                f"cannot talk to the agent, because it speaks version {version} of the Agent Client Protocol and clisup "
                f"speaks {PROTOCOL_VERSION}; take a version of the agent that speaks it",
            )
        agent = get_dict(result, "agentInfo")
        self._version, self._agent = get_str(agent, "version"), get_str(agent, "name")
        self._updates.habits = self._dialect.habits(self._agent)
        self._can = can = get_dict(result, "agentCapabilities")
        self._methods = get_dicts(result, "authMethods")
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
        if method not in [get_str(offered, "id") for offered in self._methods]:
            return self._fail(
                "authentication",
                f"cannot log in at the agent by {method!r}, because it has no such method; it has: {self._listed_methods()}",
            )
        return self._ask("authenticate", {"methodId": method}, AcpDecoder._open)

    def _open(self, _: Frame) -> Decoded:
        """Ask for a new session, or for the session of the request."""
        can = self._can
        where: Frame = {"cwd": self._request.cwd, "mcpServers": self._mcp_servers}
        if self._request.system_prompt:
            text = {"type": "text", "text": self._request.system_prompt}
            where["systemPrompt"] = {"mode": "append", "content": [text]}
        if self._session is None:
            return self._ask("session/new", where, AcpDecoder._opened)
        # Resume comes first: a load replays the whole session through the spool, at each turn.
        if isinstance(_of_sessions(can).get("resume"), dict):
            return self._ask("session/resume", {"sessionId": self._wire, **where}, AcpDecoder._opened)
        if can.get("loadSession") is True:
            return self._ask("session/load", {"sessionId": self._wire, **where}, AcpDecoder._opened)
        return self._fail(
            "session_not_found",
            "cannot go on with this session, because the agent offers neither session/resume nor session/load; "
            "open a new session for each prompt",
        )

    def _opened(self, result: Frame) -> Decoded:
        self._session = self._session or get_str(result, "sessionId")
        if not self._session:
            return self._fail("protocol", "cannot prompt the agent, because its answer to session/new has no sessionId")
        self._unsettled = self._loaded = self._asked == "session/load"
        offers = Offers(result)
        self._opened_as = _Opened(self._dialect.wire_id(self._session, resumed=self._request.resume), offers)
        asked = (offers.model(self._request.model), offers.mode(self._request.permission_mode))
        for setting in asked:
            if setting.error is not None:
                return self._end(setting.error)
        self._model, self._mode = (setting.value for setting in asked)
        self._settings = [setting for setting in asked if setting.method]
        return self._next()

    def _next(self) -> Decoded:
        """Send the next setting, or the prompt. After session/load, a round trip without old updates comes first."""
        if self._settings:
            setting = self._settings.pop(0)
            return self._ask(
                setting.method, {"sessionId": self._wire, **setting.params}, lambda dialogue, _: dialogue._next()
            )
        if self._unsettled:
            self._unsettled = False
            return self._ask(QUIET, {"sessionId": self._wire}, lambda dialogue, _: dialogue._next())
        init = SessionInit(
            native_session_id=self._session,
            model=self._model,
            permission_mode=self._mode,
            backend_version=self._version,
            agent=self._agent,
        )
        asked = self._ask("session/prompt", prompt_params(self._wire, self._prompt), AcpDecoder._prompted)
        return replace(asked, events=(init,))

    def _ask(self, method: str, params: Frame, then: _Then) -> Decoded:
        self._said = int(self._said) + 1
        self._asked, self._then = method, then
        return Decoded((), replies=(request_text(self._said, method, params),))

    # The end

    def _prompted(self, result: Frame) -> Decoded:
        reason = get_str(result, "stopReason")
        usage = self._usage(result)
        if reason is None:
            return self._fail("protocol", "the agent's answer to session/prompt has no stopReason")
        kind, message = _STOPS.get(reason, (None, ""))
        if kind:
            return self._end(TurnError(kind=kind, message=message), reason, usage)
        events = self._updates.finish()
        words = self._updates.failure
        error = self._dialect.failure({"message": words}, "session/prompt") if words else None
        ended = self._end(error, reason, usage)
        return replace(ended, events=(*events, *ended.events))

    def _usage(self, result: Frame) -> Usage | None:
        """Return the turn's tokens. They are estimated if the agent counts its last request alone and ran tools."""
        usage = self._dialect.usage(result)
        if usage and self._updates.habits.usage_of_last_request and self._updates.ran_tools:
            return replace(usage, source="estimated")
        return usage

    def _fail(self, kind: TurnErrorKind, message: str) -> Decoded:
        return self._end(TurnError(kind=kind, message=message))

    def _end(self, error: TurnError | None, reason: str | None = None, usage: Usage | None = None) -> Decoded:
        self._asked = None
        events = [*self._updates.finish(), *self._requests.close()]
        share, total = self._cost()
        terminal = Terminal(
            is_error=error is not None,
            text="" if error else self._updates.text,
            stop_reason=reason,
            usage=usage or self._updates.usage or Usage(),
            cost_usd=share,
            cost_total_usd=total,
            error=error,
            interrupted=error is not None and error.kind == "cancelled",
        )
        return Decoded(events, terminal, () if self._request.live else (END_OF_INPUT,))

    def _cost(self) -> tuple[float | None, float | None]:
        """Return the turn's cost, and the session's cost to carry over."""
        told, carried = self._updates.cost_usd, self._carried_usd
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


def prompt_params(session: str | None, prompt: Content) -> Frame:
    """Return the params of session/prompt."""
    return {"sessionId": session, "prompt": [_block(part) for part in prompt]}


def prompt_request(request: LaunchRequest) -> str:
    """Return the id of session/prompt for a later turn of a live process. It names the prompt."""
    return f"prompt-{request.prompt_id}"


def _block(part: str | Image) -> Frame:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image", "mimeType": part.media_type, "data": part.data}


_Then = Callable[[AcpDecoder, Frame], Decoded]
"""Handler of an answer. A bound method would keep its decoder alive after the end."""


# Lines of JSON-RPC


def request_text(number: int | str | None, method: str, params: Frame) -> str:
    """Return one line: a request, or a notification if `number` is None."""
    head: Frame = {"jsonrpc": "2.0"} if number is None else {"jsonrpc": "2.0", "id": number}
    return json.dumps(head | {"method": method, "params": params}) + "\n"


def read_frame(line: Line) -> Frame | None:
    """Return the line's JSON object, with broken characters replaced.

    A text chunk keeps its halves of surrogate pairs: the other half may come with the next chunk.
    """
    try:
        value = decode_any(line.data)
    except (ValueError, RecursionError):
        try:
            value = decode_any(mend(line.data))
            _keep_halves(value, line.data)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _keep_halves(value: object, data: bytes) -> None:
    update = get_dict(get_dict(value, "params"), "update") if isinstance(value, dict) else {}
    if get_str(update, "sessionUpdate") in CHUNKS and "text" in get_dict(update, "content"):
        raw = json.loads(data.decode("utf-8", "replace"))
        update["content"]["text"] = raw["params"]["update"]["content"]["text"]
