"""Summaries of sessions, for `session/list` and `daemon/status`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from clisup.daemon.sessions.session import Session
from clisup.daemon.sessions.session_row import ProcessState, session_row
from clisup.model.envelope import encoded
from clisup.model.structs import JsonObject

AT_ONCE = 100
"""Summaries in one step, which takes some milliseconds."""


async def summaries_of(sessions: Sequence[Session], turn: Callable[[], Awaitable[None]]) -> bytes:
    """Return the rows of many sessions as a JSON array.

    Each step awaits `turn` and serves other tasks, so rows may show different moments.
    """
    parts: list[bytes] = []
    for at in range(0, len(sessions), AT_ONCE):
        if at:
            await trio.lowlevel.checkpoint()
        await turn()
        parts.append(encoded([summary_of(session) for session in sessions[at : at + AT_ONCE]])[1:-1])
    return b"[%b]" % b",".join(parts)


def summary_of(session: Session) -> JsonObject:
    """Return the row of a session in `session/list` and `daemon/status`."""
    run, ledger = session.run, session.ledger
    timers = run.watchdog.timers() if run else []
    keeper = run.keeper_pid if run else None
    process = ProcessState(
        state=str(session.visible_state),
        first_seq=session.recorder.first_seq,
        next_seq=session.recorder.next_seq,
        budget=session.budgets.describe(),
        phase=run.tracker.phase if run else None,
        pid=ledger.active_turn.pid if ledger.active_turn else None,
        keeper_pid=keeper,
        rss_bytes=session.context.services.memory.of(keeper),
        live=session.live is not None,
        idle_s=run.watchdog.idle_s if run else None,
        held=held.describe() if ledger.queue and (held := session.gate.held()) else None,
        approvals=len(session.approvals.open),
        subscribers=session.recorder.followers,
        worktree=session.worktree(),
        branch=session.context.services.branches.of(session.spec.cwd),
        next_timer=min(timers, key=lambda timer: float(timer["fires_in_s"])) if timers else None,
    )
    return session_row(session.spec, ledger, process)
