"""Summaries of sessions, for `session/list` and `daemon/status`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio

from clisup.daemon.ops.session_row import ProcessState, session_row
from clisup.errors import WorldError
from clisup.host.locks import lock_holder

if TYPE_CHECKING:
    from clisup.daemon.sessions.session import Session

__all__ = ["keeper_pid_of", "summaries_of", "summary_of"]

AT_ONCE = 100
"""Summaries in one step, which takes some milliseconds."""


async def summaries_of(sessions: Sequence[Session], turn: Callable[[], Awaitable[None]]) -> str:
    """Return the rows of many sessions as a JSON array.

    Each step awaits `turn` and serves other tasks, so rows may show different moments.
    """
    parts: list[str] = []
    for at in range(0, len(sessions), AT_ONCE):
        if at:
            await trio.lowlevel.checkpoint()
        await turn()
        parts.append(json.dumps([summary_of(session) for session in sessions[at : at + AT_ONCE]])[1:-1])
    return f"[{', '.join(parts)}]"


def summary_of(session: Session) -> dict[str, Any]:
    """Return the row of a session in `session/list` and `daemon/status`."""
    run, ledger = session.run, session.ledger
    timers = run.guard.timers() if run else []
    keeper = run.keeper_pid if run else None
    process = ProcessState(
        state=str(session.seen_state),
        first_seq=session.recorder.first_seq,
        next_seq=session.recorder.next_seq,
        budget=session.budgets.told(),
        phase=run.tracker.phase if run else None,
        pid=ledger.held.pid if ledger.held else None,
        keeper_pid=keeper,
        rss_bytes=session.services.memory.of(keeper),
        live=session.live is not None,
        idle_s=run.guard.idle_s if run else None,
        held=held.words() if ledger.queue and (held := session.gate.held()) else None,
        approvals=len(session.approvals.open),
        subscribers=session.recorder.followers,
        next_timer=min(timers, key=lambda timer: float(timer["fires_in_s"])) if timers else None,
    )
    return session_row(session.spec, ledger, process)


def keeper_pid_of(session: Session) -> int | None:
    """Return the pid of the keeper of the session's process, from the keeper's hello or its start record.

    An unreadable disk must neither keep clients out nor let the CLI's tools in: the keeper's lock then gives the pid.
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
