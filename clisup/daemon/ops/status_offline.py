"""Answers to `daemon/status`, `session/list` and `session/get` from the files alone, without a daemon.

The functions take no lock and change nothing. Fields that only a daemon knows are null.
"""

from __future__ import annotations

import os

from clisup import __version__
from clisup.daemon.sessions.session_row import ProcessState, session_row, totals_of
from clisup.errors import UsageError
from clisup.host import clock
from clisup.host.git_head import branch_of
from clisup.host.locks import lock_holder
from clisup.host.process.evidence import tree_memory
from clisup.model.lifecycle import SessionState
from clisup.model.sessions.budget import describe_budget, limits_of, used_of
from clisup.model.structs import JsonObject
from clisup.store.offline import (
    StoredSession,
    last_events,
    read_session_or_raise,
    stored_events,
    stored_ids,
    stored_sessions,
)
from clisup.store.session_dir import SessionDir
from clisup.store.worktree_records import WorktreeRecord, describe_worktree, load_records
from clisup.wire.status import STATUS_SCHEMA

__all__ = [
    "UNFINISHED",
    "stored_blob",
    "stored_detail",
    "stored_events",
    "stored_holder",
    "stored_ids",
    "stored_rows",
    "stored_status",
]

UNFINISHED = "unfinished"
"""State of a session whose turn was running and whose keeper is gone, too. The next daemon concludes the turn."""


def stored_status(socket: str, state_dir: str, reason: str) -> JsonObject:
    """Return the status without a daemon. `reason` says why no daemon answered."""
    damaged: dict[str, str] = {}
    sessions = list(stored_sessions(state_dir, damaged))
    rows = _rows(
        state_dir, sorted((s for s in sessions if not s.closed), key=lambda s: s.spec.created_at, reverse=True)
    )
    return {
        "schema_version": STATUS_SCHEMA,
        "daemon": _daemon(socket, state_dir, reason, rows),
        "backends": [],
        "sessions": rows,
        "accounts": [],
        "damaged_sessions": damaged,
        "totals": totals_of(session.ledger for session in sessions),
        "drift": [],
        "clients": [],
        "notify": [],
    }


def stored_rows(state_dir: str, state: str | None, damaged: dict[str, str]) -> list[JsonObject]:
    """Return the sessions in `state`, newest first; by default all that are not closed. Raises `WorldError`."""
    rows = _rows(state_dir, list(stored_sessions(state_dir, damaged)))
    wanted = [row for row in rows if (row["state"] == state if state else row["state"] != SessionState.CLOSED)]
    return sorted(wanted, key=lambda row: str(row["created_at"]), reverse=True)


def stored_detail(state_dir: str, session_id: str) -> JsonObject:
    """Return the details of one session. Raises `ClisupError` for a session that does not exist or cannot be read."""
    found = read_session_or_raise(state_dir, session_id)
    return {**_rows(state_dir, [found])[0], "timers": [], "watch": None,
            "last_events": last_events(state_dir, found), "turn_cost_usd": None}  # fmt: skip


def stored_blob(state_dir: str, session_id: str, blob: str, limit: int) -> tuple[bytes, int]:
    """Return the first bytes of a blob and its whole size. A blob that is gone is empty."""
    from clisup.daemon.journal.raw_lines import blob_page  # imports trio, which `clisup status` does not need

    try:
        return blob_page(SessionDir(state_dir, session_id), blob, 0, limit)
    except UsageError:
        return b"", 0


def stored_holder(state_dir: str) -> int | None:
    """Return the pid of the daemon that holds the state directory without answering, or None."""
    try:
        return lock_holder(os.path.join(state_dir, "daemon.lock"))
    except OSError:
        return None


def _daemon(socket: str, state_dir: str, reason: str, rows: list[JsonObject]) -> JsonObject:
    holder = stored_holder(state_dir)
    return {
        "name": "clisup",
        "version": __version__,
        "pid": holder,
        "instance_id": None,
        "activated": False,
        "started_at": None,
        "uptime_s": None,
        "socket": socket,
        "state_dir": state_dir,
        "state": "not_running" if holder is None else "unreachable",
        "rss_bytes": None,
        "open_fds": None,
        "running": sum(row["keeper_pid"] is not None and row["turn_id"] is not None for row in rows),
        "max_running": None,
        "waiting": sum(len(row["queue"]) for row in rows),
        "adopted_turns": None,
        "storage": _storage(state_dir),
        "reason": reason,
    }


def _storage(state_dir: str) -> JsonObject:
    free = None
    try:
        disk = os.statvfs(state_dir)
        free = disk.f_bavail * disk.f_frsize
    except OSError:
        pass
    unknown = {"state": None, "since": None, "error": None, "failures": None}
    return {"path": state_dir, **unknown, "free_bytes": free, "writable": os.access(state_dir, os.W_OK)}


def _rows(state_dir: str, sessions: list[StoredSession]) -> list[JsonObject]:
    keepers = {session.keeper for session in sessions if session.keeper is not None}
    memory = tree_memory(keepers) if keepers else {}
    records = load_records(state_dir)[0] if any(s.spec.worktree for s in sessions) else {}
    return [session_row(s.spec, s.ledger, _process_state(s, memory, records)) for s in sessions]


def _process_state(stored: StoredSession, memory: dict[int, int], records: dict[str, WorktreeRecord]) -> ProcessState:
    ledger, current, keeper = stored.ledger, stored.ledger.current, stored.keeper
    held = ledger.active_turn if keeper is not None else None
    return ProcessState(
        state=_state(stored),
        first_seq=stored.first_seq,
        next_seq=stored.next_seq,
        budget=describe_budget(limits_of(stored.spec.budget, ledger.budget), used_of(ledger)),
        pid=held.pid if held else None,
        keeper_pid=keeper,
        rss_bytes=memory.get(keeper or 0) or None,
        live=bool(held and held.live),
        idle_s=clock.age_of(ledger.last_event["ts"]) if current and ledger.last_event else None,
        approvals=len(current.approvals) if current else 0,
        worktree=describe_worktree(stored.spec.worktree, records, closed=ledger.closed),
        branch=branch_of(stored.spec.cwd),
    )


def _state(stored: StoredSession) -> str:
    ledger = stored.ledger
    if ledger.closed:
        return SessionState.CLOSED
    if ledger.current is not None:
        return SessionState.RUNNING if stored.keeper is not None else UNFINISHED
    return SessionState.WAITING if ledger.queue else SessionState.IDLE
