"""What the daemon counts while it works: integers and histograms, for `daemon/metrics`. Pure: events and times come in.

All of it begins at zero with the daemon. Labels have few values: what is not among the known ones counts as `other`, and no
session, turn, path or model is one. A batch of events costs three additions; only the rare types are looked at one by one.
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
"""Backends that are told apart: those beyond count as one, `other`."""

TURN_BOUNDS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
START_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
WAIT_BOUNDS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
BRIEF_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

OUTCOMES: tuple[str, ...] = get_args(TurnOutcome)
ERROR_KINDS: tuple[str, ...] = get_args(TurnErrorKind)
PHASES: tuple[str, ...] = (*get_args(Phase), "turn")
FIRING = tuple(phase for phase in PHASES if phase not in ("resting", "blocked"))
"""The phases that end a run, whose counters begin at 0 so that the first firing is an increase too."""
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
    """The value, where it is a known one."""
    return value if value in known else OTHER


class Histogram:
    """Observations in buckets: `counts[i]` are those up to `bounds[i]`, the last one those above all of them."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """One more. A clock that was set back gives no negative time."""
        value = max(0.0, value)
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)


class Tally:
    """The sums of one backend."""

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
    """All that the daemon counts. `of` gives the sums of a backend."""

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
        """The sums of this backend."""
        if backend not in self.backends and len(self.backends) >= MAX_BACKENDS:
            backend = OTHER
        if (tally := self.backends.get(backend)) is None:
            tally = self.backends[backend] = Tally()
        return tally

    def requested(self, method: str, error: str | None) -> None:
        """A request was answered: with an error of this kind, or well. `method` is one of the table, or `other`."""
        self.requests[method] += 1
        if error is not None:
            self.request_errors[method, error] += 1


_NOTHING: frozenset[str] = frozenset()  # Python makes a new one each time, of 0.2 KB


class Meter:
    """One session's way to its backend's sums. It remembers when its turns came, to know how long they wait."""

    def __init__(self, figures: Figures, backend: str) -> None:
        self.figures = figures
        self.tally = figures.of(backend)
        self._accepted: dict[str, float] = {}  # turns that wait, at most `max_queue`
        self._began: float | None = (
            None  # the running turn's start, as long as its process or its first event has not come
        )
        self._awaited = _NOTHING

    def stored(self, events: int, own: int, size: int) -> None:
        """A batch was journaled: so many events, so many of them the daemon's own, and bytes."""
        self.tally.events += events
        self.tally.own_events += own
        self.tally.journal_bytes += size

    def see(self, event: EventBase, turn_id: str | None, now: float) -> None:
        """An event of `COUNTED` was journaled."""
        COUNTED[event.type](self, event, turn_id, now)

    def first_event(self, now: float) -> None:
        """The CLI has begun to speak of the turn. After a restart nobody knows how long that took."""
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
        if self._accepted.pop(turn_id or "", None) is None:  # else it never ran, and the running one goes on
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
    """What a CLI does not tell is not counted; a running total that has fallen takes nothing away."""
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
"""The types of events that are looked at one by one; none of them comes by the token."""
