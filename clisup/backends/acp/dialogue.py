"""Client side of the Agent Client Protocol, version 1: one process, one session, one prompt.

The start sends `initialize`. Each answer decides the next request: session/new (or resume, or load), the model, the mode,
session/prompt, and the end of input. A permission request waits for an answer of a client. All other requests of the agent get an
immediate answer, so the agent never waits for us.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from clisup.backends.acp.dialect import AcpDialect
from clisup.backends.acp.settings import Setting, mode_setting, model_setting
from clisup.backends.acp.updates import CHUNKS, SAID, Updates
from clisup.backends.approvals import ApprovalAnswer, Questions, refuse_other_input
from clisup.backends.base import END_OF_INPUT, Carried, Decoded, Decoder, LaunchRequest, Terminal
from clisup.backends.frames import (
    Frame,
    MalformedError,
    decode_any,
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

__all__ = ["PROTOCOL_VERSION", "AcpDecoder", "outcome", "read_frame", "request_text"]

PROTOCOL_VERSION = 1
QUIET = "_clisup/quiet"  # an unknown method: its refusal shows that all earlier output has arrived
_METHOD_NOT_FOUND = -32601
_INVALID_PARAMS = -32602
_LARGEST_ID = 2**63
_NOTHING = Decoded(())
_STOPS: dict[str, tuple[TurnErrorKind, str]] = {
    "max_tokens": ("output_limit", "the model's answer was cut at its limit of tokens"),
    "max_turn_requests": ("max_turns", "the agent's limit of model requests in one turn is reached"),
    "refusal": ("refusal", "the agent refuses to go on"),
    "cancelled": ("cancelled", "the turn was cancelled"),
}


class AcpDecoder(Decoder):
    """Decoder of one turn with an agent. `mcp_servers` is ACP's own list, `prompt` the texts and images to send."""

    passes_on = staticmethod(acp_passes_on)

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
        self._said = 0  # number of requests, and the id of the last one, which an answer must have
        self._asked: str | None = "initialize"
        self._then: _Then = AcpDecoder._initialized
        self._version: str | None = None
        self._session: str | None = request.native_session_id if request.resume else None
        self._settings: list[Setting] = []
        self._model: str | None = None
        self._mode: str | None = None
        self._loaded = False  # by session/load, which replays old updates
        self._unsettled = False
        self._questions = Questions(request.run)

    def interrupt(self) -> str | None:
        """Return session/cancel during the prompt. Before the prompt, only a signal ends the turn."""
        if self._asked != "session/prompt":
            return None
        return request_text(None, "session/cancel", {"sessionId": self._session})

    def answer(self, approval_id: str, answer: ApprovalAnswer) -> str | None:
        """Return the answer to an open permission request: one of its options, or `cancelled`."""
        return self._questions.answer(approval_id, answer)

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
            return self._asked_by_agent(frame, method, line)
        if too_deep(line.data, frame):
            raise MalformedError("nested too deep")
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

    # Requests of the agent

    def _asked_by_agent(self, frame: Frame, method: str, line: Line) -> Decoded:
        number = frame["id"]
        if isinstance(number, bool) or not isinstance(number, int | str | None):
            raise MalformedError("an id that is none")
        if isinstance(number, int) and abs(number) > _LARGEST_ID:
            raise MalformedError("an id that JSON readers cannot keep")
        if self._asked is None:  # stdin is closed
            return unparsed(line, "unknown_type")
        if method != "session/request_permission":
            error = {"code": _METHOD_NOT_FOUND, "message": f'"Method not found": {method[:200]}'}
            event = BackendStatus(status="request_refused", detail=method[:200])
            return Decoded((event,), replies=(reply_text(number, {"error": error}),))
        params = get_dict(frame, "params")
        call = get_dict(params, "toolCall")
        if too_deep(line.data, frame) or not get_str(call, "toolCallId"):
            error = {"code": _INVALID_PARAMS, "message": "cannot read this tool call"}
            return replace(unparsed(line, "malformed"), replies=(reply_text(number, {"error": error}),))
        return Decoded(self._permission(number, params, call))

    def _permission(self, number: int | str | None, params: Frame, call: Frame) -> list[EventBase]:
        told, use, title = self._updates.asked(call)
        options = options_of(params)

        def word(answer: ApprovalAnswer) -> str:
            return reply_text(number, {"result": {"outcome": outcome(options, answer)}})

        question = self._questions.ask(
            number, word, tool_name=use.name, input=use.input, suggestions=options, tool_use_id=use.tool_use_id,
            reason=title,
        )  # fmt: skip
        return [*told, question]

    # Answers of the agent

    def _answer(self, frame: Frame) -> Decoded:
        number = frame.get("id")
        if isinstance(number, bool) or number != self._said or self._asked is None:
            raise MalformedError("an answer that nobody waits for")
        if "result" not in frame and not isinstance(frame.get("error"), dict):
            raise MalformedError("neither result nor error")
        if "error" in frame and frame["error"] is not None:
            if self._asked == QUIET:
                return self._next()
            return self._end(self._dialect.failure(get_dict(frame, "error"), self._asked))
        return self._then(self, get_dict(frame, "result"))

    def _initialized(self, result: Frame) -> Decoded:
        version = get_int(result, "protocolVersion")
        if version != PROTOCOL_VERSION:
            return self._fail(
                "protocol",
                f"cannot talk to the agent, because it speaks version {version} of the Agent Client Protocol and clisup "
                f"speaks {PROTOCOL_VERSION}; take a version of the agent that speaks it",
            )
        agent = get_dict(result, "agentInfo")
        self._version = get_str(agent, "version")
        self._updates.habits = self._dialect.habits(get_str(agent, "name"))
        can = get_dict(result, "agentCapabilities")
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
        where = {"cwd": self._request.cwd, "mcpServers": self._mcp_servers}
        if self._session is None:
            return self._ask("session/new", where, AcpDecoder._opened)
        # Resume comes first: a load replays the whole session through the spool, at each turn.
        if isinstance(get_dict(can, "sessionCapabilities").get("resume"), dict):
            return self._ask("session/resume", {"sessionId": self._session, **where}, AcpDecoder._opened)
        if can.get("loadSession") is True:
            return self._ask("session/load", {"sessionId": self._session, **where}, AcpDecoder._opened)
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
        asked = (
            model_setting(self._request.model, result),
            mode_setting(self._request.permission_mode, result),
        )
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
                setting.method, {"sessionId": self._session, **setting.params}, lambda dialogue, _: dialogue._next()
            )
        if self._unsettled:
            self._unsettled = False
            return self._ask(QUIET, {"sessionId": self._session}, lambda dialogue, _: dialogue._next())
        init = SessionInit(
            native_session_id=self._session,
            model=self._model,
            permission_mode=self._mode,
            backend_version=self._version,
        )
        blocks = [_block(part) for part in self._prompt]
        asked = self._ask("session/prompt", {"sessionId": self._session, "prompt": blocks}, AcpDecoder._prompted)
        return replace(asked, events=(init,))

    def _ask(self, method: str, params: Frame, then: _Then) -> Decoded:
        self._said += 1
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
        events = [*self._updates.finish(), *self._questions.close()]
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
        return Decoded(events, terminal, (END_OF_INPUT,))

    def _cost(self) -> tuple[float | None, float | None]:
        """Return the turn's cost, and the session's cost to carry over."""
        told, carried = self._updates.cost_usd, self._carried_usd
        if told is None:
            return None, carried
        if not self._request.resume or self._dialect.cost_spans == "process":
            return told, None if carried is None else carried + told
        if self._dialect.cost_spans is None or carried is None:
            return None, told
        return (told - carried if told >= carried else told), told


