"""Counters of the daemon: integers and histograms, for `daemon/metrics`. Pure: events and times come in.

All counters begin at zero with the daemon. Labels have few values: an unknown value counts as `other`, and no session,
turn, path or model is a label. A batch of events costs three additions; only events of rare types are counted one by
one.
"""

from __future__ import annotations

import signal
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, get_args

from clisup.model.events import (
    ApprovalRequested,
    ApprovalResolved,
    BackendRetry,
    EventBase,
    Notice,
    ProcessExited,
    ProcessStarted,
    PromptAccepted,
    ToolResult,
    ToolUse,
    TurnCompleted,
    TurnErrorKind,
    TurnOutcome,
    TurnStarted,
    Unparsed,
    WatchdogNotice,
)
from clisup.model.usage import Usage
from clisup.policy.watchdog import Phase

__all__ = ["COUNTED", "OTHER", "Figures", "Histogram", "Meter", "Tally", "among"]

OTHER = "other"
MAX_BACKENDS = 64
"""Number of backends with counters of their own. Further backends count as one, `other`."""

TURN_BOUNDS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
START_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
WAIT_BOUNDS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
BRIEF_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

OUTCOMES: tuple[str, ...] = get_args(TurnOutcome)
ERROR_KINDS: tuple[str, ...] = get_args(TurnErrorKind)
PHASES: tuple[str, ...] = (*get_args(Phase), "turn")
FIRING = tuple(phase for phase in PHASES if phase not in ("resting", "blocked"))
"""Phases that end a run. Their counters begin at 0, so that the first firing is an increase too."""
TOKENS = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_creation_input_tokens": "cache_creation",
    "cache_read_input_tokens": "cache_read",
    "reasoning_tokens": "reasoning",
}
ENDED_BY = (
    "cli", "client", "operator", "watchdog", "retry", "lease", "output_limit", "memory", "pids", "approvals", "oom", "wrong_session",
    "storage_failed", "idle", "room", "renewed", "changed", "budget", "unknown",
)  # fmt: skip
NOTICES = (
    "adopted", "asked", "budget_set", "bypass_not_launched", "closed", "ending", "follow_up_first", "foreign_writes", "held",
    "journal_renewed", "process_restarted", "prompt_not_taken", "resumed", "run_replaced", "session_corrected",
    "steer_dropped", "storage_blocked", "storage_recovered", "unsupported_request",
)  # fmt: skip
SPAN_RESULTS = ("exported", "failed", "dropped")
_SIGNALS = (
    "HUP",
    "INT",
    "QUIT",
    "ILL",
    "ABRT",
    "BUS",
    "FPE",
    "KILL",
    "SEGV",
    "PIPE",
    "ALRM",
    "TERM",
    "XCPU",
    "XFSZ",
    "SYS",
)
SIGNALS: dict[int, str] = {int(getattr(signal.Signals, f"SIG{name}")): f"SIG{name}" for name in _SIGNALS}


def among(value: str, known: Collection[str]) -> str:
    """Return the value if it is known, else `other`."""
    return value if value in known else OTHER


class Histogram:
    """Histogram: `counts[i]` are the observations up to `bounds[i]`, the last count those above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Add one observation. A clock that was set back gives no negative time."""
        value = max(0.0, value)
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """Return the number of observations."""
        return sum(self.counts)


class Tally:
    """Counters of one backend."""

    def __init__(self) -> None:
        self.events = self.own_events = self.journal_bytes = 0  # `own_events` are the daemon's, the others the CLIs'
        self.prompts: Counter[str] = Counter()
        self.turns_started: Counter[str] = Counter()
        self.turns: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self.turn_errors: Counter[str] = Counter(dict.fromkeys(ERROR_KINDS, 0))
        self.tokens: Counter[str] = Counter()
        self.cost_usd = 0.0
        self.processes_started = 0
        self.processes_ended: Counter[str] = Counter()
        self.signals: Counter[str] = Counter()
        self.survivors: Counter[str] = Counter()
        self.watchdog: Counter[tuple[str, str]] = Counter({("fired", phase): 0 for phase in FIRING})  # (action, phase)
        self.approvals_requested = 0
        self.approvals_resolved: Counter[tuple[str, str]] = Counter()  # (decision, by)
        self.tool_calls = self.tool_errors = self.retries = 0
        self.unparsed: Counter[str] = Counter()
        self.notices: Counter[str] = Counter()
        self.waited = Histogram(WAIT_BOUNDS)
        self.lasted = Histogram(TURN_BOUNDS)
        self.process_came = Histogram(START_BOUNDS)
        self.first_event_came = Histogram(START_BOUNDS)


class Figures:
    """Counters of the daemon. `of` returns the counters of a backend."""

    def __init__(self) -> None:
        self.backends: dict[str, Tally] = {}
        self.requests: Counter[str] = Counter()
        self.request_errors: Counter[tuple[str, str]] = Counter()  # (method, kind)
        self.refused_frames = 0
        self.connections = self.refused_connections = 0
        self.spans: Counter[str] = Counter(dict.fromkeys(SPAN_RESULTS, 0))
        self.spans_queued = 0
        self.lag = Histogram(BRIEF_BOUNDS)
        self.synced = Histogram(BRIEF_BOUNDS)

    def of(self, backend: str) -> Tally:
        """Return the counters of this backend."""
        if backend not in self.backends and len(self.backends) >= MAX_BACKENDS:
            backend = OTHER
        if (tally := self.backends.get(backend)) is None:
            tally = self.backends[backend] = Tally()
        return tally

    def requested(self, method: str, error: str | None) -> None:
        """Count an answered request, with the kind of its error or None.

        `method` is a method of the table, or `other`.
        """
        self.requests[method] += 1
        if error is not None:
            self.request_errors[method, error] += 1


