"""Row of a session and sums over sessions, for the daemon and for commands without a daemon."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import asdict

from clisup.config.session_spec import SessionSpec
from clisup.host import clock
from clisup.model.sessions.ledger import Ledger
from clisup.model.structs import JsonObject
from clisup.model.usage import Usage


class ProcessState(Struct, frozen=True, kw_only=True):
    """State of a session's process and clients that is not in the journal. Most fields are unknown without a daemon."""

    state: str
    phase: str | None = None
    pid: int | None = None
    keeper_pid: int | None = None
    rss_bytes: int | None = None
    live: bool = False
    idle_s: float | None = None
    held: JsonObject | None = None
    approvals: int = 0
    budget: JsonObject | None
    subscribers: int = 0
    first_seq: int
    next_seq: int
    next_timer: JsonObject | None = None
    worktree: JsonObject | None = None
    branch: str | None = None


def session_row(spec: SessionSpec, ledger: Ledger, process: ProcessState) -> JsonObject:
    """Return the row of a session. docs/schemas/status.json describes its fields."""
    current, last = ledger.current, ledger.last_event
    return {
        "session_id": spec.session_id,
        "title": ledger.title_of(spec.title),
        "backend": spec.backend,
        "model": ledger.model or spec.model,
        **asdict(process),
        "turn_id": current.id if current else None,
        "native_session_id": ledger.native_session_id,
        "cwd": spec.cwd,
        "labels": spec.labels,
        "created_at": spec.created_at,
        "closed_by": ledger.closed_by,
        "age_s": clock.age_of(spec.created_at),
        "turns": ledger.turns,
        "last_turn": ledger.last_turn,
        "queue": [{"turn_id": turn.id, "key": turn.key, "position": at + 1} for at, turn in enumerate(ledger.queue)],
        "tokens": asdict(ledger.usage),
        "cost_usd": ledger.cost_usd,
        "cost_source": ledger.cost_source,
        "last_event": last and {**last, "age_s": clock.age_of(last["ts"])},
    }


_OUTCOMES = ("completed", "failed", "interrupted", "timed_out")


def totals_of(ledgers: Iterable[Ledger]) -> JsonObject:
    """Return `{turns, watchdog_fired, tokens, cost_usd}`. The cost is null if no turn reported a cost."""
    known = list(ledgers)
    costs = [ledger.cost_usd for ledger in known if ledger.cost_usd is not None]
    return {
        "turns": {name: sum(ledger.outcomes.get(name, 0) for ledger in known) for name in _OUTCOMES},
        "watchdog_fired": sum(ledger.watchdog_fired for ledger in known),
        "tokens": asdict(Usage.total(ledger.usage for ledger in known)),
        "cost_usd": round(sum(costs), 6) if costs else None,
    }
