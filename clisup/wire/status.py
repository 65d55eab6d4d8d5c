"""Result of `daemon/status` and output of `clisup status --json`. docs/schemas/status.json is made from these models.

New fields may appear at any time; `schema_version` grows when a field changes its meaning or disappears. Without a daemon,
`clisup status --json` makes the same object from the files. `daemon.state` is then `not_running` or `unreachable`, and every
value that only a daemon knows is null.
"""

# Not `from __future__ import annotations`: pydantic would compile and evaluate each annotation at every start.

from typing import Literal

from pydantic import Field

from clisup.model.events import TurnOutcome
from clisup.model.structs import JsonObject
from clisup.wire.results import BackendInfo, NotifyRow, Result, SessionSummary

STATUS_SCHEMA = 1


class StorageStatus(Result):
    """State of the disk that holds the state directory."""

    path: str
    state: Literal["ok", "full", "read_only", "failing", "overloaded"] | None
    since: str | None
    error: str | None
    failures: int | None
    free_bytes: int | None
    writable: bool


class DaemonInfo(Result):
    """Identity and load of the daemon. Without a daemon: its expected socket and directory, and the turns that run without it."""

    name: str
    version: str
    pid: int | None
    instance_id: str | None
    started_at: str | None
    activated: bool
    log_file: str | None = None
    search_path: str | None = None
    """The daemon's PATH, on which it looks for the CLIs."""
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
    """Backend with its number of open sessions."""

    sessions: int


class LastEvent(Result):
    """Newest event of a session."""

    seq: int
    type: str
    ts: str
    age_s: float


class LastTurn(Result):
    """Last turn of a session that has ended. `error_kind` is null if the turn had no error."""

    turn_id: str
    outcome: TurnOutcome
    error_kind: str | None
    ended_at: str


class NextTimer(Result):
    """Timer of the watchdog that fires first."""

    phase: str
    limit_s: float
    fires_in_s: float
    warns_in_s: float | None = None


class QueuedTurn(Result):
    """Prompt in the queue of a session."""

    turn_id: str
    key: str | None
    position: int


class SessionRow(SessionSummary):
    """Row of a session. Typed clients get the nested objects as dicts, as in `session/list`; the schema lists their fields."""

    queue: list[QueuedTurn]  # type: ignore[assignment]  # see above
    last_turn: LastTurn | None  # type: ignore[assignment]  # see above
    last_event: LastEvent | None  # type: ignore[assignment]  # see above
    next_timer: NextTimer | None  # type: ignore[assignment]  # see above


class AccountRow(Result):
    """Rate limit of an account, as far as its CLI has reported it."""

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
    """Sums over all stored sessions, including closed ones."""

    turns: dict[str, int]
    watchdog_fired: int
    tokens: JsonObject
    cost_usd: float | None


class ClientRow(Result):
    """Connection of a client."""

    uid: int
    pid: int | None
    name: str | None
    role: Literal["observe", "drive", "admin"]
    subscriptions: int


class DriftCounts(Result):
    """Frames and fields of one CLI version that this clisup does not know, counted."""

    kind: str
    version: str
    first_seen: str
    last_seen: str
    frames: dict[str, int]
    fields: dict[str, int]
    more: int


class StatusResult(Result):
    """Whole result of `daemon/status`."""

    schema_version: Literal[1] = Field(
        description="Grows when a field changes its meaning or disappears. New fields may appear at any time."
    )
    daemon: DaemonInfo
    backends: list[BackendRow]
    sessions: list[SessionRow]
    accounts: list[AccountRow]
    damaged_sessions: dict[str, str]
    totals: Totals
    drift: list[DriftCounts]
    clients: list[ClientRow]
    notify: list[NotifyRow] = []
