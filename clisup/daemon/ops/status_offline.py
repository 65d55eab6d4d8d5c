"""`daemon/status`, `session/list` and `session/events` where no daemon answers: the same objects, from the files alone.

Takes no lock and changes nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import asdict

from clisup import __version__
from clisup.config.session_spec import why_unreadable
from clisup.errors import ClisupError, UsageError, WorldError
from clisup.host import clock
from clisup.host.files import storage_error
from clisup.host.locks import lock_holder
from clisup.host.process.tree_memory import tree_memory
from clisup.model.lifecycle import SessionState
from clisup.model.sessions.budget import limits_of, told, used_of
from clisup.model.sessions.totals import totals_of
from clisup.store.native_lines import native_parts, with_parts
from clisup.store.session_dir import SessionDir, list_sessions
from clisup.store.stored_journal import StoredJournal
from clisup.store.stored_sessions import StoredSession, check_spec, read_session
from clisup.wire.status_models import STATUS_SCHEMA

__all__ = [
    "UNFINISHED",
    "stored_detail",
    "stored_events",
    "stored_holder",
    "stored_ids",
    "stored_rows",
    "stored_sessions",
    "stored_status",
]

UNFINISHED = "unfinished"
"""The state of a session whose turn was running, and whose keeper is gone, too: the next daemon says how it ended."""

Damaged = dict[str, str]


def stored_status(socket: str, state_dir: str, reason: str) -> dict[str, Any]:
    """What `clisup status` shows without a daemon; `reason` is why none could be asked. Blocks for as long as reading takes."""
    damaged: Damaged = {}
    sessions = list(stored_sessions(state_dir, damaged))
    rows = _rows([session for session in sessions if not session.closed])
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
    }


def stored_rows(state_dir: str, state: str | None, damaged: Damaged) -> list[dict[str, Any]]:
    """`session/list`, newest first: those in this state, or all that are not closed. Raises `WorldError`."""
    rows = _rows(list(stored_sessions(state_dir, damaged)))
    wanted = [row for row in rows if (row["state"] == state if state else row["state"] != SessionState.CLOSED)]
    return sorted(wanted, key=lambda row: str(row["created_at"]), reverse=True)


def stored_events(state_dir: str, session_id: str, *, raw: bool) -> Iterator[dict[str, Any]]:
    """All events of a session, with `native` where `raw` is asked for; what is missing is told by dicts of type `gap`.

    Raises `ClisupError` for a session that is not there or cannot be read.
    """
    directory = SessionDir(state_dir, session_id)
    with _readable(session_id):
        if check_spec(directory) is None:
            raise _not_found(session_id)
        reader = StoredJournal(directory.journal).reader(0)
    try:
        while True:
            events = reader.read()
            if (gap := reader.take_gap()) is not None:
                yield {"type": "gap", "session_id": session_id, **gap._asdict()}
            if not events:
                return
            for _, event, line in events:
                yield json.loads(with_parts(event, list(native_parts(line, directory))) if raw else event)
    finally:
        reader.close()


def stored_ids(state_dir: str) -> list[dict[str, Any]]:
    """`session_id` of every session that has files. Raises `WorldError`."""
    try:
        return [{"session_id": session_id} for session_id in list_sessions(state_dir)]
    except OSError as error:
        raise storage_error("read", state_dir, error) from None


def stored_detail(state_dir: str, session_id: str) -> dict[str, Any]:
    """`session/get` without a daemon. Raises `ClisupError` for a session that is not there or cannot be read."""
    with _readable(session_id):
        found = read_session(state_dir, session_id)
    if found is None:
        raise _not_found(session_id)
    return {**_rows([found])[0], "timers": [], "watch": None, "last_events": found.last_events}


def _not_found(session_id: str) -> UsageError:
    return UsageError(
        f"cannot find session {session_id}, because nothing is stored of it",
        kind="session_not_found",
        hint="list them: clisup sessions",
    )


@contextmanager
def _readable(session_id: str) -> Iterator[None]:
    """What is wrong with a session's files is said in words, and without a word of what is in them."""
    try:
        yield
    except ClisupError:
        raise
    except Exception as error:
        raise WorldError(
            f"cannot read session {session_id}, because {why_unreadable(error)}",
            kind="storage_failed",
            hint="restore it, or move the session's directory away",
        ) from None


