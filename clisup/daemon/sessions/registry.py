"""All sessions: opening, finding, adopting, and the figures that `clisup status` shows."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import structlog
import trio

from clisup.config.model import Config
from clisup.config.session_spec import SessionApprovals, SessionSpec, params_digest, why_unreadable
from clisup.daemon.backends import Backend, Backends
from clisup.daemon.limits.accounts import Accounts
from clisup.daemon.limits.running_slots import Slots
from clisup.daemon.ops.drift import Drift
from clisup.daemon.ops.leftovers import end_leftovers, end_unsupervised
from clisup.daemon.runs.keeper_starts import KeeperStarts
from clisup.daemon.runs.orphans import Orphans
from clisup.daemon.services import Services
from clisup.daemon.sessions.admission import check_capabilities, check_cwd, check_live
from clisup.daemon.sessions.concurrent_writers import check_foreign_writer
from clisup.daemon.sessions.fork import make_fork
from clisup.daemon.sessions.history import Seeding, check_history_of
from clisup.daemon.sessions.live import LivePool
from clisup.daemon.sessions.recorder import Item
from clisup.daemon.sessions.session import Session
from clisup.daemon.storage import Storage
from clisup.errors import ClisupError, UsageError, WorldError
from clisup.host import clock
from clisup.host.process.cgroups import CgroupHome
from clisup.host.process.keepers import compile_keeper
from clisup.host.process.native_writers import OwnProcesses
from clisup.host.process.own_process import machine_memory
from clisup.model.events import Actor, SessionForked, SessionSeeded
from clisup.model.lifecycle import SessionState
from clisup.model.sessions.totals import totals_of
from clisup.store.cursor_store import CursorStore
from clisup.store.session_dir import SessionDir, empty_trash, list_sessions
from clisup.store.stored_sessions import check_spec
from clisup.store.transcript_copies import CopyInProgress
from clisup.wire.models import SessionForkParams, SessionNewParams

__all__ = ["BYTES_PER_CLI", "Manager", "default_max_running"]

BYTES_PER_CLI = 300 * 1024 * 1024  # claude 2.1.329 takes 160-230 MB; its tools come on top
LOADED_AT_ONCE = 16  # sessions, some 10 ms: the signs of life for a service manager go on
SUSPEND_LOOK_S = 1.0
SUSPEND_NOISE_S = 2.0  # the two clocks are read one after the other
_log = structlog.get_logger()


def default_max_running() -> int:
    """What memory allows at 300 MB a CLI, at least one."""
    return max(1, machine_memory() // BYTES_PER_CLI)


class Manager:
    """Owns the sessions. `nursery` is where their tasks live; closing it detaches the daemon from its runs."""

    def __init__(self, config: Config, backends: Backends, state_dir: str, nursery: trio.Nursery) -> None:
        self.config = config
        self.backends = backends
        self.state_dir = state_dir
        self._nursery = nursery
        self._sessions: dict[str, Session] = {}
        self.opening = trio.Lock()
        self._making: dict[str, trio.Event] = {}  # set when the session of this id is there, or not to be
        slots = Slots(config.daemon.max_running or default_max_running())
        keepers, cgroups = KeeperStarts(compile_keeper(state_dir)), CgroupHome.find()
        storage = Storage(state_dir)
        accounts = Accounts(state_dir, storage, hold_s=config.daemon.limit_hold_s)
        drift = Drift(state_dir, storage)
        live = LivePool(config.daemon.max_live)
        self.services = Services(config, slots, state_dir, keepers, cgroups, storage, accounts, drift, live,
                                 Orphans(state_dir, lambda: self.services.keeps_orphans))  # fmt: skip
        self.cursors = CursorStore(state_dir, limit=config.daemon.max_cursors)
        self.adopted = 0
        self.stopping = False
        self.damaged: dict[str, str] = {}
        self._homeless: set[str] = set()  # of these the sessions whose backend is not configured

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    async def load(self) -> None:
        """Take up every stored session. One that cannot be read is reported and left alone: the others live."""
        await trio.to_thread.run_sync(empty_trash, self.state_dir)
        for number, session_id in enumerate(list_sessions(self.state_dir)):
            try:
                self._load_one(session_id)
            except Exception as error:  # a session's edge: whatever is wrong with one, the others live
                await self._set_aside(session_id, error)
            if number % LOADED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        await self._end_leftovers()  # before any session may start a run of its own
        for session in self:
            if session.state is not SessionState.CLOSED:
                self._nursery.start_soon(session.serve)

    async def _set_aside(self, session_id: str, error: Exception) -> None:
        """It is reported and its files stay as they are. A CLI of it that still runs is ended, for nobody could watch it.

        Where only its backend is missing, its CLI goes on: it is adopted when the backend is configured again, and the lease and
        the run's own limits bound it until then.
        """
        reason, ended = why_unreadable(error), list[int]()
        if isinstance(error, ClisupError) and error.kind == "backend_not_found":
            self._homeless.add(session_id)
        else:
            ended = await end_unsupervised(self.state_dir, session_id)
        if ended:
            reason += f" (its CLI was still running, in run {ended[-1]}, and was ended: nobody could watch it)"
        self.damaged[session_id] = reason
        fault = None if isinstance(error, ClisupError) else error
        _log.error("session not loaded", session=session_id, error=reason, ended_runs=ended, exc_info=fault)

    async def end_homeless(self) -> None:
        """End what still runs of sessions whose backend is not configured, because the daemon stops."""
        for session_id in sorted(self._homeless):
            for number in await end_unsupervised(self.state_dir, session_id):
                _log.warning("homeless run ended", session=session_id, run=number)

    async def _end_leftovers(self) -> None:
        """Processes of runs whose keeper died while no daemon lived. A running turn's own are left to its adoption."""
        running = {(s.id, s.ledger.held.run) for s in self if s.ledger.held is not None}
        for process in await end_leftovers(self.state_dir, self.services.cgroups, running):
            _log.warning("leftover ended", **process)

    async def watch_suspends(self) -> None:
        """Tell every running turn when the machine was suspended: what was silent meanwhile gets a new window."""
        before = clock.suspended()
        while True:
            await trio.sleep(SUSPEND_LOOK_S)
            now = clock.suspended()
            if now - before > SUSPEND_NOISE_S:
                _log.warning("machine resumed", suspended_s=round(now - before, 1))
                for session in self:
                    session.resumed(now - before)
            before = now

    def _load_one(self, session_id: str) -> None:
        directory = SessionDir(self.state_dir, session_id)
        spec = check_spec(directory)
        if spec is None:
            CopyInProgress(directory).undo()
            directory.remove()  # a crash in session/new or session/fork: its client got no answer
            return
        if spec.has_own_transcript:
            CopyInProgress(directory).settle()
        session = self._make(spec)
        session.load()
        _tell_origin(session)
        self._sessions[session_id] = session
        self.adopted += session.ledger.current is not None
        if session.state is SessionState.CLOSED:
            session.recorder.close()
        else:
            self.services.opened.settle(session)

    async def _load_homeless(self) -> None:
        """Those whose backend is there now. They wait for no more than that: their files are as they were."""
        for number, session_id in enumerate(sorted(self._homeless)):
            if number % LOADED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if session_id not in self._homeless:
                continue  # a reload after this one was faster
            try:
                self._load_one(session_id)
            except Exception as error:  # a session's edge, as in `load`
                if not isinstance(error, ClisupError) or error.kind != "backend_not_found":
                    self._homeless.discard(session_id)
                    await self._set_aside(session_id, error)
                continue
            self._homeless.discard(session_id)
            del self.damaged[session_id]
            session = self._sessions.get(session_id)  # None where its files were removed meanwhile
            if session is not None and session.state is not SessionState.CLOSED:
                self._nursery.start_soon(session.serve)

    def _make(self, spec: SessionSpec) -> Session:
        return Session(spec, self.backends.get(spec.backend), self.services, self._nursery)

    def renew(self, config: Config) -> None:
        """Another configuration, and `backends` as it has them: what sessions share at once, each session when it may."""
        limits = config.daemon
        self.config = self.services.config = config
        self.services.slots.resize(limits.max_running or default_max_running())
        self.services.accounts.hold(limits.limit_hold_s)
        self.services.live.resize(limits.max_live)
        self.cursors.limit = limits.max_cursors
        for session in self:
            if session.state is not SessionState.CLOSED:
                session.recorder.renew(
                    max_keys=limits.retention.keys,
                    segment_bytes=limits.segment_bytes,
                    durable=limits.fsync != "none",
                )
                session.renewal.come(self.backends.get(session.spec.backend))
        if self._homeless:
            self._nursery.start_soon(self._load_homeless)

    async def open(self, params: SessionNewParams, actor: Actor | None = None) -> Session:
        """Open a session, or find the one of the same id and params.

        Raises `UsageError`: session_exists, limit_exceeded, invalid_params, backend_not_found, session_busy,
        permission_denied; `WorldError`: backend_unavailable, backend_version_unsupported, storage_failed.
        """
        session_id = params.session_id or str(uuid.uuid4())
        digest = (
            await trio.to_thread.run_sync(_digest, session_id, params)
            if params.history
            else _digest(session_id, params)
        )
        await self._made(session_id)
        if session_id not in self._sessions:
            backend = self.backends.get(params.backend)
            self._check(session_id, params, backend)
            # Not under the lock: a CLI that is slow to tell its version holds up its own clients only.
            _, version = await backend.ready()
            check_live(params, backend, version)
            if params.resume_native_id is not None:
                own = OwnProcesses(session_id)
                await check_foreign_writer(self.services.looks, backend, params.env or {}, params.resume_native_id, own)
        if params.history:
            return await self._open_seeded(session_id, params, digest, actor)
        async with self.opening:  # get-or-create is one step
            if session_id in self._sessions:
                return self._same(session_id, digest)
            self._check(session_id, params, self.backends.get(params.backend))
            return await self._create(session_id, params, digest, actor)

    async def _open_seeded(
        self, session_id: str, params: SessionNewParams, digest: str, actor: Actor | None
    ) -> Session:
        """The same with a history: to write a long one takes seconds, for which nobody else waits."""
        while True:
            await self._made(session_id)
            async with self.opening:
                if session_id in self._sessions:
                    return self._same(session_id, digest)
                if session_id not in self._making:
                    self._check(session_id, params, self.backends.get(params.backend))
                    self._making[session_id] = trio.Event()
                    break
        try:
            return await self._create(session_id, params, digest, actor)
        finally:
            self._making.pop(session_id).set()

    async def _made(self, session_id: str) -> None:
        """Wait for as long as a session of this id is being made."""
        while (made := self._making.get(session_id)) is not None:
            await made.wait()

    def _same(self, session_id: str, digest: str) -> Session:
        session = self._sessions[session_id]
        if session.spec.digest != digest:
            raise UsageError(
                f"cannot open session {session_id}, because one of this id exists with other params",
                kind="session_exists",
                hint="choose another id, or prompt the existing session",
            )
        return session

    def _check(self, session_id: str, params: SessionNewParams, backend: Backend) -> None:
        self._check_room(session_id)
        check_cwd(params.cwd)
        self._check_writer(params.resume_native_id or session_id)
        backend.environment(request_env=params.env or {}, sets={}, markers={})
        check_capabilities(params, backend.name, backend.adapter.capabilities)
        check_history_of(params, backend, max_image_bytes=self.config.daemon.max_image_bytes)

    def _check_room(self, session_id: str) -> None:
        """May a session of this id be opened now?"""
        if self.stopping:
            raise WorldError(
                "cannot open a session, because the daemon is stopping",
                kind="shutting_down",
                hint="try again after its restart",
            )
        if session_id in self.damaged:
            raise WorldError(
                f"cannot open session {session_id}, because one of this id cannot be read: {self.damaged[session_id]}",
                kind="storage_failed",
                hint="choose another id; nothing of the old one was changed",
            )
        if session_id in self._making:
            raise UsageError(
                f"cannot open session {session_id}, because one of this id is being made",
                kind="session_busy",
                hint="try again in a moment, or choose another id",
            )
        limit = self.config.daemon.max_sessions
        if len(self.services.opened) + len(self._making) >= limit:
            raise UsageError(
                f"cannot open a session, because {limit} are open",
                kind="limit_exceeded",
                hint="close some, or raise daemon.max_sessions",
                limit="max_sessions",
                value=limit,
            )

    def _check_writer(self, native: str) -> None:
        """One writer for a native session: claude itself takes no lock, and its file forks (2.1.329)."""
        if (session := self.services.opened.writer_of(native)) is not None:
            raise UsageError(
                f"cannot resume {native}, because session {session.id} writes it",
                kind="session_busy",
                hint="prompt that session, or close it first",
                session_id=session.id,
            )

    async def _create(self, session_id: str, params: SessionNewParams, digest: str, actor: Actor | None) -> Session:
        timeouts = params.timeouts.model_dump(exclude_none=True) if params.timeouts else {}
        asked = params.approvals
        approvals = (
            SessionApprovals(rules=tuple(asked.rules), unattended=asked.unattended) if asked else SessionApprovals()
        )
        spec = SessionSpec(
            session_id=session_id,
            backend=params.backend,
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
            resume_native_id=params.resume_native_id,
        )
        mcp = json.dumps(params.mcp_config).encode() if params.mcp_config is not None else None
        tools = [tool.model_dump(exclude_none=True) for tool in params.tools or ()]
        directory = SessionDir(self.state_dir, session_id)
        seeding = Seeding(params, self.backends.get(params.backend), session_id, actor) if params.history else None
        spec = seeding.spec_of(spec) if seeding is not None else spec
        record = partial(directory.create, spec, params.env or {}, params.system_prompt, mcp, tools)
        with self.services.storage.watched():
            if seeding is not None:
                return self._begin_written(spec, await trio.to_thread.run_sync(seeding.write, spec, directory, record))
            await trio.to_thread.run_sync(record)
            return self._begin(spec)

    def _begin(self, spec: SessionSpec) -> Session:
        session = self._make(spec)
        session.load()
        try:
            _tell_origin(session)
        except BaseException:
            session.recorder.close()
            raise
        self._sessions[spec.session_id] = session
        self.services.opened.settle(session)
        _log.info("session opened", session=session.id, backend=spec.backend, mode=spec.mode or session.backend.mode)
        self._nursery.start_soon(session.serve)
        return session

    async def fork(self, params: SessionForkParams, actor: Actor) -> Session:
        """Open a session with the history of another one, or find the one that the same params have made before.

        Raises as `open` and `make_fork` do.
        """
        source = self.get(params.session_id)
        session_id = params.session_id_new or str(uuid.uuid4())
        asked = {"fork": params.session_id, "at_turn": params.at_turn}
        digest = params_digest(session_id, asked)
        while True:
            await self._made(session_id)
            async with self.opening:  # one that `open` is writing is not among the sessions yet
                if session_id in self._sessions:
                    return self._same(session_id, digest)
                if session_id not in self._making:
                    self._check_room(session_id)
                    check_cwd(source.spec.cwd)
                    self._check_writer(source.backend.adapter.capabilities.native_id_prefix + session_id)
                    self._making[session_id] = trio.Event()
                    break
        try:
            spec, copy = await make_fork(source, session_id, digest, params.at_turn, actor)
            return self._begin_written(spec, copy)
        finally:
            self._making.pop(session_id).set()

    def _begin_written(self, spec: SessionSpec, copy: CopyInProgress) -> Session:
        try:
            session = self._begin(spec)
        except BaseException:
            copy.undo()
            SessionDir(self.state_dir, spec.session_id).remove()
            raise
        copy.settle()
        return session

    def get(self, session_id: str) -> Session:
        """A session by id. Raises `UsageError(session_not_found)`, or says why a damaged one cannot be used."""
        if session_id in self._sessions:
            return self._sessions[session_id]
        reason, hint = self.damaged.get(session_id, "there is none of this id"), "see session/list, or clisup sessions"
        if session_id in self._homeless:
            hint = "put that backend back into the configuration, then: clisup daemon reload"
        raise UsageError(f"cannot find session {session_id}, because {reason}", kind="session_not_found", hint=hint)

    def has_tools(self) -> bool:
        """Is there an open session with tools, whose CLI may start a bridge?"""
        return any(session.tools is not None and session.state is not SessionState.CLOSED for session in self)

    def find(self, session_id: str) -> Session | None:
        """A session by id; None where there is none, or none that can be read."""
        return self._sessions.get(session_id)

    async def delete(self, session_id: str) -> None:
        """Remove a closed session's record, whole. Raises `UsageError`: session_not_found, session_busy; `WorldError`."""
        session = self.get(session_id)
        if session.state is not SessionState.CLOSED:
            raise UsageError(
                f"cannot delete session {session_id}, because it is open",
                kind="session_busy",
                hint="close it first: session/close, or clisup close",
            )
        with self.services.storage.watched():
            self.cursors.drop_sessions([session_id])
        trash = session.dir.throw_away()
        self._sessions.pop(session_id).gate.part()
        _log.info("session deleted", session=session_id)
        for watcher in (*self.services.everywhere, *self.services.at_ends, *session.recorder.watchers):
            watcher.forget(session_id)
        await trio.to_thread.run_sync(lambda: shutil.rmtree(trash, ignore_errors=True))

    async def look_at_memory(self) -> None:
        """Bring the sessions' `rss_bytes` up to date, or nearly so."""
        await self.services.memory.refresh(
            lambda: {s.id: s.run.keeper_pid for s in self if s.run is not None and s.run.keeper_pid is not None}
        )

    def totals(self) -> dict[str, Any]:
        """Sums over all sessions."""
        return totals_of(session.ledger for session in self)


def _tell_origin(session: Session) -> None:
    """The first event says what it is a fork of, or begins with, also where a daemon before this one died before it could."""
    spec = session.spec
    if spec.forked_from is not None and session.recorder.next_seq == 1:
        session.recorder.record([Item(msgspec.convert(spec.forked_from, SessionForked))])
    elif spec.seeded is not None and session.recorder.next_seq == 1:
        session.recorder.record([Item(msgspec.convert(spec.seeded, SessionSeeded))])


def _digest(session_id: str, params: SessionNewParams) -> str:
    return params_digest(session_id, params.model_dump(mode="json", exclude={"session_id"}, exclude_none=True))
