"""Turn behind a request: a session for it, or the session that it continues, and the place of its answer."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from clisup.client.aio import AsyncClient
from clisup.client.aio_session import AsyncSession
from clisup.client.events import PromptAccepted, ToolUse
from clisup.client.reconnect import new_key
from clisup.doors.gateway.answers import Dialect
from clisup.doors.gateway.failures import GatewayError, failure_of, refused
from clisup.doors.gateway.kept_thinking import KeptThinking
from clisup.doors.gateway.models import ModelBook, ServedModel
from clisup.doors.gateway.parked import call_mark, session_of_call
from clisup.doors.gateway.reading import AnswerPlace
from clisup.doors.gateway.requests import AnswerRequest, results_only
from clisup.doors.gateway.sessions import GatewaySessions
from clisup.doors.gateway.settings import GatewaySettings
from clisup.errors import ClisupError
from clisup.llm.answers import ModelName
from clisup.llm.chat import ChatOptions, Sampling
from clisup.llm.failures import LLMError
from clisup.llm.histories import GO_ON, open_round, results_in, seeded
from clisup.llm.messages import Message, ToolResultBlock
from clisup.llm.serving import tool_to_wire
from clisup.llm.sessions.opening import Opening, opening_of, prompt_to_wire
from clisup.llm.sessions.turn_reader import BRIDGE_PREFIX
from clisup.wire.results import SessionDetail

__all__ = ["REQUEST_LABEL", "AskedBy", "TurnDesk"]

REQUEST_LABEL = "clisup.gateway.request"
"""Label of a session that an Idempotency-Key has opened. Its value is a digest of the request."""

MAX_KEY = 200
"""Characters of an Idempotency-Key at most."""

_SPACE = uuid.UUID("0b1f6f1c-6f0e-4c7e-9a55-5c3d3f7a6b21")
_ANSWER_ID = re.compile(r"resp_([0-9a-f]{32})-([A-Za-z0-9_]{1,64})-\d{1,9}")
_NAME = re.compile(r"[\w.:@-]{1,128}", re.ASCII)


class AskedBy:
    """Headers of a request that name a turn or a session: its `Idempotency-Key` and `x-clisup-session`."""

    __slots__ = ("digest", "key", "session")

    def __init__(self, key: str | None, session: str | None, body: bytes) -> None:
        """Raises `GatewayError` for a key or a name that is none."""
        if key is not None and not (1 <= len(key) <= MAX_KEY and key.isprintable()):
            raise refused(f"an Idempotency-Key has 1 to {MAX_KEY} printable characters")
        if session is not None and not _NAME.fullmatch(session):
            raise refused("x-clisup-session has 1 to 128 letters, digits, and . _ : @ -")
        self.key, self.session = key, session
        self.digest = hashlib.sha256(body).hexdigest()[:32]

    @property
    def prompt_key(self) -> str | None:
        """Key of the prompt: the same key with another body is another prompt, which `TurnDesk` refuses."""
        return None if self.key is None else f"{self.key}:{self.digest}"

    def is_other(self, prompt_key: str | None) -> bool:
        """Tell whether a prompt had the same key, and another body."""
        key, _, digest = (prompt_key or "").rpartition(":")
        return self.key is not None and key == self.key and digest != self.digest


class TurnDesk:
    """Turns of requests."""

    def __init__(
        self, settings: GatewaySettings, models: ModelBook, sessions: GatewaySessions,
        client: Callable[[], Awaitable[AsyncClient]],
    ) -> None:  # fmt: skip
        self._settings, self._models, self._sessions, self._client = settings, models, sessions, client
        self._thinking = KeptThinking()

    async def place(self, request: AnswerRequest, by: AskedBy, dialect: Dialect) -> tuple[AnswerPlace, list[str]]:
        """Begin the turn of a request, or find it. Return the place of the answer, and the parameters without effect.

        The session is held until `GatewaySessions.release`. Raises `GatewayError`.
        """
        try:
            client = await self._client()
            served = await self._models.find(client, request.model)
            request, ignored = _within(request, served)
            if served.can.get("caller_tools"):
                request = replace(request, messages=self._thinking.restored(request.messages))
            found = await self._continued(client, request, served.name)
            if found is None and request.previous is not None:
                found = await self._after(client, request, by, served)
            if found is None and by.session is not None:
                found = await self._in_session(client, request, by, served)
            if found is not None:
                self._sessions.hold(found.session.id)
            else:
                found = await self._opened(client, request, by, served, dialect)
        except (ClisupError, LLMError) as error:
            raise GatewayError(failure_of(error)) from error
        found.call_prefix, found.schema = dialect.call_prefix, request.schema is not None
        found.thinking, found.names = self._thinking, request.names
        return found, ignored

    # -- a request with results of a parked turn

    async def _continued(self, client: AsyncClient, request: AnswerRequest, name: ModelName) -> AnswerPlace | None:
        """Return the place after the calls whose results the request brings, or None without such a turn."""
        last = request.messages[-1] if request.messages else None
        results = {
            found: block
            for block in (last.content if last else ())
            if isinstance(block, ToolResultBlock) and (found := session_of_call(block.tool_use_id))
        }
        if not results or last is None:
            return None
        session_id = next(iter(results))[0]
        info = await self._own(client, session_id)
        if info is None:
            return None
        session = client.attach(session_id)
        marks = {mark: block for (owner, mark), block in results.items() if owner == session_id}
        at = await _turn_of(session, lambda event: isinstance(event, ToolUse) and call_mark(event.tool_use_id) in marks)
        if at is None:
            return None
        if not results_only(last):
            raise refused("the waiting CLI takes results of tools only: send the rest as the next prompt", "messages")
        closed = info.state == "closed"
        parked = None
        try:
            parked = None if closed else await self._sessions.parked(client, session_id)
        except ClisupError as error:
            if error.kind != "session_closed":
                raise
            closed = True  # just now: the answer before has ended
        return AnswerPlace(
            session, name, at[0], at[1], _callers(info, request), results=marks, parked=parked, closed=closed,
            recorded=True, ends=self._sessions.end_of(info.labels),
        )  # fmt: skip

    # -- a conversation that goes on

    async def _after(
        self, client: AsyncClient, request: AnswerRequest, by: AskedBy, served: ServedModel
    ) -> AnswerPlace:
        """Return the place of an answer after an earlier one. An answer that is not the last begins a branch."""
        found = _ANSWER_ID.fullmatch(request.previous or "")
        info = await self._own(client, str(uuid.UUID(found[1]))) if found else None
        if found is None or info is None or info.state == "closed" or self._sessions.end_of(info.labels) != "keep":
            raise refused(f"Previous response with id '{(request.previous or '')[:128]}' not found.", "previous_response_id",
                          kind="previous_not_found", status=404)  # fmt: skip
        session = client.attach(info.session_id)
        last = (info.last_turn or {}).get("turn_id") if not info.turn_id and not info.queue else None
        if last != found[2]:
            known = by.key is not None and await _turn_of(session, lambda event: _is_prompt(event, by))
            if not known:
                id_ = str(uuid.uuid5(_SPACE, f"fork\0{request.previous}\0{by.key}")) if by.key else new_key()
                session = await session.fork(at_turn=found[2], session_id_new=id_)
        return await self._prompted(client, session, info, request, by, served)

    async def _in_session(
        self, client: AsyncClient, request: AnswerRequest, by: AskedBy, served: ServedModel
    ) -> AnswerPlace | None:
        """Return the place of an answer in the named session, or None if it has to be opened."""
        session_id = named_session(by.session or "")
        info = await self._own(client, session_id)
        if info is None:
            return None
        if info.state == "closed":
            raise refused("this session is closed: choose another name", "x-clisup-session", kind="session_closed")
        return await self._prompted(client, client.attach(session_id), info, request, by, served)

    async def _prompted(
        self, client: AsyncClient, session: AsyncSession, info: SessionDetail, request: AnswerRequest, by: AskedBy,
        served: ServedModel,
    ) -> AnswerPlace:  # fmt: skip
        """Prompt a session that goes on. Its tools are those of its first request."""
        if by.key is not None:
            await _turn_of(session, lambda event: _is_prompt(event, by))  # for a key with another body
        native = bool(served.can.get("caller_tools"))
        if info.tools:
            await self._sessions.parked(client, session.id)
        opening = Opening("", {}, request.tools, (), native=native)
        place = await self._prompt(session, request.messages[-1], request, by, served.name, opening, "keep")
        return place if native else replace(place, callers=_callers(info, request))

    # -- a session of its own

    async def _opened(
        self, client: AsyncClient, request: AnswerRequest, by: AskedBy, served: ServedModel, dialect: Dialect
    ) -> AnswerPlace:
        """Open a session with the conversation before the prompt, and begin the turn."""
        *history, prompt = request.messages
        kept = request.keep or by.session is not None
        ends = (
            "keep"
            if kept
            else "close"
            if by.key or (request.tools and not served.can.get("caller_tools"))
            else "delete"
        )
        session_id = new_key()
        if by.session is not None:
            session_id = named_session(by.session)
        elif by.key is not None:
            session_id = str(uuid.uuid5(_SPACE, f"{dialect.name}\0{by.key}"))
        labels = {**self._sessions.labels(ends), **({REQUEST_LABEL: by.digest} if by.key else {})}
        options = ChatOptions(
            system=request.system, history=tuple(history), tools=request.tools, cwd=self._settings.cwd, labels=labels,
            session={"session_id": session_id}, sampling=Sampling(**request.sampling) if request.sampling else None,
            cli_tools=self._settings.cli_tools,
        )  # fmt: skip
        opening = await opening_of(client, served.name, options)
        self._sessions.hold(session_id)
        try:
            return await self._begin(
                client, request, by, served.name, opening, _first_prompt(opening, history, prompt), ends
            )
        except BaseException:
            self._sessions.release(session_id, ends)
            raise

    async def _begin(
        self, client: AsyncClient, request: AnswerRequest, by: AskedBy, name: ModelName, opening: Opening, prompt: Message,
        ends: str,
    ) -> AnswerPlace:  # fmt: skip
        session = client.attach(opening.params["session_id"])
        try:
            await client.open(name.backend, opening.cwd, **opening.params)
        except ClisupError as error:
            if error.kind != "session_exists" or by.key is None:
                raise
            if (await session.info()).labels.get(REQUEST_LABEL) != by.digest:
                raise _key_reused() from None
        if "tools" in opening.params:
            await self._sessions.parked(client, session.id)
        return await self._prompt(session, prompt, request, by, name, opening, ends)

    async def _prompt(
        self, session: AsyncSession, prompt: Message, request: AnswerRequest, by: AskedBy, name: ModelName,
        opening: Opening, ends: str,
    ) -> AnswerPlace:  # fmt: skip
        asked: dict[str, Any] = {"key": by.prompt_key or new_key(), "when_limited": "refuse"}
        if request.schema is not None:
            asked["output_schema"] = request.schema
        if request.sampling:
            asked["sampling"] = request.sampling
        if opening.native and opening.definitions:
            asked["tools"] = [tool_to_wire(tool) for tool in opening.definitions]
        place = AnswerPlace(
            session, name, "", 0, opening.wire_names, opening.native, recorded=by.key is not None, ends=ends
        )
        try:
            accepted = await session.prompt(prompt_to_wire(prompt, results=opening.native), wait=False, **asked)
        except ClisupError as error:
            if error.kind != "session_closed" or by.key is None:
                raise
            at = await _turn_of(session, lambda event: _is_prompt(event, by))
            if at is None:
                raise
            return replace(place, turn_id=at[0], after_seq=at[1], closed=True)
        parked = None if opening.native else self._sessions.found(session.id)
        return replace(place, turn_id=accepted.turn_id, after_seq=accepted.seq - 1, parked=parked)

    async def _own(self, client: AsyncClient, session_id: str) -> SessionDetail | None:
        """Return a session of the gateway, or None for another one and for none."""
        try:
            info = await client.attach(session_id).info()
        except ClisupError as error:
            if error.kind != "session_not_found":
                raise
            return None
        return info if self._sessions.end_of(info.labels) else None


def named_session(name: str) -> str:
    """Return the id of the session that `x-clisup-session` names: the id itself, or one made of the name."""
    try:
        return str(uuid.UUID(name))
    except ValueError:
        return str(uuid.uuid5(_SPACE, f"session\0{name}"))


def _is_prompt(event: object, by: AskedBy) -> bool:
    """Tell whether an event is the prompt of this request. Raises `GatewayError` if its key had another body."""
    if not isinstance(event, PromptAccepted):
        return False
    if by.is_other(event.key):
        raise _key_reused()
    return event.key == by.prompt_key


def _key_reused() -> GatewayError:
    return refused("this Idempotency-Key was sent with another request", kind="idempotency_key_reused")


async def _turn_of(session: AsyncSession, wanted: Callable[[object], bool]) -> tuple[str, int] | None:
    """Return the turn with a wanted event, and the seq before its prompt, or None."""
    before: dict[str, int] = {}
    async for envelope in session.history(types=["prompt_accepted", "tool_use"]):
        if envelope.turn_id is None:
            continue
        if isinstance(envelope.event, PromptAccepted):
            before.setdefault(envelope.turn_id, envelope.seq - 1)
        if wanted(envelope.event):
            return envelope.turn_id, before.get(envelope.turn_id, 0)
    return None


def _within(request: AnswerRequest, served: ServedModel) -> tuple[AnswerRequest, list[str]]:
    """Return the request without the sampling that the backend lacks, and all names without effect. Raises `GatewayError`."""
    has = served.can.get("sampling") or ()
    lacking = [name for name in request.sampling if name not in has]
    if "tool_choice" in lacking:
        raise refused(
            f'tool_choice of {served.name.backend} is "auto" or "none": its CLI cannot be forced',
            "tool_choice",
            kind="unsupported",
        )
    if request.schema is not None and not served.can.get("structured"):
        raise refused(f"{served.name.backend} gives no answers by a schema", kind="unsupported")
    if request.tools and not (served.can.get("tools") or served.can.get("caller_tools")):
        raise refused(f"{served.name.backend} takes no tools", "tools", kind="unsupported")
    sampling = {name: value for name, value in request.sampling.items() if name in has}
    return replace(request, sampling=sampling), [*lacking, *request.ignored]


def _first_prompt(opening: Opening, history: list[Message], prompt: Message) -> Message:
    """Return the prompt of a new session. Results of a turn that is gone are told as text, if the backend takes no others."""
    stopped = open_round(history)
    results = results_in(prompt, stopped.waiting, stopped.brought) if stopped else {}
    if results and (opening.seed or not opening.native):
        return seeded((*opening.seed, prompt), Message.user(GO_ON), system=opening.system)
    brought = stopped.brought if stopped else ()
    return seeded(opening.seed, Message(role="user", content=(*brought, *prompt.content)), system=opening.system)


def _callers(info: SessionDetail, request: AnswerRequest) -> frozenset[str]:
    """Return the CLI's names of the tools of a session. A closed session does not tell them, its program does."""
    names = {*(info.tools or {}).get("names", ()), *(tool.name for tool in request.tools)}
    return frozenset(BRIDGE_PREFIX + name for name in names)