def _block(part: str | Image) -> Frame:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image", "mimeType": part.media_type, "data": part.data}


_Then = Callable[[AcpDecoder, Frame], Decoded]
"""Handler of an answer. A bound method would keep its decoder alive after the end."""


# Lines of JSON-RPC, and answers to permission requests


def request_text(number: int | None, method: str, params: Frame) -> str:
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


_KINDS: dict[tuple[str, bool], tuple[str, ...]] = {
    ("allow", False): ("allow_once",),  # nothing permanent without a request for it
    ("allow", True): ("allow_always", "allow_once"),
    ("deny", False): ("reject_once", "reject_always"),
    ("deny", True): ("reject_always", "reject_once"),
}
"""Kinds of options for each answer, the best first."""


def options_of(params: Frame) -> tuple[Frame, ...]:
    """Return the valid answers that the agent offers."""
    return tuple(option for option in get_dicts(params, "options") if isinstance(option.get("optionId"), str))


def outcome(options: Sequence[Frame], answer: ApprovalAnswer) -> Frame:
    """Return the answer as the agent's option. Without an option to refuse, a refusal is `cancelled`.

    Raises `UsageError(kind="unsupported")` if the agent offers no such answer.
    """
    if answer.decision == "cancelled":
        return {"outcome": "cancelled"}
    refuse_other_input(answer, "the Agent Client Protocol has no way to")
    for kind in _KINDS[answer.decision, answer.remember]:
        for option in options:
            if option.get("kind") == kind:
                return {"outcome": "selected", "optionId": option["optionId"]}
    if answer.decision == "deny":
        return {"outcome": "cancelled"}
    raise UsageError(
        "cannot allow this tool call, because the agent does not offer that",
        kind="unsupported",
        hint="see `suggestions` of the approval: with `remember` it may be offered for ever",
    )


def reply_text(number: int | str | None, body: Frame) -> str:
    """Return one line: the answer to the agent's request. `body` is its result or error."""
    return json.dumps({"jsonrpc": "2.0", "id": number, **body}) + "\n"
