"""Opening of sessions: `session/new`, `session/fork` and their checks. Each id has at most one session."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from clisup.config.session_spec import SessionApprovals, SessionSpec, SessionWorktree, params_digest
from clisup.daemon.backends import Backend, Backends
from clisup.daemon.services import Services
from clisup.daemon.sessions.cli_session import check_foreign_writer
from clisup.daemon.sessions.fork import make_fork
from clisup.daemon.sessions.history import Seeding, check_history_of
from clisup.daemon.sessions.session import Session
from clisup.daemon.tools.calls import check_mcp_config
from clisup.errors import UsageError, WorldError
from clisup.host import clock
from clisup.host.log import event_logger
from clisup.host.process.cli_processes import OwnProcesses
from clisup.host.process.markers import state_id
from clisup.host.threads import in_thread
from clisup.model.events import Actor
from clisup.store.opened import Opened
from clisup.store.session_dir import SessionDir
from clisup.store.transcripts import CopyInProgress
from clisup.wire.params import SessionForkParams, SessionNewParams, WorktreeParams

__all__ = ["SessionOpening"]

_log = event_logger()


class SessionOpening:
    """Opens sessions. `sessions` and `damaged` belong to the registry. `make` creates a session as it was opened.

    The opening holds `lock` while it adds a session, so a reload sees no half-opened session.
    """

    def __init__(
        self,
        services: Services,
        backends: Backends,
        nursery: trio.Nursery,
        sessions: dict[str, Session],
        damaged: dict[str, str],
        make: Callable[[Opened], Session],
    ) -> None:
        self.lock = trio.Lock()
        self._services = services
        self._backends = backends
        self._nursery = nursery
        self._sessions = sessions
        self._damaged = damaged
        self._make = make
        self._making: dict[str, trio.Event] = {}  # by session id, set when the session is there or has failed

    async def open(self, params: SessionNewParams, actor: Actor | None = None) -> Session:
        """Open a session, or find the session with the same id and params.

        Raises `UsageError`: session_exists, limit_exceeded, invalid_params, backend_not_found, session_busy,
        permission_denied; `WorldError`: backend_unavailable, backend_version_unsupported, storage_failed.
        """
        session_id = params.session_id or str(uuid.uuid4())
        digest = await in_thread(_digest, session_id, params) if params.history else _digest(session_id, params)
        await self._made(session_id)
        if session_id not in self._sessions:
            if params.backend is None:
                params = params.model_copy(update={"backend": self._backends.choose()})
            backend = self._backends.get(params.backend or "")
            self._check(session_id, params)
            # Without the lock: a CLI with a slow version report delays its own clients only.
            await backend.ready()
            if (native_id := params.resume_native_id) is not None:
                own = OwnProcesses(session_id, state_id(self._services.state_dir))
                await check_foreign_writer(self._services, backend, params.env or {}, native_id, own)
        check = partial(self._check, session_id, params)
        if params.history or params.worktree:
            create = partial(self._create_slowly, session_id, params, digest, actor)
            return await self._open_reserved(session_id, digest, check, create)
        async with self.lock:  # find or create in one step
            if session_id in self._sessions:
                return self._same(session_id, digest)
            check()
            return await self._create(session_id, params, digest, actor)

    async def fork(self, source: Session, params: SessionForkParams, actor: Actor) -> Session:
        """Open a session with another session's history, or find the session of an earlier call with the same params.

        Raises as `open` and `make_fork` do.
        """
        session_id = params.session_id_new or str(uuid.uuid4())
        digest = params_digest(session_id, {"fork": params.session_id, "at_turn": params.at_turn})

        def check() -> None:
            self._check_room(session_id)
            _check_cwd(source.spec.cwd)
            self._check_writer(source.backend.adapter.capabilities.native_id_prefix + session_id)

        async def create() -> Session:
            shared = source.spec.worktree
            self._services.worktrees.join(session_id, shared)  # before the copy, during which the source may close
            try:
                return self._begin_written(*await make_fork(source, session_id, digest, params.at_turn, actor))
            except BaseException:
                with trio.CancelScope(shield=True):
                    await self._services.worktrees.closed(session_id, shared)
                raise

        return await self._open_reserved(session_id, digest, check, create)

    async def _open_reserved(
        self, session_id: str, digest: str, check: Callable[[], None], create: Callable[[], Awaitable[Session]]
    ) -> Session:
        """Find or create a session. The write of a transcript takes seconds, so the creation does not hold the lock."""
        while True:
            await self._made(session_id)
            async with self.lock:
                if session_id in self._sessions:
                    return self._same(session_id, digest)
                if session_id not in self._making:
                    check()
                    self._making[session_id] = trio.Event()
                    break
        try:
            return await create()
        finally:
            self._making.pop(session_id).set()

    async def _made(self, session_id: str) -> None:
        """Wait for the end of another creation of this id."""
        while (made := self._making.get(session_id)) is not None:
            await made.wait()

    def _same(self, session_id: str, digest: str) -> Session:
        session = self._sessions[session_id]
        if session.spec.digest != digest:
            raise UsageError(
                f"session {session_id} exists with other params",
                kind="session_exists",
                hint="choose another id, or prompt the existing session",
            )
        return session

    def _check(self, session_id: str, params: SessionNewParams) -> None:
        backend = self._backends.get(params.backend or "")
        self._check_room(session_id)
        _check_cwd(params.cwd)
        self._check_writer(params.resume_native_id or session_id)
        backend.environment(request_env=params.env or {}, sets={}, markers={})
        _check_capabilities(params, backend)
        check_history_of(params, backend, max_image_bytes=self._services.config.daemon.max_image_bytes)

    def _check_room(self, session_id: str) -> None:
        """Refuse a session while the daemon stops, the id is taken, or too many sessions are open."""
        if self._services.storage.stopping:
            raise WorldError(
                "the daemon is stopping, so it opens no session",
                kind="shutting_down",
                hint="try again after its restart",
            )
        if session_id in self._damaged:
            raise WorldError(
                f"session {session_id} exists, but cannot be read: {self._damaged[session_id]}",
                kind="storage_failed",
                hint="choose another id; the old session was not changed",
            )
        if session_id in self._making:
            raise UsageError(
                f"session {session_id} is just being opened",
                kind="session_busy",
                hint="try again in a moment, or choose another id",
            )
        limit = self._services.config.daemon.max_sessions
        if len(self._services.opened) + len(self._making) >= limit:
            raise UsageError(
                f"{limit} sessions are open already",
                kind="limit_exceeded",
                hint="close some, or raise daemon.max_sessions",
                limit="max_sessions",
                value=limit,
            )

    def _check_writer(self, native: str) -> None:
        """Refuse a second writer of a native session: claude takes no lock, and its transcript would fork (2.1.329)."""
        if (session_id := self._services.opened.writer_of(native)) is not None:
            raise UsageError(
                f"session {session_id} has the native session {native} open",
                kind="session_busy",
                hint="prompt that session, or close it first",
                session_id=session_id,
            )

    async def _create_slowly(
        self, session_id: str, params: SessionNewParams, digest: str, actor: Actor | None
    ) -> Session:
        """Create a session with a history or a worktree. A worktree goes again if the session does not begin."""
        if not params.worktree:
            return await self._create(session_id, params, digest, actor)
        worktree, cwd = await self._worktree(session_id, params, digest)
        try:
            return await self._create(session_id, params.model_copy(update={"cwd": cwd}), digest, actor, worktree)
        except BaseException:
            with trio.CancelScope(shield=True):
                await self._services.worktrees.closed(session_id, worktree)
            raise

    async def _worktree(self, session_id: str, params: SessionNewParams, digest: str) -> tuple[SessionWorktree, str]:
        """Make the session's worktree, or share the one of another session. Raises as `Worktrees.make`."""
        asked = params.worktree if isinstance(params.worktree, WorktreeParams) else WorktreeParams()
        if asked.session_id is None:
            return await self._services.worktrees.make(
                params.cwd, session_id, digest, asked.name, asked.base, within=asked.within
            )
        other = self._sessions.get(asked.session_id)
        if other is None:
            raise UsageError(
                f"session {asked.session_id} not found",
                kind="session_not_found",
                hint="name a session whose worktree the new session shares",
            )
        return await self._services.worktrees.share(other.spec, session_id, within=asked.within), other.spec.cwd

    async def _create(
        self,
        session_id: str,
        params: SessionNewParams,
        digest: str,
        actor: Actor | None,
        worktree: SessionWorktree | None = None,
    ) -> Session:
        timeouts = params.timeouts.model_dump(exclude_none=True) if params.timeouts else {}
        asked = params.approvals
        approvals = (
            SessionApprovals(rules=tuple(asked.rules), unattended=asked.unattended) if asked else SessionApprovals()
        )
        spec = SessionSpec(
            session_id=session_id,
            backend=params.backend or "",
            cwd=params.cwd,
            created_at=clock.timestamp(),
            digest=digest,
            mode=params.mode,
            model=params.model,
            permission_mode=params.permission_mode,
            has_system_prompt=params.system_prompt is not None,
            has_mcp_config=params.mcp_config is not None,
            tools=tuple(tool.name for tool in params.tools or ()),
            cli_tools=tuple(params.cli_tools) if isinstance(params.cli_tools, list) else params.cli_tools or "default",
            system_prompt_mode=params.system_prompt_mode or "append",
            env_names=tuple(sorted(params.env or {})),
            timeouts=timeouts,
            approvals=approvals,
            budget=params.budget,
            labels=params.labels or {},
            title=params.title,
            resume_native_id=params.resume_native_id,
            worktree=worktree,
        )
        mcp = json.dumps(params.mcp_config).encode() if params.mcp_config is not None else None
        tools = [tool.model_dump(exclude_none=True) for tool in params.tools or ()]
        directory = SessionDir(self._services.state_dir, session_id)
        seeding = (
            Seeding(params, self._backends.get(params.backend or ""), session_id, actor) if params.history else None
        )
        spec = seeding.with_transcript(spec) if seeding is not None else spec
        record = partial(directory.create, spec, params.env or {}, params.system_prompt, mcp, tools)
        with self._services.storage.watched():
            if seeding is not None:
                return self._begin_written(spec, await in_thread(seeding.write, spec, directory, record))
            await in_thread(record)
            return self._begin(spec)

    def _begin(self, spec: SessionSpec) -> Session:
        opened = SessionDir(self._services.state_dir, spec.session_id).opened()
        session = self._make(opened or Opened(spec))
        session.load()
        try:
            session.record_origin()
        except BaseException:
            session.recorder.close()
            raise
        self._sessions[spec.session_id] = session
        self._services.opened.add(session.id, session.context.native_id)
        self._services.worktrees.join(session.id, spec.worktree)
        _log.info("session opened", session=session.id, backend=spec.backend, mode=spec.mode or session.backend.mode)
        self._nursery.start_soon(session.serve)
        return session

    def _begin_written(self, spec: SessionSpec, copy: CopyInProgress) -> Session:
        try:
            session = self._begin(spec)
        except BaseException:
            copy.undo()
            SessionDir(self._services.state_dir, spec.session_id).remove()
            raise
        copy.settle()
        return session


