"""The desk of a session's tools: calls come from its CLI's bridge, go to the client that serves, and the answer goes back.

A call lives as long as a bridge waits for it. Nothing of it is stored: a bridge asks again after a restart of the daemon, by the
same id, and so the client is told of it again, by the same id. It is the client that must not run it twice.
"""

from __future__ import annotations

import hmac
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import structlog
import trio
from pydantic import ValidationError

from clisup.daemon.sessions.recorder import Item
from clisup.errors import UsageError, WorldError
from clisup.model.events import Notice
from clisup.model.lifecycle import SessionState
from clisup.model.refusing import wrong_field
from clisup.policy.open_calls import OpenCall, OpenCalls, OwnTimes, ToolAnswer, ToolLimits, refused
from clisup.wire.tool_models import AnswerParams, BridgeCallParams, ToolCallParams, ToolCancelledParams

if TYPE_CHECKING:
    from collections.abc import Callable

    from clisup.daemon.sessions.registry import Manager
    from clisup.daemon.sessions.session import Session
    from clisup.wire.jsonrpc import Answer

__all__ = ["ToolDesk", "ToolServer", "answer_json", "desk_of_token", "serve_tools", "tool_answer"]

_CLOSED = refused("The tool was not run to its end, because its session is closed.")
_log = structlog.get_logger()


class ToolServer(Protocol):
    """The connection of a client that serves tools."""

    serves: set[ToolDesk]

    def ask(self, method: str, params: bytes, heard: Callable[[Answer], None]) -> None: ...
    def tell(self, method: str, params: bytes) -> None: ...