_NOTHING: frozenset[str] = frozenset()  # Python makes a new empty set each time, of 0.2 KB


class Meter:
    """Meter of one session, which adds to its backend's counters.

    It keeps the times of waiting turns to measure their waits.
    """

    def __init__(self, figures: Figures, backend: str) -> None:
        self.figures = figures
        self.tally = figures.of(backend)
        self._accepted: dict[str, float] = {}  # waiting turns, at most `max_queue`
        self._began: float | None = (
            None  # start of the running turn, until both its process and its first event have come
        )
        self._awaited = _NOTHING

    def stored(self, events: int, own: int, size: int) -> None:
        """Count a journaled batch: its events, the daemon's own events among them, and its bytes."""
        self.tally.events += events
        self.tally.own_events += own
        self.tally.journal_bytes += size

    def see(self, event: EventBase, turn_id: str | None, now: float) -> None:
        """Count a journaled event of `COUNTED`."""
        COUNTED[event.type](self, event, turn_id, now)

    def first_event(self, now: float) -> None:
        """Record the first output of the CLI for the turn.

        After a restart the duration is unknown and does not count.
        """
        if "event" in self._awaited and self._began is not None:
            self._awaited -= {"event"}
            self.tally.first_event_came.observe(now - self._began)

    # -- the events that are counted one by one ----------------------------------------------------------------------

    def _prompt(self, event: PromptAccepted, turn_id: str | None, now: float) -> None:
        self.tally.prompts[event.delivery] += 1
        if turn_id is not None and event.delivery != "steered":
            self._accepted[turn_id] = now

    def _turn_started(self, event: TurnStarted, turn_id: str | None, now: float) -> None:
        self.tally.turns_started[event.origin] += 1
        if (accepted := self._accepted.pop(turn_id or "", None)) is not None:
            self.tally.waited.observe(now - accepted)
        self._began, self._awaited = now, frozenset({"process", "event"})

    def _process_started(self, event: ProcessStarted, turn_id: str | None, now: float) -> None:
        self.tally.processes_started += 1
        if "process" in self._awaited and self._began is not None:
            self._awaited -= {"process"}
            self.tally.process_came.observe(now - self._began)

    def _turn_completed(self, event: TurnCompleted, turn_id: str | None, now: float) -> None:
        tally = self.tally
        if self._accepted.pop(turn_id or "", None) is None:  # otherwise the turn never ran, and the running one goes on
            self._began = None
        tally.turns[event.outcome] += 1
        if event.error is not None:
            tally.turn_errors[among(event.error.kind, ERROR_KINDS)] += 1
        if event.duration_s is not None:
            tally.lasted.observe(event.duration_s)
        _add_tokens(tally.tokens, event.usage)
        tally.cost_usd += max(0.0, event.cost_usd or 0.0)

    def _process_exited(self, event: ProcessExited, turn_id: str | None, now: float) -> None:
        tally = self.tally
        tally.processes_ended[among(event.ended_by.partition(":")[0], ENDED_BY)] += 1
        if event.signal is not None:
            tally.signals[SIGNALS.get(event.signal, OTHER)] += 1
        for fate, processes in (("killed", event.survivors), ("kept", event.kept), ("left", event.left)):
            tally.survivors[fate] += len(processes or ())

    def _watchdog(self, event: WatchdogNotice, turn_id: str | None, now: float) -> None:
        self.tally.watchdog[event.action, among(event.phase, PHASES)] += 1

    def _approval_requested(self, event: ApprovalRequested, turn_id: str | None, now: float) -> None:
        self.tally.approvals_requested += 1

    def _approval_resolved(self, event: ApprovalResolved, turn_id: str | None, now: float) -> None:
        self.tally.approvals_resolved[event.decision, event.by] += 1

    def _tool_use(self, event: ToolUse, turn_id: str | None, now: float) -> None:
        self.tally.tool_calls += 1

    def _tool_result(self, event: ToolResult, turn_id: str | None, now: float) -> None:
        self.tally.tool_errors += event.is_error

    def _retry(self, event: BackendRetry, turn_id: str | None, now: float) -> None:
        self.tally.retries += 1

    def _unparsed(self, event: Unparsed, turn_id: str | None, now: float) -> None:
        self.tally.unparsed[event.reason] += event.lines or 1

    def _notice(self, event: Notice, turn_id: str | None, now: float) -> None:
        self.tally.notices[among(event.code, NOTICES)] += 1


def _add_tokens(tokens: Counter[str], usage: Usage) -> None:
    """Add the tokens of a turn.

    Unreported counts are skipped, and a running total that has fallen subtracts nothing.
    """
    for name, kind in TOKENS.items():
        if value := getattr(usage, name):
            tokens[kind] += max(0, value)


COUNTED: dict[str, Callable[[Meter, Any, str | None, float], None]] = {
    "prompt_accepted": Meter._prompt,
    "turn_started": Meter._turn_started,
    "process_started": Meter._process_started,
    "process_exited": Meter._process_exited,
    "turn_completed": Meter._turn_completed,
    "watchdog": Meter._watchdog,
    "approval_requested": Meter._approval_requested,
    "approval_resolved": Meter._approval_resolved,
    "tool_use": Meter._tool_use,
    "tool_result": Meter._tool_result,
    "retry": Meter._retry,
    "unparsed": Meter._unparsed,
    "notice": Meter._notice,
}
"""Types of events that are counted one by one. None of them comes with every token."""
