"""`daemon/gc`: find and remove closed sessions and leftovers. A session with a running, waiting or resting turn is never touched."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator

import trio
from msgspec import Struct

from clisup.daemon.ops import garbage
from clisup.daemon.ops.garbage import Removable
from clisup.daemon.ops.retention import Retention
from clisup.daemon.sessions.registry import Manager
from clisup.daemon.sessions.session import Session
from clisup.daemon.worktrees.worktrees import Worktrees
from clisup.errors import ClisupError
from clisup.host.log import event_logger
from clisup.host.process.cgroups import CgroupHome
from clisup.host.threads import in_thread
from clisup.model.lifecycle import SessionState
from clisup.policy.retention import Part
from clisup.policy.wall_time import ClockLook, age_of
from clisup.store.clock_store import look_at_clock
from clisup.store.session_dir import SessionDir
from clisup.store.stored_sizes import look_at
from clisup.wire.params import GcParams
from clisup.wire.results import GcFailure, GcItem, GcResult

MAX_ITEMS = 10_000
"""Limit of items that one call removes. The result has the number of further items."""

_OF_A_SESSION = ("run", "scratch", "private", "cgroup")
_DUE = "older or more than retention keeps"
_log = event_logger()


class SessionFact(Struct, frozen=True):
    """Readable session. A `quiet` session has no running turn, no queue and no resting process."""

    dir: SessionDir
    closed: bool
    quiet: bool


class Facts(Struct, frozen=True):
    """Facts about the sessions, and the places to search. `runs` are supervised runs."""

    state_dir: str
    socket: str
    served: bool
    cgroups: CgroupHome
    sessions: tuple[SessionFact, ...]
    runs: frozenset[tuple[str, int]]


class Clearing:
    """Cleanup in a running daemon."""

    def __init__(self, manager: Manager, retention: Retention, socket: str) -> None:
        self._manager, self._retention, self._socket = manager, retention, socket

    async def run(self, params: GcParams) -> GcResult:
        """Find garbage, and remove it unless this is a dry run. Raises `WorldError(storage_failed)`."""
        facts = self._facts()
        due = await self._retention.due()
        found = await in_thread(lambda: list(find(facts, params.older_than_s, due)))
        chosen = chosen_of(params, found)
        failed = {} if params.dry_run else await self._remove_all(chosen)
        damaged, storage = self._manager.damaged, self._manager.services.storage
        with trio.CancelScope(shield=True):
            worktrees, kept = await tidy_worktrees(
                self._manager.services.worktrees, damaged, lambda: storage.stopping, dry_run=params.dry_run
            )
        return result_of(params, found, failed, worktrees).model_copy(update={"kept": kept})

    def _facts(self) -> Facts:
        sessions = tuple(SessionFact(s.dir, s.state is SessionState.CLOSED, _quiet(s)) for s in self._manager)
        runs = frozenset((s.id, s.ledger.active_turn.run) for s in self._manager if s.ledger.active_turn is not None)
        state_dir, home = self._manager.state_dir, self._manager.services.cgroups
        return Facts(state_dir, self._socket, True, home, sessions, runs)

    async def _remove_all(self, items: Iterable[Removable]) -> dict[str, str]:
        failed: dict[str, str] = {}
        gone = 0
        with trio.CancelScope(shield=True):  # finish even if the client has disconnected
            for item in items:
                if self._manager.services.storage.stopping:  # ten thousand sessions would delay the stop
                    failed[item.path] = "the daemon is stopping"
                    continue
                try:
                    if (error := await self._remove(item)) is not None:
                        failed[item.path] = error
                    else:
                        gone += item.kind == "session"
                except (ClisupError, OSError) as refused:
                    failed[item.path] = str(refused)
        _log.info("cleared", sessions=gone, failed=len(failed))
        return failed

    async def _remove(self, item: Removable) -> str | None:
        await trio.lowlevel.checkpoint()
        session = self._manager.find(item.session_id) if item.session_id else None
        if item.kind == "session" and item.session_id is not None:
            if session is not None:  # otherwise a client was faster
                await self._manager.delete(item.session_id)
        elif item.part is not None:
            await self._retention.remove(item.part)
        elif item.kind in _OF_A_SESSION:
            # Check again right before the removal: a turn may have started since.
            if session is None or not _quiet(session):
                return "the session is active again"
            return garbage.remove(item)
        else:
            return await in_thread(garbage.remove, item)
        return None


async def tidy_worktrees(
    worktrees: Worktrees, damaged: Container[str], stopping: Callable[[], bool], *, dry_run: bool
) -> tuple[list[Removable], list[GcFailure]]:
    """Remove worktrees without an open session and without work. Return them, and those that stay."""
    removed, kept = list[Removable](), list[GcFailure]()
    for record in worktrees.idle():
        owner, path = record.worktree.owner, record.worktree.path
        if owner in damaged or stopping():
            continue  # an unreadable session may be open
        size = await in_thread(garbage.size_of, path)
        reason = await worktrees.tidy(owner, dry_run=dry_run)
        if reason is None:
            why = f"its session is closed, and branch {record.worktree.branch} has landed"
            removed.append(Removable("worktree", path, size, why, owner))
        else:
            kept.append(GcFailure(path=path, error=reason))
    return removed, kept


def find(facts: Facts, older_than_s: float, due: Iterable[Part]) -> Iterator[Removable]:
    """Yield everything that may be removed. Blocks while it reads names and sizes. Raises `OSError`."""
    whole = {part.session_id: part for part in due if part.upto is None}
    look = look_at_clock(facts.state_dir, keep=False)
    for session in facts.sessions:
        if session.closed and (why := _reason(session, older_than_s, whole, look)):
            yield Removable("session", session.dir.path, garbage.size_of(session.dir.path), why, session.dir.id)
        elif session.quiet:
            yield from garbage.of_runs(session.dir)
            yield from garbage.private_of(session.dir) if session.closed else ()
    for part in due:
        if part.upto is not None:
            journal = SessionDir(facts.state_dir, part.session_id).journal
            yield Removable("events", journal, part.size, f"{_DUE}: up to seq {part.upto}", part.session_id, part)
    yield from garbage.trash(facts.state_dir)
    yield from garbage.temporary(facts.state_dir)
    yield from garbage.empty_cgroups(
        facts.cgroups, facts.state_dir, facts.runs, frozenset(s.dir.id for s in facts.sessions)
    )
    yield from garbage.around_sockets(facts.socket, served=facts.served)
    yield from garbage.cli_sockets(session.dir for session in facts.sessions)


def chosen_of(params: GcParams, found: Iterable[Removable]) -> list[Removable]:
    """Return the items that one call removes: foreign ones only if the caller asks for them."""
    return [item for item in found if params.foreign or not item.foreign][:MAX_ITEMS]


def result_of(
    params: GcParams, found: list[Removable], failed: dict[str, str], worktrees: Iterable[Removable] = ()
) -> GcResult:
    """Return the result: the chosen items without those whose removal failed, and the foreign items that stay."""
    chosen, foreign = chosen_of(params, found), [item for item in found if item.foreign and not params.foreign]
    gone = [_item(item) for item in [*chosen, *worktrees] if item.path not in failed]
    return GcResult(
        dry_run=params.dry_run,
        items=gone,
        bytes=sum(item.bytes for item in gone),
        failed=[GcFailure(path=_as_text(path), error=error) for path, error in failed.items()],
        more=len(found) - len(chosen) - len(foreign),
        foreign=[_item(item) for item in foreign[:MAX_ITEMS]],
    )


def _item(i: Removable) -> GcItem:
    return GcItem.model_validate(
        {"kind": i.kind, "path": _as_text(i.path), "session_id": i.session_id, "bytes": i.size, "reason": i.reason}
    )


def _as_text(path: str) -> str:
    """Return the path as text for JSON, which has no arbitrary bytes."""
    return os.fsencode(path).decode("utf-8", "replace")


def _reason(session: SessionFact, older_than_s: float, due: dict[str, Part], look: ClockLook) -> str | None:
    """Return the reason to remove a closed session, or None. Its age is the age of its last journal file."""
    if session.dir.id in due:
        return f"closed, and {_DUE}"
    try:
        segments = look_at(session.dir).segments
    except OSError:
        return None  # an unreadable session stays
    written = max((segment.written for segment in segments), default=0.0)
    age = age_of(written, look)
    return f"closed {age / 86_400:.1f} days ago" if age >= older_than_s else None


def _quiet(session: Session) -> bool:
    return not (session.context.busy or session.adoptable or session.run is not None) and session.state in (
        SessionState.IDLE,
        SessionState.FAILED,
        SessionState.CLOSED,
    )
