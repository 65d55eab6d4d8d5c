"""What people and programs see of a session at a glance."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio
from msgspec.structs import asdict

from clisup.errors import WorldError
from clisup.host import clock
from clisup.host.locks import lock_holder

if TYPE_CHECKING:
    from clisup.daemon.sessions.session import Session

__all__ = ["keeper_pid_of", "summaries_of", "summary_of"]

AT_ONCE = 100
"""Summaries in one step: some milliseconds."""


async def summaries_of(sessions: Sequence[Session], turn: Callable[[], Awaitable[None]]) -> str:
    """The rows of many sessions, as a JSON array. Others are served in between, so each row is of its own moment; `turn` is awaited
    before each step."""
    parts: list[str] = []
    for at in range(0, len(sessions), AT_ONCE):
        if at:
            await trio.lowlevel.checkpoint()
        await turn()
        parts.append(json.dumps([summary_of(session) for session in sessions[at : at + AT_ONCE]])[1:-1])
    return f"[{', '.join(parts)}]"


def summary_of(session: Session) -> dict[str, Any]:
    """A row of `session/list` and `daemon/status`."""
    run = session.run
    current, ledger = session.ledger.current, session.ledger
    timers = run.guard.timers() if run else []
    keeper = run.keeper_pid if run else None
    last = ledger.last_event
    return {
        "session_id": session.id,
        "backend": session.spec.backend,
        "model": ledger.model or session.spec.model,
        "state": str(session.seen_state),
        "phase": run.tracker.phase if run else None,
        "turn_id": current.id if current else None,
        "native_session_id": ledger.native_session_id,
        "cwd": session.spec.cwd,
        "labels": session.spec.labels,
        "created_at": session.spec.created_at,
        "pid": ledger.held.pid if ledger.held else None,
        "keeper_pid": keeper,
        "rss_bytes": session.services.memory.of(keeper),
        "live": session.live is not None,
        "idle_s": run.guard.idle_s if run else None,
        "age_s": clock.age_of(session.spec.created_at),
        "turns": ledger.turns,
        "last_turn": ledger.last_turn,
        "held": held.words() if ledger.queue and (held := session.gate.held()) else None,
        "approvals": len(session.approvals.open),
        "queue": [{"turn_id": turn.id, "key": turn.key, "position": at + 1} for at, turn in enumerate(ledger.queue)],
        "tokens": asdict(ledger.usage),
        "cost_usd": ledger.cost_usd,
        "cost_source": ledger.cost_source,
        "budget": session.budgets.told(),
        "subscribers": session.recorder.followers,
        "first_seq": session.recorder.first_seq,
        "next_seq": session.recorder.next_seq,
        "last_event": last and {**last, "age_s": clock.age_of(last["ts"])},
        "next_timer": min(timers, key=lambda timer: float(timer["fires_in_s"])) if timers else None,
    }


def keeper_pid_of(session: Session) -> int | None:
    """The keeper of the session's process, as it said in hello or, before that, on disk.

    A disk that cannot be read must neither keep clients out nor let its CLI's tools in: the keeper's lock is asked then.
    """
    run = session.run
    if run is not None and run.keeper_pid is not None:
        return run.keeper_pid
    if (current := session.ledger.held) is None:
        return None
    run_dir = session.dir.run(current.run)
    try:
        word = run_dir.start_record()  # written before its fork
    except WorldError:
        with suppress(OSError):
            return lock_holder(run_dir.lock)
        return None
    return word.get("keeper_pid") if word else None