def stored_sessions(state_dir: str, damaged: Damaged) -> Iterator[StoredSession]:
    """Every session that can be read; what cannot goes into `damaged`, by id, with the reason. Raises `WorldError`."""
    for session_id in (row["session_id"] for row in stored_ids(state_dir)):
        try:
            found = read_session(state_dir, session_id)
        except Exception as error:  # a session's edge: whatever is wrong with one, the others are shown
            damaged[session_id] = why_unreadable(error)
            continue
        if found is not None:
            yield found


def _daemon(socket: str, state_dir: str, reason: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
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


def stored_holder(state_dir: str) -> int | None:
    """The pid of a daemon that holds the state directory, though it does not answer."""
    try:
        return lock_holder(os.path.join(state_dir, "daemon.lock"))
    except OSError:
        return None


def _storage(state_dir: str) -> dict[str, Any]:
    free = None
    try:
        disk = os.statvfs(state_dir)
        free = disk.f_bavail * disk.f_frsize
    except OSError:
        pass
    nothing = {"state": None, "since": None, "error": None, "failures": None}
    return {"path": state_dir, **nothing, "free_bytes": free, "writable": os.access(state_dir, os.W_OK)}


def _rows(sessions: list[StoredSession]) -> list[dict[str, Any]]:
    keepers = {session.keeper for session in sessions if session.keeper is not None}
    memory = tree_memory(keepers) if keepers else {}
    return [_row(session, memory) for session in sessions]


def _row(stored: StoredSession, memory: dict[int, int]) -> dict[str, Any]:
    """A session as `session/list` has it; what only a daemon knows is null."""
    spec, ledger, current, last = stored.spec, stored.ledger, stored.ledger.current, stored.ledger.last_event
    since = clock.age_of(last["ts"]) if last else None
    return {
        "session_id": spec.session_id,
        "backend": spec.backend,
        "model": ledger.model or spec.model,
        "state": _state(stored),
        "phase": None,
        "turn_id": current.id if current else None,
        "native_session_id": ledger.native_session_id,
        "cwd": spec.cwd,
        "labels": spec.labels,
        "created_at": spec.created_at,
        "pid": ledger.held.pid if ledger.held and stored.keeper is not None else None,
        "keeper_pid": stored.keeper,
        "rss_bytes": memory.get(stored.keeper or 0) or None,
        "live": bool(ledger.held and ledger.held.live and stored.keeper is not None),
        "idle_s": since if current else None,
        "age_s": clock.age_of(spec.created_at),
        "turns": ledger.turns,
        "last_turn": ledger.last_turn,
        "held": None,
        "approvals": len(current.approvals) if current else 0,
        "queue": [{"turn_id": turn.id, "key": turn.key, "position": at + 1} for at, turn in enumerate(ledger.queue)],
        "tokens": asdict(ledger.usage),
        "cost_usd": ledger.cost_usd,
        "cost_source": ledger.cost_source,
        "budget": told(limits_of(spec.budget, ledger.budget), used_of(ledger)),
        "subscribers": 0,
        "first_seq": stored.first_seq,
        "next_seq": stored.next_seq,
        "last_event": last and {**last, "age_s": since},
        "next_timer": None,
    }


def _state(stored: StoredSession) -> str:
    ledger = stored.ledger
    if ledger.closed:
        return SessionState.CLOSED
    if ledger.current is not None:
        return SessionState.RUNNING if stored.keeper is not None else UNFINISHED
    return SessionState.WAITING if ledger.queue else SessionState.IDLE
