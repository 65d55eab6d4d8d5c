"""Row of a session, and sums over sessions, as the daemon and the commands without a daemon show them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import asdict

from clisup.config.session_spec import SessionSpec
from clisup.host import clock
from clisup.model.sessions.ledger import Ledger
from clisup.model.structs import JsonObject
from clisup.model.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """State of a session's process and clients, which the journal does not hold. Without a daemon, most of it is unknown."""

    state: str
    first_seq: int
    next_seq: int
    budget: JsonObject | None
    phase: str | None = None
    pid: int | None = None
    keeper_pid: int | None = None
    rss_bytes: int | None = None
    live: bool = False
    idle_s: float | None = None
    held: JsonObject | None = None
    approvals: int = 0
    subscribers: int = 0
    next_timer: JsonObject | None = None


def session_row(spec: SessionSpec, ledger: Ledger, process: ProcessState) -> JsonObject:
    """Return the row of a session. docs/schemas/status.json describes its fields."""
    current, last = ledger.current, ledger.last_event
    return {
        "session_id": spec.session_id,
        "backend": spec.backend,
        "model": ledger.model or spec.model,
        "state": process.state,
        "phase": process.phase,
        "turn_id": current.id if current else None,
        "native_session_id": ledger.native_session_id,
        "cwd": spec.cwd,
        "labels": spec.labels,
        "created_at": spec.created_at,
        "pid": process.pid,
        "keeper_pid": process.keeper_pid,
        "rss_bytes": process.rss_bytes,
        "live": process.live,
        "idle_s": process.idle_s,
        "age_s": clock.age_of(spec.created_at),
        "turns": ledger.turns,
        "last_turn": ledger.last_turn,
        "held": process.held,
        "approvals": process.approvals,
        "queue": [{"turn_id": turn.id, "key": turn.key, "position": at + 1} for at, turn in enumerate(ledger.queue)],
        "tokens": asdict(ledger.usage),
        "cost_usd": ledger.cost_usd,
        "cost_source": ledger.cost_source,
        "budget": process.budget,
        "subscribers": process.subscribers,
        "first_seq": process.first_seq,
        "next_seq": process.next_seq,
        "last_event": last and {**last, "age_s": clock.age_of(last["ts"])},
        "next_timer": process.next_timer,
    }


_OUTCOMES = ("completed", "failed", "interrupted", "timed_out")


def totals_of(ledgers: Iterable[Ledger]) -> JsonObject:
    """Return `{turns, watchdog_fired, tokens, cost_usd}`; the cost is null if no turn reported one."""
    known = list(ledgers)
    costs = [ledger.cost_usd for ledger in known if ledger.cost_usd is not None]
    return {
        "turns": {name: sum(ledger.outcomes.get(name, 0) for ledger in known) for name in _OUTCOMES},
        "watchdog_fired": sum(ledger.watchdog_fired for ledger in known),
        "tokens": asdict(Usage.total(ledger.usage for ledger in known)),
        "cost_usd": round(sum(costs), 6) if costs else None,
    }