class ToolDesk:
    """One session's. A call's own task is the bridge's request: it waits here for the answer.

    What the session was opened with is read from its files once, and here. Only the definitions stay there: they may be a megabyte,
    and are asked for once by each process.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        brought = session.dir.read_tools()
        told = brought.definitions if brought else []
        times = {tool["name"]: OwnTimes(tool.get("timeout_s"), tool.get("wait_s")) for tool in told}
        self.calls = OpenCalls(times)
        self.longest = ToolLimits(  # of the tools' own times
            max((own.timeout_s or 0.0 for own in times.values()), default=0.0),
            max((own.wait_s or 0.0 for own in times.values()), default=0.0),
        )
        self.token = brought.token if brought else None  # by which its bridge is known, until the session is closed
        self._server: ToolServer | None = None
        self._news = trio.Event()

    @property
    def names(self) -> list[str]:
        """The tools that there are."""
        return list(self._session.spec.tools)

    @property
    def limits(self) -> ToolLimits:
        """As the configuration has them now."""
        config = self._session.services.config.daemon
        return ToolLimits(config.tool_timeout_s, config.tool_wait_s)

    def definitions(self) -> list[dict[str, Any]]:
        """What the model is told of them, as the client brought it. Empty where the session is closed."""
        brought = self._session.dir.read_tools()
        return brought.definitions if brought is not None else []

    def describe(self) -> dict[str, Any]:
        """For `session/get`."""
        calls = [{"call_id": call.call_id, "name": call.name, "tool_use_id": call.tool_use_id} for call in self.calls]
        return {"names": self.names, "served": self._server is not None, "open": calls}

    # -- who serves --------------------------------------------------------------------------------------------------

    def serve(self, server: ToolServer) -> int:
        """This one gets the calls from now on, those that are open first; how many these are.

        One that served before is told to drop them: else two would run the same.
        """
        before, self._server = self._server, server
        if before is not server:
            server.serves.add(self)
            if before is not None:
                before.serves.discard(self)
            for call in self.calls:
                if before is not None:
                    self._tell_cancelled(before, call.call_id, "taken_over")
                self._pass_on(call)
            self._serving()
        return len(self.calls)

    def left(self, server: ToolServer) -> None:
        """Its connection has ended."""
        if self._server is server:
            self._server = None
            self._serving()

    def close(self) -> None:
        """The session is closed. Who served it must not hold it for as long as its connection lasts."""
        self.token = None
        for call in self.calls:
            self.calls.settle(call.call_id, _CLOSED)
            self._ended(call, "gone")
        if self._server is not None:
            self._server.serves.discard(self)
            self._server = None
        self._stir()

    def _serving(self) -> None:
        served = self._server is not None
        self.calls.serving(served=served, wait_s=self.limits.wait_s, now=trio.current_time())
        self._stir()

    # -- a call ------------------------------------------------------------------------------------------------------

    async def call(self, params: BridgeCallParams) -> ToolAnswer:
        """Have the tool run, and wait for its answer. Cancelling it drops the call, unless another one waits for it."""
        if self._session.state is SessionState.CLOSED:  # the token ends with it, also where a bridge has said it before
            return _CLOSED
        if (refusal := self.calls.refusal(params.call_id, params.name)) is not None:
            return refusal
        known = self.calls.get(params.call_id) is not None
        current, now = self._session.ledger.current, trio.current_time()
        call = self.calls.begin(
            params.call_id,
            params.name,
            params.input,
            tool_use_id=params.tool_use_id,
            turn_id=current.id if current is not None else None,
            served=self._server is not None,
            limits=self.limits,
            now=now,
        )
        if not known:
            _log.debug("tool called", session=self._session.id, tool=call.name, call=call.call_id)
            self._pass_on(call)
            self._hold()
        call.waiters += 1
        try:
            return await self._answer(call)
        finally:
            call.waiters -= 1
            if not call.waiters and self.calls.drop(call.call_id):
                self._ended(call, "gone")
            self._hold()

    async def _answer(self, call: OpenCall) -> ToolAnswer:
        while call.answer is None:
            if self.calls.expire(call, trio.current_time()):
                self._ended(call, call.ended or "timeout")
                break
            with trio.move_on_at(self.calls.next_at(call)):
                await self._news.wait()
        assert call.answer is not None
        return call.answer

    def answer(self, call_id: str, answer: ToolAnswer) -> None:
        """A client's answer. Raises `UsageError(tool_call_not_found)` where the call is not open, or not any more."""
        if self.calls.settle(call_id, answer) is None:
            raise UsageError(
                f"cannot answer the tool call {call_id}, because none of this id is open in session {self._session.id}",
                kind="tool_call_not_found",
                hint="it was answered, it ended, or the CLI has given it up: drop it",
            )
        self._stir()

    # -- telling -----------------------------------------------------------------------------------------------------

    def _pass_on(self, call: OpenCall) -> None:
        if self._server is None:
            return
        told = ToolCallParams(
            session_id=self._session.id,
            turn_id=call.turn_id,
            call_id=call.call_id,
            tool_use_id=call.tool_use_id,
            name=call.name,
            input=call.input,
        )
        self._server.ask("tool/call", told.model_dump_json().encode(), lambda said: self._heard(call.call_id, said))

    def _heard(self, call_id: str, said: Answer) -> None:
        with suppress(UsageError):  # it has ended meanwhile, and its client was told
            self.answer(call_id, _read(said))

    def _ended(self, call: OpenCall, reason: str) -> None:
        """Without a client's answer. While the daemon leaves, bridges go because it does: they come back to the next one."""
        leaving = self._session.services.storage.stopping
        if self._server is not None and not (leaving and reason == "gone"):
            self._tell_cancelled(self._server, call.call_id, reason)
        _log.info("tool call ended", session=self._session.id, tool=call.name, call=call.call_id, reason=reason)
        if reason == "gone" or call.answer is None:
            return
        notice = Notice(code=f"tool_{reason}", message=f"{call.name}: {call.answer.content}")
        with suppress(WorldError):  # the model is told all the same
            self._session.recorder.record([Item(notice, call.turn_id)])

    def _tell_cancelled(self, server: ToolServer, call_id: str, reason: str) -> None:
        told = ToolCancelledParams(session_id=self._session.id, call_id=call_id, reason=reason)
        server.tell("tool/cancelled", told.model_dump_json().encode())

    def _stir(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def _hold(self) -> None:
        """A call within its time is no silence of the CLI's."""
        if (run := self._session.run) is not None:
            run.guard.hold(held=len(self.calls) > 0)


def _read(said: Answer) -> ToolAnswer:
    """What a client answered; an error, or what is no answer, in words that the model can read."""
    if said.error is not None:
        message = said.error.get("message") if isinstance(said.error, dict) else None
        return refused(f"The tool failed: {message or 'the client gave no reason'}")
    try:
        return tool_answer(AnswerParams.model_validate(said.result))
    except ValidationError as error:
        where, reason = wrong_field(error)
        return refused(f"The tool's answer could not be used, because {where or 'all of it'} is wrong: {reason}")


def tool_answer(params: AnswerParams) -> ToolAnswer:
    """The answer as the bridge is given it."""
    content = params.content
    blocks = content if isinstance(content, str) else [block.model_dump(exclude={"cache"}) for block in content]
    return ToolAnswer(blocks, params.is_error)


def serve_tools(session: Session) -> ToolDesk:
    """The session's desk. Raises `UsageError`: unsupported for a session without tools, session_closed."""
    if session.tools is None:
        raise UsageError(
            f"cannot serve the tools of session {session.id}, because it was opened without any",
            kind="unsupported",
            hint="give `tools` to session/new",
        )
    if session.state is SessionState.CLOSED:
        raise UsageError(
            f"cannot serve the tools of session {session.id}, because it is closed",
            kind="session_closed",
            hint="open a new session",
        )
    return session.tools


def desk_of_token(manager: Manager, token: str) -> tuple[Session, ToolDesk]:
    """Whose bridge brings this token. Raises `UsageError(permission_denied)`: it never says what is wrong with it."""
    session = manager.find(token.partition(".")[0])
    if session is not None and session.tools is not None and session.state is not SessionState.CLOSED:
        wanted = session.tools.token
        if wanted is not None and hmac.compare_digest(wanted.encode(), token.encode()):
            return session, session.tools
    raise UsageError(
        "cannot take this token, because it is of no open session",
        kind="permission_denied",
        hint="a bridge is started by a session's CLI; nobody else has anything to say here",
    )


def answer_json(answer: ToolAnswer) -> bytes:
    """The result of `bridge/call`."""
    return json.dumps({"content": answer.content, "is_error": answer.is_error}).encode()
