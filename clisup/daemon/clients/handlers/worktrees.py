"""Handlers of the methods for a session's git worktree. They shield their changes, as those of sessions do."""

from __future__ import annotations

import trio

from clisup.daemon.clients.connection import Connection, Handlers
from clisup.daemon.sessions.registry import Manager
from clisup.daemon.sessions.session import Session
from clisup.errors import UsageError
from clisup.model.lifecycle import SessionState
from clisup.wire.params import DiffParams, LandParams, SessionParams

__all__ = ["WorktreeHandlers"]


class WorktreeHandlers:
    """Handlers of `session/diff`, `session/land` and `session/discard`. They also serve closed sessions."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._worktrees = manager.services.worktrees

    def table(self) -> Handlers:
        return {"session/diff": self.diff, "session/land": self.land, "session/discard": self.discard}

    async def diff(self, connection: Connection, params: DiffParams) -> bytes:
        session = self._manager.get(params.session_id)
        done = await self._worktrees.diff(session.spec, patch=params.patch, max_bytes=params.max_bytes)
        return done.to_json()

    async def land(self, connection: Connection, params: LandParams) -> bytes:
        session = self._manager.get(params.session_id)
        self._check_quiet(session, "land")
        with trio.CancelScope(shield=True):
            done = await self._worktrees.land(session.spec, params.commit)
            if session.state is SessionState.CLOSED and session.spec.worktree is not None:
                await self._worktrees.tidy(session.spec.worktree.owner)
        return done.to_json()

    async def discard(self, connection: Connection, params: SessionParams) -> bytes:
        session = self._manager.get(params.session_id)

        async def close() -> None:
            self._check_quiet(session, "discard")
            await session.close(connection.actor)

        with trio.CancelScope(shield=True):
            self._check_quiet(session, "discard")
            done = await self._worktrees.discard(session.spec, close)
        return done.to_json()

    def _check_quiet(self, session: Session, what: str) -> None:
        """Refuse while a turn of the session, or of a session that shares the worktree, could change files.

        A discard also refuses while another session has the worktree open. Raises `UsageError(session_busy)`.
        """
        worktree = self._worktrees.needed(session.spec)
        others = self._worktrees.users(worktree, besides=session.id)
        for other in (session, *map(self._manager.find, others)):  # None: being opened
            if other is not None and other.context.busy:
                raise UsageError(
                    f"cannot {what} the worktree of session {session.id}: a turn of session {other.id} runs or waits",
                    kind="session_busy",
                    hint=f"wait for its end, or: clisup interrupt {other.id}",
                    session_id=other.id,
                )
        if others and what == "discard":
            raise UsageError(
                f"cannot discard the worktree of session {session.id}: session {others[0]} works in it, too",
                kind="session_busy",
                hint=f"close that session first: clisup close {others[0]}",
                session_id=others[0],
            )
