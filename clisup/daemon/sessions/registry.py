"""Registry of all sessions: load, find, adopt and delete sessions."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from typing import Any

import trio

from clisup.config.model import Config
from clisup.config.session_spec import why_unreadable
from clisup.daemon.backends import Backends
from clisup.daemon.journal.storage import Storage
from clisup.daemon.limits.accounts import Accounts
from clisup.daemon.limits.running_slots import RunningSlots
from clisup.daemon.ops.drift import Drift
from clisup.daemon.runs.keeper_starts import KeeperStarts
from clisup.daemon.runs.leftovers import end_leftovers, end_unsupervised
from clisup.daemon.runs.orphans import Orphans
from clisup.daemon.services import Services
from clisup.daemon.sessions.live import LivePool
from clisup.daemon.sessions.opening import SessionOpening
from clisup.daemon.sessions.session import Session
from clisup.daemon.sessions.session_row import totals_of
from clisup.daemon.tools.calls import SessionTools
from clisup.errors import ClisupError, UsageError
from clisup.host import clock
from clisup.host.capacity import live_at_once, turns_at_once
from clisup.host.log import event_logger
from clisup.host.process.cgroups import CgroupHome
from clisup.host.process.helpers import HELPERS
from clisup.host.shortage import shortage_of
from clisup.host.threads import in_thread
from clisup.model.events import Actor
from clisup.model.lifecycle import SessionState
from clisup.store.cursor_store import CursorStore
from clisup.store.opened import Opened
from clisup.store.session_dir import SessionDir, empty_trash, list_sessions
from clisup.store.transcripts import CopyInProgress
from clisup.wire.params import SessionForkParams, SessionNewParams

__all__ = ["Manager"]

LOADED_AT_ONCE = 16  # sessions, about 10 ms: watchdog pings to a service manager continue
SUSPEND_CHECK_S = 1.0
SUSPEND_NOISE_S = 2.0  # the two clocks are read one after the other
_log = event_logger()


class Manager:
    """Owner of the sessions. `nursery` has the sessions' tasks. The end of the nursery detaches the daemon from its runs."""

    def __init__(self, config: Config, backends: Backends, state_dir: str, nursery: trio.Nursery) -> None:
        self.config = config
        self.backends = backends
        self.state_dir = state_dir
        self._nursery = nursery
        self._sessions: dict[str, Session] = {}
        slots = RunningSlots(turns_at_once(config.daemon.max_running).turns)
        keepers, cgroups = KeeperStarts(), CgroupHome.find()
        storage = Storage(state_dir)
        accounts = Accounts(state_dir, storage, config)
        drift = Drift(state_dir, storage)
        self.services = Services(config, slots, state_dir, keepers, cgroups, storage, accounts, drift,
                                 Orphans(state_dir, lambda: self.services.keeps_orphans), backends.inherited)  # fmt: skip
        HELPERS.end_orphans = self.services.orphans.end
        self.live = LivePool(live_at_once(config.daemon.max_live))
        self.cursors = CursorStore(state_dir, limit=config.daemon.max_cursors)
        self.adopted = 0
        self.damaged: dict[str, str] = {}
        self._homeless: set[str] = set()  # damaged sessions whose backend is not configured
        self.opening = SessionOpening(self.services, backends, nursery, self._sessions, self.damaged, self._make)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    async def load(self) -> None:
        """Load every stored session. Report an unreadable session, and leave its files alone.

        Raises `WorldError(overloaded)` for a shortage: to set a session aside would end its CLI.
        """
        await in_thread(empty_trash, self.state_dir)
        await in_thread(self.services.worktrees.load)
        for number, session_id in enumerate(list_sessions(self.state_dir)):
            try:
                self._load_one(session_id)
            except Exception as error:  # a fault of one session must not affect the others
                if (shortage := shortage_of(error)) is not None:
                    raise shortage from error
                await self._set_aside(session_id, error)
            if number % LOADED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        await self._end_leftovers()  # before any session may start a run of its own
        for session in self:
            if session.state is not SessionState.CLOSED:
                self._nursery.start_soon(session.serve)

    async def _set_aside(self, session_id: str, error: Exception) -> None:
        """Report an unreadable session, and keep its files. End its running CLI: the daemon cannot watch the CLI.

        If only the backend is missing, the CLI continues. The daemon adopts the run when the backend is configured
        again. Until then the lease and the run's own limits bound the CLI.
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
        """End the runs of sessions without a configured backend, because the daemon stops."""
        for session_id in sorted(self._homeless):
            for number in await end_unsupervised(self.state_dir, session_id):
                _log.warning("homeless run ended", session=session_id, run=number)

    async def _end_leftovers(self) -> None:
        """End the processes of runs whose keeper died while no daemon ran. Running turns name what their runs leave."""
        running = {(s.id, s.ledger.active_turn.run) for s in self if s.ledger.active_turn is not None}
        released = self.services.orphans.released
        for process in await end_leftovers(self.state_dir, self.services.cgroups, running, released):
            _log.warning("leftover ended", **process)

    async def watch_suspends(self) -> None:
        """Give every running turn a new window after a suspend of the machine."""
        before = clock.suspended()
        while True:
            await trio.sleep(SUSPEND_CHECK_S)
            now = clock.suspended()
            if now - before > SUSPEND_NOISE_S:
                _log.warning("machine resumed", suspended_s=round(now - before, 1))
                for session in self:
                    if session.run is not None:
                        session.run.resumed(now - before)
            before = now

    def _load_one(self, session_id: str) -> None:
        directory = SessionDir(self.state_dir, session_id)
        opened = directory.opened()
        if opened is None:
            CopyInProgress(directory).undo()
            directory.remove()  # an earlier daemon died in session/new or session/fork: the client got no answer
            return
        if opened.spec.has_own_transcript:
            CopyInProgress(directory).settle()
        session = self._make(opened)
        session.load()
        session.record_origin()
        session.hold(opened)
        self._sessions[session_id] = session
        self.adopted += session.ledger.current is not None
        if session.state is SessionState.CLOSED:
            session.recorder.close()
        else:
            self.services.opened.add(session.id, session.context.native_id)
            self.services.worktrees.join(session_id, opened.spec.worktree)

    async def _load_homeless(self) -> None:
        """Load the sessions whose backend is configured again."""
        for number, session_id in enumerate(sorted(self._homeless)):
            if number % LOADED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if session_id not in self._homeless:
                continue  # a later reload was faster
            try:
                self._load_one(session_id)
            except Exception as error:  # as in `load`; after a shortage, the next reload tries again
                if shortage_of(error) is not None:
                    continue
                if not isinstance(error, ClisupError) or error.kind != "backend_not_found":
                    self._homeless.discard(session_id)
                    await self._set_aside(session_id, error)
                continue
            self._homeless.discard(session_id)
            del self.damaged[session_id]
            session = self._sessions.get(session_id)  # None if its files were removed meanwhile
            if session is not None and session.state is not SessionState.CLOSED:
                self._nursery.start_soon(session.serve)

    def _make(self, opened: Opened) -> Session:
        return Session(opened, self.backends.get(opened.spec.backend), self.services, self.live, self._nursery)

    def renew(self, config: Config) -> None:
        """Apply another configuration: to shared services at once, to each session between its turns."""
        limits = config.daemon
        self.config = self.services.config = config
        self.services.slots.resize(turns_at_once(limits.max_running).turns)
        self.services.accounts.configure(config)
        self.live.resize(live_at_once(limits.max_live))
        self.cursors.limit = limits.max_cursors
        for session in self:
            if session.state is not SessionState.CLOSED:
                session.recorder.renew(
                    max_keys=limits.retention.keys,
                    segment_bytes=limits.segment_bytes,
                    durable=limits.fsync != "none",
                )
                session.change_backend(self.backends.get(session.spec.backend))
        if self._homeless:
            self._nursery.start_soon(self._load_homeless)

    def get(self, session_id: str) -> Session:
        """Return a session. Raises `UsageError(session_not_found)`, with the reason for a damaged one."""
        if session_id in self._sessions:
            return self._sessions[session_id]
        reason, hint = self.damaged.get(session_id), "see session/list, or clisup sessions"
        if session_id in self._homeless:
            hint = "add that backend to the configuration again, then: clisup daemon reload"
        message = (
            f"session {session_id} not found" if reason is None else f"session {session_id} cannot be used: {reason}"
        )
        raise UsageError(message, kind="session_not_found", hint=hint)

    async def open(self, params: SessionNewParams, actor: Actor | None = None) -> Session:
        """Open a session, as `SessionOpening.open`."""
        return await self.opening.open(params, actor)

    async def fork(self, params: SessionForkParams, actor: Actor) -> Session:
        """Open a session with another session's history, as `SessionOpening.fork`."""
        return await self.opening.fork(self.get(params.session_id), params, actor)

    def with_approval(self, approval_id: str, session_id: str | None) -> Session:
        """Return the session of an approval. Search all sessions if `session_id` is missing.

        Raises `UsageError`: session_not_found, approval_not_found, approval_already_resolved. Raises invalid_params if
        several sessions have an approval of this id: some CLIs number their requests.
        """
        if session_id is not None:
            return self.get(session_id)
        pending = [session for session in self if approval_id in session.approvals.open]
        if len(pending) == 1:
            return pending[0]
        if pending:
            raise UsageError(
                f"{len(pending)} sessions have an approval {approval_id}",
                hint="give its session_id",
                sessions=[session.id for session in pending],
            )
        known = next((session for session in self if approval_id in session.ledger.resolved), None)
        if known is not None:
            known.approvals.check(approval_id)
        raise UsageError(
            f"approval {approval_id} not found in any session",
            kind="approval_not_found",
            hint="see approval/list, or clisup approvals",
        )

    def tools_of_token(self, token: str) -> tuple[Session, SessionTools]:
        """Return the session and the tools of a bridge's token.

        Raises `UsageError(permission_denied)`. The error never says what is wrong with the token.
        """
        session = self.find(token.partition(".")[0])
        if session is not None and session.tools is not None and session.tools.has_token(token):
            return session, session.tools
        raise UsageError(
            "this token belongs to no open session",
            kind="permission_denied",
            hint="only a session's CLI starts a bridge; other clients use tool/serve",
        )

    def has_tools(self) -> bool:
        """Tell whether an open session has tools. The CLI of such a session may start a bridge."""
        return any(session.tools is not None and session.state is not SessionState.CLOSED for session in self)

    def find(self, session_id: str) -> Session | None:
        """Return a session, or None."""
        return self._sessions.get(session_id)

    async def delete(self, session_id: str) -> None:
        """Delete a closed session. Raises `UsageError`: session_not_found, session_busy; `WorldError`."""
        session = self.get(session_id)
        if session.state is not SessionState.CLOSED:
            raise UsageError(
                f"session {session_id} is open, so it cannot be deleted",
                kind="session_busy",
                hint="close it first: session/close, or clisup close",
            )
        if session.spec.worktree is not None:
            await self.services.worktrees.tidy(session.spec.worktree.owner)
        with self.services.storage.watched():
            self.cursors.drop_sessions([session_id])
        trash = session.dir.throw_away()
        self._sessions.pop(session_id).gate.leave_account()
        _log.info("session deleted", session=session_id)
        own = (*self.services.at_ends, *self.services.at_notices)
        for watcher in (*self.services.everywhere, *own, *session.recorder.watchers):
            watcher.forget(session_id)
        await in_thread(lambda: shutil.rmtree(trash, ignore_errors=True))

    async def look(self, sessions: Iterable[Session]) -> None:
        """Refresh the rows' `rss_bytes` and `branch`."""
        await self.services.branches.refresh({session.spec.cwd for session in sessions})
        await self.services.memory.refresh(
            lambda: {s.id: s.run.keeper_pid for s in self if s.run is not None and s.run.keeper_pid is not None}
        )

    def totals(self) -> dict[str, Any]:
        """Return the sums over all sessions."""
        return totals_of(session.ledger for session in self)
