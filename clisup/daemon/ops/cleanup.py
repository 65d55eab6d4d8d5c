"""`daemon/gc`: what is of no use any more is found, told and removed. A session that works, waits or rests is never touched."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import structlog
import trio
from msgspec import Struct

from clisup.daemon.ops import garbage
from clisup.daemon.ops.garbage import Garbage
from clisup.daemon.ops.retention import Retention
from clisup.daemon.sessions.registry import Manager
from clisup.daemon.sessions.session import Session
from clisup.errors import ClisupError
from clisup.host import clock
from clisup.host.process.cgroups import CgroupHome
from clisup.model.lifecycle import SessionState
from clisup.policy.retention import Part
from clisup.store.session_dir import SessionDir
from clisup.store.stored_sizes import look_at
from clisup.wire.gc_models import GcFailure, GcItem, GcParams, GcResult

__all__ = ["MAX_ITEMS", "Clearing", "Facts", "SessionFact", "find", "result_of"]

MAX_ITEMS = 10_000
"""What one call removes at most; it says how many more there were."""

_OF_A_SESSION = ("run", "scratch", "private", "cgroup")
_DUE = "older or more than retention keeps"
_log = structlog.get_logger()


class SessionFact(Struct, frozen=True):
    """A session that can be read. `quiet`: nothing of it works, waits or rests."""

    dir: SessionDir
    closed: bool
    quiet: bool


class Facts(Struct, frozen=True):
    """What is known of the sessions, and where to look. `runs` are those that somebody looks after."""

    state_dir: str
    socket: str
    served: bool
    cgroups: CgroupHome
    sessions: tuple[SessionFact, ...]
    runs: frozenset[tuple[str, int]]


class Clearing:
    """One call of `daemon/gc`."""

    def __init__(self, manager: Manager, retention: Retention, socket: str) -> None:
        self._manager, self._retention, self._socket = manager, retention, socket

    async def run(self, params: GcParams) -> GcResult:
        """Look, and remove unless it is a dry run. Raises `WorldError(storage_failed)`."""
        facts = self._facts()
        due = await self._retention.due()
        found = await trio.to_thread.run_sync(lambda: list(find(facts, params.older_than_s, due)))
        chosen = found[:MAX_ITEMS]
        failed = {} if params.dry_run else await self._remove_all(chosen)
        return result_of(params, chosen, failed, len(found) - len(chosen))

    def _facts(self) -> Facts:
        sessions = tuple(SessionFact(s.dir, s.state is SessionState.CLOSED, _quiet(s)) for s in self._manager)
        runs = frozenset((s.id, s.ledger.active_turn.run) for s in self._manager if s.ledger.active_turn is not None)
        state_dir, home = self._manager.state_dir, self._manager.services.cgroups
        return Facts(state_dir, self._socket, True, home, sessions, runs)

    async def _remove_all(self, items: Iterable[Garbage]) -> dict[str, str]:
        """What could not be removed, and why."""
        failed: dict[str, str] = {}
        gone = 0
        with trio.CancelScope(shield=True):  # what was begun is done, also where the client has gone meanwhile
            for item in items:
                if self._manager.services.storage.stopping:  # ten thousand sessions would hold up its end
                    failed[item.path] = "the daemon stops"
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

    async def _remove(self, item: Garbage) -> str | None:
        await trio.lowlevel.checkpoint()
        session = self._manager.find(item.session_id) if item.session_id else None
        if item.kind == "session" and item.session_id is not None:
            if session is not None:  # else somebody was faster
                await self._manager.delete(item.session_id)
        elif item.part is not None:
            await self._retention.remove(item.part)
        elif item.kind in _OF_A_SESSION:
            # Looked at again and removed without a pause in between: a turn may have begun since.
            if session is None or not _quiet(session):
                return "the session works again"
            return garbage.remove(item)
        else:
            return await trio.to_thread.run_sync(garbage.remove, item)
        return None


def find(facts: Facts, older_than_s: float, due: Iterable[Part]) -> Iterator[Garbage]:
    """All that may go. Blocks for as long as reading names and sizes takes. Raises `OSError`."""
    whole = {part.session_id: part for part in due if part.upto is None}
    for session in facts.sessions:
        if session.closed and (why := _reason(session, older_than_s, whole)):
            yield Garbage("session", session.dir.path, garbage.size_of(session.dir.path), why, session.dir.id)
        elif session.quiet:
            yield from garbage.of_runs(session.dir)
            yield from garbage.private_of(session.dir) if session.closed else ()
    for part in due:
        if part.upto is not None:
            journal = SessionDir(facts.state_dir, part.session_id).journal
            yield Garbage("events", journal, part.size, f"{_DUE}: up to seq {part.upto}", part.session_id, part)
    yield from garbage.trash(facts.state_dir)
    yield from garbage.temporary(facts.state_dir)
    yield from garbage.empty_cgroups(facts.cgroups, facts.runs, frozenset(s.dir.id for s in facts.sessions))
    yield from garbage.around_sockets(facts.socket, served=facts.served)
    yield from garbage.cli_sockets(session.dir for session in facts.sessions)


def result_of(params: GcParams, items: Iterable[Garbage], failed: dict[str, str], more: int) -> GcResult:
    """The answer: what is still there is not among the items."""
    gone = [
        GcItem.model_validate(
            {"kind": i.kind, "path": _told(i.path), "session_id": i.session_id, "bytes": i.size, "reason": i.reason}
        )
        for i in items
        if i.path not in failed
    ]
    failures = [GcFailure(path=_told(path), error=error) for path, error in failed.items()]
    return GcResult(dry_run=params.dry_run, items=gone, bytes=sum(i.bytes for i in gone), failed=failures, more=more)


def _told(path: str) -> str:
    """JSON has no bytes that are no text."""
    return os.fsencode(path).decode("utf-8", "replace")


def _reason(session: SessionFact, older_than_s: float, due: dict[str, Part]) -> str | None:
    """Why a closed session may go; None where it may not yet. Its age is that of its last event's file."""
    if session.dir.id in due:
        return f"closed, and {_DUE}"
    try:
        segments = look_at(session.dir).segments
    except OSError:
        return None  # what cannot be looked at is left alone
    written = max((segment.written for segment in segments), default=0.0)
    age = clock.wall() - written
    return f"closed {age / 86_400:.1f} days ago" if age >= older_than_s else None


def _quiet(session: Session) -> bool:
    return not (session.context.busy or session.adoptable or session.run is not None) and session.state in (
        SessionState.IDLE,
        SessionState.FAILED,
        SessionState.CLOSED,
    )
