"""What `daemon/status` answers, and `clisup status --json` prints: docs/schemas/status.json is made from these models.

Fields may be added; `schema_version` grows when one changes its meaning or goes. Where no daemon runs, `clisup status --json`
makes the same object from the files: `daemon.state` is then `not_running` or `unreachable`, and what only a daemon knows is null.
"""

# Not `from __future__ import annotations`: pydantic would compile and evaluate each field's at every start.

from typing import Any, Literal

from pydantic import Field

from clisup.model.events import TurnOutcome
from clisup.wire.models import BackendInfo, Result, SessionSummary

__all__ = [
    "STATUS_SCHEMA",
    "AccountRow",
    "BackendRow",
    "ClientRow",
    "DaemonInfo",
    "DriftCounts",
    "SessionRow",
    "StatusResult",
    "StorageStatus",
    "Totals",
]

STATUS_SCHEMA = 1


class StorageStatus(Result):
    """Whether the state directory takes what is written."""

    path: str
    state: Literal["ok", "full", "read_only", "failing"] | None
    since: str | None
    error: str | None
    failures: int | None
    free_bytes: int | None
    writable: bool


class DaemonInfo(Result):
    """Who serves, and how much. Without a daemon: where one would be, and what runs without it."""

    name: str
    version: str
    pid: int | None
    instance_id: str | None
    started_at: str | None
    activated: bool
    uptime_s: float | None
    socket: str
    state_dir: str
    config_file: str | None = None
    """The configuration file that the daemon reads, whether or not it exists."""
    state: Literal["starting", "ready", "draining", "not_running", "unreachable"]
    rss_bytes: int | None
    open_fds: int | None
    running: int
    max_running: int | None
    waiting: int
    adopted_turns: int | None
    storage: StorageStatus
    reason: str | None = None


class BackendRow(BackendInfo):
    """A backend, and how many open sessions it has."""

    sessions: int


class LastEvent(Result):
    """The newest event of a session."""

    seq: int
    type: str
    ts: str
    age_s: float


class LastTurn(Result):
    """The turn of a session that ended last. `error_kind` is null where it had no error."""

    turn_id: str
    outcome: TurnOutcome
    error_kind: str | None
    ended_at: str


class NextTimer(Result):
    """The watchdog's timer that fires first."""

    phase: str
    limit_s: float
    fires_in_s: float
    warns_in_s: float | None = None


class QueuedTurn(Result):
    """A prompt that waits for its turn."""

    turn_id: str
    key: str | None
    position: int


class SessionRow(SessionSummary):
    """A session. To typed clients these are dicts, as in `session/list`; the schema says what is in them."""

    queue: list[QueuedTurn]  # type: ignore[assignment]  # see above
    last_turn: LastTurn | None  # type: ignore[assignment]  # see above
    last_event: LastEvent | None  # type: ignore[assignment]  # see above
    next_timer: NextTimer | None  # type: ignore[assignment]  # see above


class AccountRow(Result):
    """What is known of an account's rate limit."""

    account: str
    kind: str
    state: Literal["unknown", "ok", "warned", "limited"]
    until: str | None
    limit_type: str | None
    utilization: float | None
    message: str | None
    said_at: str | None
    waiting: list[str]
    probe: str | None


class Totals(Result):
    """Sums over all sessions that are stored, closed ones too."""

    turns: dict[str, int]
    watchdog_fired: int
    tokens: dict[str, Any]
    cost_usd: float | None


class ClientRow(Result):
    """A connection."""

    uid: int
    pid: int | None
    name: str | None
    role: Literal["observe", "drive", "admin"]
    subscriptions: int


class DriftCounts(Result):
    """What a version of a CLI said and this clisup does not know."""

    kind: str
    version: str
    first_seen: str
    last_seen: str
    frames: dict[str, int]
    fields: dict[str, int]
    more: int


class StatusResult(Result):
    """The whole answer."""

    schema_version: Literal[1] = Field(
        description="Grows when a field changes its meaning or goes; fields may be added."
    )
    daemon: DaemonInfo
    backends: list[BackendRow]
    sessions: list[SessionRow]
    accounts: list[AccountRow]
    damaged_sessions: dict[str, str]
    totals: Totals
    drift: list[DriftCounts]
    clients: list[ClientRow]
