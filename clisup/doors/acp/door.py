"""Agent of the Agent Client Protocol for one editor: a client of the daemon, whose sessions outlive this process."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from clisup.client.aio import AsyncClient
from clisup.client.aio_session import AsyncSession
from clisup.client.options import SessionOptions
from clisup.client.raw import JsonObject
from clisup.client.reconnect import new_key
from clisup.doors.acp.calls import surely
from clisup.doors.acp.commands import run_command
from clisup.doors.acp.connection import EditorConnection
from clisup.doors.acp.prompts import EditorCommand, command_of, prompt_of
from clisup.doors.acp.protocol import CANCELLED, error_object, initialize_result, list_param, negotiated, text_param
from clisup.doors.acp.session import EditorSession
from clisup.doors.acp.settings import COMMANDS, SessionBackend, mcp_config, session_info
from clisup.doors.acp.turns import EditorTurn, prompt_result
from clisup.doors.log import DoorLog
from clisup.errors import ClisupError, UsageError, WorldError
from clisup.host.log_file import traceback_of
from clisup.wire.jsonrpc import Request

__all__ = ["MAX_REQUESTS", "MAX_SESSIONS", "AcpDoor", "DoorOptions"]

MAX_REQUESTS = 128
"""Requests of an editor that run at once."""

MAX_SESSIONS = 64
"""Sessions that one editor has open at once. Each has a connection to the daemon."""

_PAGE = 100
_PAGES = 20  # pages of sessions of other directories that one `session/list` passes over
_MODELS_S = 5.0
_FLUSH_S = 2.0
_ANY: JsonObject = {"mcp": True, "images": True, "fork": True}
"""Capabilities to tell while the backend is not known. The daemon refuses what a backend cannot take."""

_Handler = Callable[[JsonObject], Awaitable[JsonObject | None]]


class DoorOptions(NamedTuple):
    """Options of `clisup acp`. Without a `backend` the daemon chooses; `root` is a directory that all sessions must be in."""

    backend: str | None = None
    root: str | None = None


class _EditorRequest:
    """Request of the editor that runs. A prompt has its `session` and its `turn`."""

    def __init__(self, session: EditorSession | None = None, turn: EditorTurn | None = None) -> None:
        self.scope, self.session, self.turn = trio.CancelScope(), session, turn


class AcpDoor:
    """Agent for the editor at the other end of a connection. `run` ends when the editor closes its end."""

    def __init__(self, client: AsyncClient, editor: EditorConnection, options: DoorOptions, log: DoorLog) -> None:
        self._client, self._editor, self._options, self._log = client, editor, options, log
        self._nursery: trio.Nursery
        self._running: dict[str | int, _EditorRequest] = {}
        self._sessions: dict[str, EditorSession] = {}
        self._backends: dict[str, SessionBackend] = {}
        self._default: SessionBackend | None = None
        self._models: dict[str, tuple[str, ...]] = {}
        self._client_info: JsonObject | None = None
        self._shows_forms = False
        self._methods: dict[str, _Handler] = {
            "initialize": self._initialize, "session/new": self._new, "session/load": self._load,
            "session/resume": self._resume, "session/list": self._list, "session/fork": self._fork,
            "session/close": self._close, "session/delete": self._delete, "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option, "session/set_model": self._set_model,
        }  # fmt: skip

    async def run(self) -> None:
        """Serve the editor."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._write)
            async for frame in self._editor.frames():
                self._log.write(f"{frame.method} {'' if frame.id is None else frame.id}")
                if frame.id is None:
                    self._notified(frame)
                else:
                    await self._begin(frame, frame.id)
            await self._editor.flush(_FLUSH_S)
            self._nursery.cancel_scope.cancel()

    async def _write(self) -> None:
        await self._editor.write_queued()
        self._nursery.cancel_scope.cancel()

    # -- requests

    async def _begin(self, request: Request, id_: str | int) -> None:
        """Start a request. A prompt takes its place in its session now: tasks begin in any order."""
        try:
            if id_ in self._running or len(self._running) >= MAX_REQUESTS:
                why = (
                    f"request {id_!r} runs already" if id_ in self._running else f"{MAX_REQUESTS} requests run already"
                )
                raise UsageError(f"cannot begin the request, because {why}", kind="invalid_request")
            running = self._expect(request) if request.method == "session/prompt" else _EditorRequest()
        except ClisupError as error:
            await self._editor.refuse(id_, error_object(error))
            return
        self._running[id_] = running
        self._nursery.start_soon(self._run, request, id_)

    async def _run(self, request: Request, id_: str | int) -> None:
        running = self._running[id_]
        try:
            with running.scope:
                await self._editor.answer(id_, await self._result(request, running))
            if running.scope.cancelled_caught:
                await self._editor.refuse(id_, {"code": CANCELLED, "message": "cancelled", "data": {}})
        except ClisupError as error:
            await self._editor.refuse(id_, error_object(error))
        except Exception as error:  # a fault of this request must not end the door
            self._log.write(f"fault in {request.method}: {traceback_of(error)}")
            fault = ClisupError("the request failed: internal error of clisup acp", hint="see --log-file")
            await self._editor.refuse(id_, error_object(fault))
        finally:
            del self._running[id_]
        if request.method in ("session/new", "session/load", "session/resume", "session/fork"):
            await self._announce()

    async def _result(self, request: Request, running: _EditorRequest) -> JsonObject | None:
        if running.session is not None and running.turn is not None:
            return await self._prompt(request.params, running.session, running.turn)
        if request.method == "authenticate":
            raise UsageError("this agent has no ways to log in: log in with the CLI itself", hint="see clisup doctor")
        handler = self._methods.get(request.method)
        if handler is None:
            raise UsageError(f"this agent has no method {request.method[:64]!r}", kind="method_not_found")
        if self._client_info is None and request.method != "initialize":
            raise UsageError("the connection is not initialized", kind="invalid_request", hint="send initialize first")
        return await handler(request.params)

    def _notified(self, frame: Request) -> None:
        """Take a notification. Unknown ones are ignored, as the protocol demands."""
        if frame.method == "session/cancel":
            session = self._sessions.get(str(frame.params.get("sessionId")))
            if session is not None:
                self._nursery.start_soon(self._cancel, session)
        elif frame.method == "$/cancel_request":
            wanted = frame.params.get("requestId")
            running = self._running.get(wanted) if isinstance(wanted, str | int) else None
            if running is not None and running.turn is None:
                running.scope.cancel()
            elif running is not None and running.turn is not None:
                self._nursery.start_soon(self._cancel_turn, running.turn)

    # -- initialize

    async def _initialize(self, params: JsonObject) -> JsonObject:
        version = negotiated(params.get("protocolVersion"))
        for about in await self._client.backends():
            facts = SessionBackend(about.name, about.capabilities)
            self._backends[facts.name] = facts
        if self._options.backend is not None:
            self._default = self._backend(self._options.backend)
        can = params.get("clientCapabilities")
        forms = can.get("elicitation") if isinstance(can, dict) else None
        self._shows_forms = isinstance(forms, dict) and forms.get("form") is not None
        info = params.get("clientInfo")
        self._client_info = info if isinstance(info, dict) else {}
        return initialize_result(
            version, self._default.capabilities if self._default else {"mcp": True, "images": True, "fork": True}
        )

    def _backend(self, name: str) -> SessionBackend:
        if name not in self._backends:
            raise WorldError(
                f"there is no backend {name[:64]!r}",
                kind="backend_not_found",
                hint=f"it has: {', '.join(self._backends)}",
            )
        return self._backends[name]

    # -- sessions

    async def _new(self, params: JsonObject) -> JsonObject:
        cwd = self._directory(text_param(params, "cwd"))
        if params.get("additionalDirectories"):
            raise UsageError("this agent takes no additionalDirectories", hint="open one session for each directory")
        servers = list_param(params, "mcpServers")
        self._check_room()
        name = str((self._client_info or {}).get("name") or "editor")[:256]
        session = await self._open(cwd, {"labels": {"editor": name}, "mcp_config": mcp_config(servers)})
        return await self._opened(session.id, after=0, show="later")

    async def _open(self, cwd: str, options: SessionOptions) -> AsyncSession:
        """Open a session that keeps its process, where the backend can: only then can a CLI ask its user.

        MCP servers are left out where the backend takes none. Editors send theirs with every session.
        """
        named, live, plain = self._default, {**options, "mode": "live"}, {**options}
        tries: list[JsonObject] = [live, plain, {**plain, "mcp_config": None}]
        if named is not None:
            tries = [{**(live if named.can("live") else plain), **({} if named.can("mcp") else {"mcp_config": None})}]
        for number, given in enumerate(tries, 1):
            try:
                return await self._client.open(named.name if named else None, cwd, **given)
            except ClisupError as error:
                if error.kind != "unsupported" or number == len(tries):
                    raise
        raise AssertionError("the last try returns or raises")

    async def _load(self, params: JsonObject) -> JsonObject:
        state = await self._opened(text_param(params, "sessionId"), after=0, show="all")
        del state["sessionId"]
        return state

    async def _resume(self, params: JsonObject) -> JsonObject:
        meta = params.get("_meta")
        about = meta.get("clisup") if isinstance(meta, dict) else None
        after = about.get("afterSeq") if isinstance(about, dict) else None
        if after is not None and (isinstance(after, bool) or not isinstance(after, int) or after < 0):
            raise UsageError("cannot resume, because _meta.clisup.afterSeq is no seq", param="_meta")
        state = await self._opened(text_param(params, "sessionId"), after=after, show="later")
        del state["sessionId"]
        return state

    async def _fork(self, params: JsonObject) -> JsonObject:
        source = self._client.attach(text_param(params, "sessionId"))
        self._directory((await source.info()).cwd)
        self._check_room()
        forked = await source.fork()
        return await self._opened(forked.id, after=None, show="later")

    async def _opened(self, session_id: str, *, after: int | None, show: str) -> JsonObject:
        """Attach the editor to a session, and return the session's state. Its stored events are shown before."""
        info = await self._client.attach(session_id).info()
        self._directory(info.cwd)
        if (old := self._sessions.pop(session_id, None)) is not None:
            old.leave()
        self._check_room()
        backend = self._backends.get(info.backend) or SessionBackend(info.backend, {})
        session = EditorSession(
            self._client, self._editor, self._log, session_id, info.cwd, backend, shows_forms=self._shows_forms
        )
        session.maker.model = info.model
        session.models = await self._models_of(backend)
        upto = info.next_seq - 1
        await self._nursery.start(session.run)
        try:
            await session.begin(
                upto if after is None else after,
                show="all" if show == "all" else "later",
                idle=info.turn_id is None,
                first=info.first_seq,
                upto=upto,
            )
        except BaseException:
            session.leave()
            raise
        self._sessions[session_id] = session
        session.follow(upto)
        return {"sessionId": session_id, **session.state()}

    async def _announce(self) -> None:
        """Send the commands of sessions that were opened, after the answer to the request."""
        for session in [item for item in self._sessions.values() if not item.announced]:
            session.announced = True
            await session.announce()

    async def _models_of(self, backend: SessionBackend) -> tuple[str, ...]:
        """Return the models of a backend that can list them, asked once."""
        if backend.name not in self._models and backend.can("caller_tools"):
            self._models[backend.name] = ()
            with trio.move_on_after(_MODELS_S):
                try:
                    self._models[backend.name] = tuple(await self._client.models(backend.name))
                except ClisupError as error:
                    self._log.write(f"backend {backend.name} lists no models: {error.kind}")
        return self._models.get(backend.name, ())

    async def _list(self, params: JsonObject) -> JsonObject:
        cwd, cursor = params.get("cwd"), params.get("cursor")
        if cursor is not None and not isinstance(cursor, str):
            raise UsageError("cannot list the sessions, because cursor is not a text", param="cursor")
        found: list[JsonObject] = []
        for _ in range(_PAGES):
            page = await surely(self._client, "session/list", limit=_PAGE, cursor=cursor or None)
            found += [session_info(row) for row in page["sessions"] if self._is_listed(row, cwd)]
            cursor = page.get("next_cursor")
            if found or not cursor:
                break
        return {"sessions": found, **({"nextCursor": cursor} if cursor else {})}

    def _is_listed(self, row: JsonObject, cwd: object) -> bool:
        if isinstance(cwd, str) and os.path.normpath(row["cwd"]) != os.path.normpath(cwd):
            return False
        return self._options.backend in (None, row["backend"]) and self._is_inside(row["cwd"])

    async def _close(self, params: JsonObject) -> None:
        """Cancel the editor's prompts and leave the session. The session itself stays: `session/load` opens it again."""
        session = self._session(params)
        await self._cancel(session)
        del self._sessions[session.id]
        session.leave()

    async def _delete(self, params: JsonObject) -> None:
        id_ = text_param(params, "sessionId")
        session = self._client.attach(id_)
        self._directory((await session.info()).cwd)
        if (own := self._sessions.pop(id_, None)) is not None:
            own.leave()
        await session.close()
        await session.delete()

    def _session(self, params: JsonObject) -> EditorSession:
        id_ = text_param(params, "sessionId")
        session = self._sessions.get(id_)
        if session is None:
            raise UsageError(
                f"session {id_[:64]!r} is not open here",
                kind="session_not_found",
                hint="send session/load or session/resume",
            )
        return session

    def _check_room(self) -> None:
        if len(self._sessions) >= MAX_SESSIONS:
            raise UsageError(
                f"{MAX_SESSIONS} sessions are open already", kind="limit_exceeded", hint="close one: session/close"
            )

    def _directory(self, cwd: str) -> str:
        """Return the directory of a session. Raises `UsageError` for one that is not absolute, or outside of the root."""
        if not cwd.startswith("/"):
            raise UsageError("cannot open the session, because cwd is not an absolute path", param="cwd")
        if not self._is_inside(cwd):
            raise UsageError(
                f"the session's directory {cwd} is outside of {self._options.root}",
                hint="this agent was started with --cwd-root", param="cwd",
            )  # fmt: skip
        return cwd

    def _is_inside(self, cwd: str) -> bool:
        root = self._options.root
        return root is None or os.path.commonpath([os.path.realpath(root), os.path.realpath(cwd)]) == os.path.realpath(
            root
        )

    # -- settings

    async def _set_mode(self, params: JsonObject) -> None:
        await self._session(params).session.set_permission_mode(text_param(params, "modeId"))

    async def _set_model(self, params: JsonObject) -> None:
        await self._session(params).session.set_model(text_param(params, "modelId"))

    async def _set_option(self, params: JsonObject) -> JsonObject:
        session, name, value = self._session(params), text_param(params, "configId"), text_param(params, "value")
        if name == "mode":
            await session.session.set_permission_mode(value)
            session.maker.mode = value
        elif name == "model":
            await session.session.set_model(value)
            session.maker.model = value
        else:
            raise UsageError(f"there is no option {name[:64]!r}", hint="mode and model", param="configId")
        return {"configOptions": session.options()}

    # -- prompts

    def _expect(self, request: Request) -> _EditorRequest:
        """Give a prompt its place in its session."""
        session = self._session(request.params)
        meta = request.params.get("_meta")
        about = meta.get("clisup") if isinstance(meta, dict) else None
        key = about.get("key") if isinstance(about, dict) else None
        turn = session.expect(key if isinstance(key, str) and 0 < len(key) <= 256 else f"acp-{new_key()}")
        return _EditorRequest(session, turn)

    async def _prompt(self, params: JsonObject, session: EditorSession, turn: EditorTurn) -> JsonObject:
        """Send a prompt, and return once all updates of its turn were sent."""
        try:
            blocks = prompt_of(list_param(params, "prompt"))
            command = command_of(blocks)
            await turn.wait_for_my_place()
            if turn.cancelled:
                return {"stopReason": "cancelled"}
            if command is not None and command.name in {name for name, _, _ in COMMANDS} - {"compact"}:
                await session.say(await run_command(session.session, command))
                return {"stopReason": "end_turn"}
            await self._send(session, turn, blocks, command)
            turn.sent()
            if turn.cancelled:
                await self._cancel_turn(turn)
            return prompt_result(await turn.wait(), session.backend.name, session.id)
        finally:
            session.forget(turn)

    async def _send(
        self, session: EditorSession, turn: EditorTurn, blocks: list[JsonObject], command: EditorCommand | None
    ) -> None:
        if command is not None and command.name == "compact":
            accepted = await session.session.compact(command.words or None, key=turn.key, wait=False)
        else:
            accepted = await session.session.prompt(blocks, key=turn.key, wait=False, expand=command is not None)
        turn.turn_id = accepted.turn_id
        if accepted.held is not None:
            until = accepted.held.get("until") or "it may go on"
            await session.think(f"The account has reached a limit, and the prompt waits until {until}.\n")
        elif accepted.delivery == "queued":
            await session.think(f"The prompt waits for the turns before it ({accepted.position}).\n")
        if accepted.delivery in ("duplicate", "uncertain"):
            await session.look_for_end(turn, accepted.seq)

    async def _cancel(self, session: EditorSession) -> None:
        """Interrupt the editor's turns, else the one that runs."""
        for turn in reversed(session.turns):
            await self._cancel_turn(turn)
        if not session.turns:
            await session.interrupt(None)

    async def _cancel_turn(self, turn: EditorTurn) -> None:
        """Interrupt the turn of a prompt, as soon as the prompt has one."""
        turn.cancelled = True
        if turn.turn_id is not None:
            session = next((item for item in self._sessions.values() if turn in item.turns), None)
            if session is not None:
                await session.interrupt(turn.turn_id)