def _digest(session_id: str, params: SessionNewParams) -> str:
    return params_digest(session_id, params.model_dump(mode="json", exclude={"session_id"}, exclude_none=True))


def _check_cwd(cwd: str) -> None:
    """Check the session's directory. The keeper checks it again at each turn."""
    if not os.path.isdir(cwd):
        reason = "not a directory" if os.path.exists(cwd) else "directory not found"
    elif not os.access(cwd, os.R_OK | os.X_OK):
        reason = "permission denied"
    else:
        return
    raise UsageError(
        f"cannot use {cwd} as cwd: {reason}", kind="invalid_params", hint="give an existing directory as cwd"
    )


_FEATURES = {"mcp_config": "mcp"}  # names in `Capabilities` of params with another name


def _check_capabilities(params: SessionNewParams, backend: Backend) -> None:
    """Refuse params that the backend does not support. Raises `UsageError`: unsupported, invalid_params."""
    live = (params.mode or backend.mode) == "live"
    can = backend.adapter.capabilities.of(live=live)
    wants = {
        "system_prompt": params.system_prompt is not None and can.system_prompt is False,
        "mcp_config": params.mcp_config is not None and not can.mcp,
        "tools": params.tools is not None and not can.tools,
        "resume_native_id": params.resume_native_id is not None and not can.resume,
        "history": bool(params.history) and not can.history,
        "cli_tools": params.cli_tools not in (None, "default") and not can.cli_tools,
        "system_prompt_mode": params.system_prompt_mode not in (None, "append", *can.system_prompt_modes),
        "mode": (params.mode == "live" and not can.live) or (params.mode == "one-shot" and not can.one_shot),
    }
    for name in (name for name, missing in wants.items() if missing):
        raise UsageError(
            f"backend {backend.name!r} does not support {name}: {backend.adapter.lack(name, _FEATURES.get(name, ''))}",
            kind="unsupported",
            hint="see backend/list, or clisup backends --json",
        )
    modes = can.permission_modes
    if params.permission_mode is not None and modes is not None and params.permission_mode not in modes:
        raise UsageError(
            f"backend {backend.name!r} has no permission mode {params.permission_mode!r}",
            kind="invalid_params",
            hint=f"it has: {', '.join(modes) or 'none'}",
        )
    if params.tools:
        check_mcp_config(params.mcp_config)
