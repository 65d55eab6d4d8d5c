"""Worktrees of all sessions: their records on disk, who works in them, and one change at a time in each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import trio

from clisup.config.session_spec import SessionSpec, SessionWorktree
from clisup.daemon.worktrees import changes, repository
from clisup.errors import ClisupError
from clisup.host.git import Git
from clisup.host.log import event_logger
from clisup.host.threads import in_thread
from clisup.model.structs import JsonObject
from clisup.store.worktree_records import (
    WorktreeRecord,
    describe_worktree,
    drop_record,
    load_records,
    save_record,
)
from clisup.wire.results import DiffResult, DiscardResult, LandResult

__all__ = ["Worktrees"]

CLOSE_LIMIT_S = 30.0
"""Limit for the removal of a worktree at the close of its session. A later cleanup removes what stays."""

_log = event_logger()


class Worktrees:
    """Worktrees of all sessions. `env` is the daemon's environment."""

    def __init__(self, state_dir: str, env: Mapping[str, str]) -> None:
        self._state_dir = state_dir
        self._git = Git(env, state_dir)
        self._records: dict[str, WorktreeRecord] = {}  # by owner
        self._users: dict[str, set[str]] = {}  # open sessions by path
        self._discarded: set[str] = set()  # owners whose worktree is being discarded
        self._locks: dict[str, trio.Lock] = {}  # by owner

    def load(self) -> None:
        """Read all records. Blocks: call in a thread. Raises `WorldError(storage_failed)`."""
        self._git.clear()
        self._records, damaged = load_records(self._state_dir)
        for name in damaged:
            _log.warning("worktree record ignored", file=name)

    # -- who works where -----------------------------------------------------------------------------------------------

    def join(self, session_id: str, worktree: SessionWorktree | None) -> None:
        """Note that an open session, or one that is being opened, works in a worktree."""
        if worktree is not None:
            self._users.setdefault(worktree.path, set()).add(session_id)

    def users(self, worktree: SessionWorktree, *, besides: str | None = None) -> list[str]:
        """Return the open sessions that work in a worktree."""
        return sorted(self._users.get(worktree.path, set()) - {besides})

    def describe(self, spec: SessionSpec, *, closed: bool) -> JsonObject | None:
        """Return the field `worktree` of a session's row."""
        return describe_worktree(spec.worktree, self._records, closed=closed)

    # -- making --------------------------------------------------------------------------------------------------------

    async def make(
        self, cwd: str, owner: str, digest: str, name: str | None, base: str | None, *, within: str | None = None
    ) -> tuple[SessionWorktree, str]:
        """Make the worktree of a new session, and return it with the session's cwd.

        What an earlier attempt with the same id and params left behind is used. Raises `UsageError`: worktree_refused,
        invalid_params; `WorldError`: git_failed, storage_failed. An error leaves nothing behind, as far as git can undo.
        """
        async with self._alone(owner):
            left = self._records.get(owner)
            if left is not None and left.digest != digest:
                await self._clear(left)
                left = None
            plan = await repository.plan(self._git, cwd, owner, name or owner[:8], base)
            wanted = plan.worktree
            if left is not None:
                wanted = left.worktree  # the same params give the same place
            await repository.check_within(wanted, plan.cwd, within)
            if left is None:
                await repository.check_free(self._git, wanted)
                await self._save(WorktreeRecord(wanted, digest))
            try:
                known = await repository.entries(self._git, wanted)
                if all(entry.path != wanted.path for entry in known):
                    await repository.make(self._git, wanted)
                wanted = await repository.located(wanted)
                await self._save(WorktreeRecord(wanted, digest))
                # A directory on the way may have become a link since the first check.
                await repository.check_within(wanted, plan.cwd, within)
                await repository.reset_new(self._git, wanted, plan.source)
                # The commit may hold a link in place of the cwd.
                await repository.check_within(wanted, plan.cwd, within)
            except ClisupError:
                if left is None:  # else git of an earlier daemon may still be at work
                    await repository.undo(self._git, wanted)
                await self._remove(self._records[owner])
                raise
            self.join(owner, wanted)  # a cleanup spares it from here on
        _log.info("worktree made", session=owner, path=wanted.path, branch=wanted.branch)
        return wanted, plan.cwd

    async def _save(self, record: WorktreeRecord) -> None:
        await in_thread(save_record, self._state_dir, record)
        self._records[record.worktree.owner] = record

    async def _clear(self, left: WorktreeRecord) -> None:
        """Remove the worktree of an earlier attempt with other params. Refuse if there is work in it."""
        if reasons := await self._remove(left):
            raise repository.refused(
                "leftover",
                f"session {left.worktree.owner} has a worktree already, at {left.worktree.path}: {', '.join(reasons)}",
                "choose another session id",
                path=left.worktree.path,
            )

    async def share(self, spec: SessionSpec, session_id: str, *, within: str | None = None) -> SessionWorktree:
        """Return the worktree of another session for a new session. Raises `UsageError(worktree_refused)`."""
        worktree = self.needed(spec)
        await repository.check_within(worktree, spec.cwd, within)
        self.join(session_id, worktree)
        return worktree

    # -- requests ------------------------------------------------------------------------------------------------------

    def needed(self, spec: SessionSpec) -> SessionWorktree:
        """Return the session's worktree. Raises `UsageError(worktree_refused)` without one."""
        if spec.worktree is None:
            raise repository.refused(
                "no_worktree",
                f"session {spec.session_id} has no worktree of its own",
                "open a session with one: clisup run --worktree",
            )
        record = self._records.get(spec.worktree.owner)
        if record is None:
            raise repository.refused(
                "removed",
                f"the worktree of session {spec.session_id} was removed, with branch {spec.worktree.branch}",
                "open a session with a new worktree",
            )
        if record.worktree != spec.worktree:
            raise repository.refused(
                "worktree_gone",
                f"the files of session {spec.session_id} and of worktree {record.worktree.path} do not agree",
                "a tool has changed one of them: see git worktree list in the repository, and land or remove it by hand",
            )
        return spec.worktree

    async def diff(self, spec: SessionSpec, *, patch: bool, max_bytes: int) -> DiffResult:
        """Compare, as `changes.compare`."""
        return await changes.compare(self._git, self.needed(spec), patch=patch, max_bytes=max_bytes)

    async def land(self, spec: SessionSpec, message: str | None) -> LandResult:
        """Land, as `changes.land`."""
        worktree = self.needed(spec)
        async with self._alone(worktree.owner):
            done = await changes.land(self._git, worktree, message)
        _log.info("worktree landed", session=spec.session_id, branch=done.branch, commits=done.commits)
        return done

    async def discard(self, spec: SessionSpec, close: Callable[[], Awaitable[None]]) -> DiscardResult:
        """Discard, as `changes.discard`. `close` closes the session, once nothing speaks against the removal."""
        worktree = self.needed(spec)
        await changes.check_discard(self._git, worktree)
        self._discarded.add(worktree.owner)
        try:
            await close()
            async with self._alone(worktree.owner):
                done = await changes.discard(self._git, self.needed(spec))
                self._drop(worktree.owner)
        finally:
            self._discarded.discard(worktree.owner)
        _log.info("worktree discarded", session=spec.session_id, branch=done.branch, commit=done.commit)
        return done

    # -- the end of sessions -------------------------------------------------------------------------------------------

    async def closed(self, session_id: str, worktree: SessionWorktree | None) -> None:
        """Remove the worktree of a session that ends, unless work or another session is in it."""
        if worktree is None:
            return
        users = self._users.get(worktree.path, set())
        users.discard(session_id)
        if not users:
            self._users.pop(worktree.path, None)
            with trio.move_on_after(CLOSE_LIMIT_S):
                await self.tidy(worktree.owner)

    async def tidy(self, owner: str, *, dry_run: bool = False) -> str | None:
        """Remove a worktree if nothing would be lost. Return the reason why it stays, or None."""
        async with self._alone(owner):
            record = self._records.get(owner)
            if record is None or owner in self._discarded or self._users.get(record.worktree.path):
                return None
            reasons = await self._remove(record, dry_run=dry_run)
        return ", ".join(reasons) or None

    def idle(self) -> list[WorktreeRecord]:
        """Return the worktrees in which no open session works."""
        return [record for record in self._records.values() if not self._users.get(record.worktree.path)]

    async def _remove(self, record: WorktreeRecord, *, dry_run: bool = False) -> list[str]:
        """Remove a worktree if nothing would be lost. Record the reasons why it stays, and return them."""
        owner, path = record.worktree.owner, record.worktree.path
        try:
            reasons = await changes.remove_finished(self._git, record.worktree, dry_run=dry_run)
        except ClisupError as error:  # such as a git that is missing
            reasons = [error.message]
        if dry_run:
            return reasons
        if not reasons:
            self._drop(owner)
            _log.info("worktree removed", path=path, branch=record.worktree.branch)
            return []
        kept = self._records[owner] = record.keep(", ".join(reasons))
        with suppress(ClisupError):  # the next cleanup finds the reasons again
            await in_thread(save_record, self._state_dir, kept)
        _log.info("worktree kept", path=path, reasons=reasons)
        return reasons

    def _drop(self, owner: str) -> None:
        self._records.pop(owner, None)
        drop_record(self._state_dir, owner)

    @asynccontextmanager
    async def _alone(self, owner: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault(owner, trio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._locks.pop(owner, None)
