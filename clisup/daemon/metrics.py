"""Metrics of the daemon: the table of all metrics, and the counters and histograms, updated where things happen.

All counters begin at zero with the daemon. Labels have few values: an unknown value counts as `other`, and no session,
turn, path or model is a label. Names follow the rules of Prometheus: the prefix `clisup_`, base units (seconds, bytes),
`_total` for counters. Tests compare docs/reference/observe.md with the table. `exposition.py` reads the gauges from the daemon's
state, and makes the text.
"""

from __future__ import annotations

import signal
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal, NamedTuple, get_args

import trio

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
from clisup.policy.watchdog import Phase

OTHER = "other"
LOOK_EVERY_S = 1.0
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
WATCHDOG = {
    "fired": "clisup_watchdog_firings_total",
    "warned": "clisup_watchdog_warnings_total",
    "credited": "clisup_watchdog_credits_total",
}
"""Counters by action of the watchdog."""
TOKENS = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_creation_input_tokens": "cache_creation",
    "cache_read_input_tokens": "cache_read",
    "reasoning_tokens": "reasoning",
}
ENDED_BY = (
    "cli", "client", "operator", "watchdog", "retry", "lease", "output_limit", "file_size", "storage", "memory", "pids", "approvals", "oom", "wrong_session",
    "idle", "room", "renewed", "changed", "budget", "unknown",
)  # fmt: skip
NOTICES = (
    "adopted", "asked", "budget_set", "checkpoint_ignored", "closed", "ending", "follow_up_first", "foreign_writes", "held", "history_not_kept", "journal_renewed",
    "model_set", "opening_recorded", "permission_mode_set", "process_restarted", "prompt_not_taken", "resumed", "run_replaced",
    "session_corrected", "state_refused", "steer_dropped", "storage_blocked", "storage_recovered", "title_set", "tool_timeout", "tool_unserved",
)  # fmt: skip
SPAN_RESULTS = ("exported", "failed", "dropped")
NOTIFY_RESULTS = ("delivered", "failed", "given_up")
_SIGNALS = (
    "HUP", "INT", "QUIT", "ILL", "ABRT", "BUS", "FPE", "KILL", "SEGV", "PIPE", "ALRM", "TERM", "XCPU", "XFSZ", "SYS",
)  # fmt: skip
SIGNALS: dict[int, str] = {int(signal.Signals[f"SIG{name}"]): f"SIG{name}" for name in _SIGNALS}


def among(value: str, known: Collection[str]) -> str:
    """Return the value if it is known, else `other`."""
    return value if value in known else OTHER


# -- the table ---------------------------------------------------------------------------------------------------------

MetricType = Literal["counter", "gauge", "histogram", "info"]
SINCE = "Since this daemon's start."
UNITS = ("seconds", "bytes", "ratio", "usd")


class Metric(NamedTuple):
    """Row of the table. `bounds` are the upper bounds of a histogram's buckets."""

    name: str
    type: MetricType
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


def unit_of(metric: Metric) -> str:
    """Return the unit at the end of the name, or an empty string for a count."""
    last = metric.name.removesuffix("_total").rpartition("_")[2]
    return last if last in UNITS and metric.type != "info" else ""


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "counter", f"{text} {SINCE}", labels)


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "gauge", text, labels)


def _histogram(name: str, text: str, bounds: tuple[float, ...], *labels: str) -> Metric:
    return Metric(name, "histogram", f"{text} {SINCE}", labels, bounds)


# fmt: off
METRICS: tuple[Metric, ...] = (
    # the daemon
    Metric("clisup_build_info", "info", "Versions of clisup and of its Python.", ("version", "python")),
    _gauge("clisup_start_time_seconds", "Start time of this daemon since the epoch; a restart in place is a start, too."),
    _gauge("clisup_started_in_place", "1 after a restart in place, else 0."),
    _gauge("clisup_exposition_timestamp_seconds", "Time of this text since the epoch."),
    _gauge("clisup_daemon_state", "1 for the current state of the daemon, else 0.", "state"),
    _gauge("clisup_process_resident_memory_bytes", "Resident memory of the daemon."),
    _gauge("clisup_process_open_fds", "Open file descriptors of the daemon."),
    _gauge("clisup_process_max_fds", "Limit of file descriptors of the daemon."),
    Metric("clisup_process_cpu_seconds_total", "counter", "User and system CPU time of the daemon. Since the process began."),
    _histogram("clisup_event_loop_lag_seconds", "Delay of a task that is due once a second: the wait of all clients.", BRIEF_BOUNDS),
    # sessions and turns
    _gauge("clisup_sessions", "Stored sessions, closed ones too.", "backend", "state"),
    _gauge("clisup_damaged_sessions", "Stored sessions that could not be read at the start."),
    _gauge("clisup_turns_running", "Running turns, adopted ones too."),
    _gauge("clisup_turns_running_limit", "Limit of running turns (daemon.max_running)."),
    _gauge("clisup_turns_waiting", "Turns that wait because of daemon.max_running."),
    _gauge("clisup_turns_queued", "Accepted prompts whose turn has not started.", "backend"),
    _gauge("clisup_turns_adopted", "Running turns taken over at the daemon's start."),
    _gauge("clisup_live_processes", "CLI processes of live sessions."),
    _gauge("clisup_live_processes_limit", "Limit of those processes (daemon.max_live)."),
    _counter("clisup_prompts_total", "Prompts accepted.", "backend", "delivery"),
    _counter("clisup_turns_started_total", "Turns started, by a prompt or by the CLI itself (backend).", "backend", "origin"),
    _counter("clisup_turns_total", "Turns ended.", "backend", "outcome"),
    _counter("clisup_turn_errors_total", "Turns ended with an error.", "backend", "kind"),
    _histogram("clisup_turn_duration_seconds", "Duration of turns.", TURN_BOUNDS, "backend"),
    _histogram("clisup_turn_wait_seconds", "Time from a prompt's acceptance to its turn's start.", WAIT_BOUNDS, "backend"),
    _histogram("clisup_turn_first_event_seconds", "Time from a turn's start to the CLI's first event.", START_BOUNDS, "backend"),
    _histogram("clisup_turn_process_start_seconds", "Time from a turn's start to its new process.", START_BOUNDS, "backend"),
    _counter("clisup_tokens_total", "Tokens of ended turns, as the CLIs report them.", "backend", "kind"),
    _counter("clisup_cost_usd_total", "Cost of ended turns, reported or estimated.", "backend"),
    _counter("clisup_tool_calls_total", "Tool calls.", "backend"),
    _counter("clisup_tool_errors_total", "Tool results that were errors.", "backend"),
    _counter("clisup_backend_retries_total", "Model requests that the CLIs repeated.", "backend"),
    _counter("clisup_unparsed_lines_total", "Lines of output that are no events.", "backend", "reason"),
    _counter("clisup_notices_total", "Notices of the daemon.", "backend", "code"),
    # processes
    _counter("clisup_processes_started_total", "CLI processes started.", "backend"),
    _counter("clisup_processes_ended_total", "CLI processes ended, by cause.", "backend", "ended_by"),
    _counter("clisup_process_signals_total", "CLI processes ended by a signal.", "backend", "signal"),
    _counter("clisup_survivors_total", "Processes that outlived their CLI: killed, kept by the orphan policy, or left (not killable).", "backend", "fate"),
    _counter("clisup_watchdog_firings_total", "Runs that the watchdog ended.", "backend", "phase"),
    _counter("clisup_watchdog_warnings_total", "Warnings at 80 % of a limit.", "backend", "phase"),
    _counter("clisup_watchdog_credits_total", "New windows for evidence of work.", "backend", "phase"),
    # approvals
    _gauge("clisup_approvals_open", "Tool calls that wait for an approval.", "backend"),
    _counter("clisup_approvals_requested_total", "Approvals requested.", "backend"),
    _counter("clisup_approvals_resolved_total", "Approvals resolved, by decision and its maker.", "backend", "decision", "by"),
    # accounts
    _gauge("clisup_accounts", "Known accounts, by state of their rate limit.", "kind", "state"),
    _gauge("clisup_account_waiting_sessions", "Sessions that wait for a rate limit.", "kind"),
    _gauge("clisup_account_utilization_ratio", "Highest used share of a reported rate limit.", "kind"),
    # the journal and its disk
    _counter("clisup_journal_events_total", "Events journaled, of the backend or the daemon.", "backend", "source"),
    _counter("clisup_journal_bytes_total", "Bytes appended to journals.", "backend"),
    _histogram("clisup_journal_sync_duration_seconds", "Duration of journal syncs.", BRIEF_BOUNDS),
    _gauge("clisup_storage_state", "1 for the current state of the state directory, else 0.", "state"),
    _gauge("clisup_storage_free_bytes", "Free space for the state directory."),
    _gauge("clisup_storage_writable", "1 if the state directory may be written, else 0."),
    _counter("clisup_storage_refusals_total", "Writes that the disk refused, repeated ones too."),
    # clients
    _gauge("clisup_clients", "Open connections."),
    _gauge("clisup_subscriptions", "Subscriptions."),
    _gauge("clisup_subscriptions_behind", "Subscriptions whose client has not received the newest event."),
    _counter("clisup_connections_total", "Connections accepted."),
    _counter("clisup_refused_connections_total", "Connections refused."),
    _counter("clisup_refused_frames_total", "Frames that were no request, or exceeded their connection's share."),
    _counter("clisup_requests_total", "Requests answered.", "method"),
    _counter("clisup_request_errors_total", "Requests answered with an error.", "method", "kind"),
    # messages
    _counter("clisup_notifications_total", "Messages of [[notify]]: tries delivered and failed, and messages given_up.", "result"),
    # drift and traces
    _gauge("clisup_drift_sightings", "Unknown frames and fields; kept over restarts.", "kind", "what"),
    _gauge("clisup_spans_queued", "Spans that wait for the collector."),
    _counter("clisup_spans_total", "Spans exported, failed (the collector did not take them) or dropped (the queue was full).", "result"),
)
# fmt: on
"""All metrics, in the order of the documentation."""
READ_ELSEWHERE = ("clisup_process_cpu_seconds_total", "clisup_storage_refusals_total")
"""Counters that the system or another part of the daemon keeps."""


# -- the values --------------------------------------------------------------------------------------------------------


class Histogram:
    """Observations by upper bound: `counts[i]` belongs to `bounds[i]`, the last count to those above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Add an observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Metrics:
    """Counters and histograms of one daemon: `values` maps a metric's name and its labels to the value."""

    def __init__(self) -> None:
        self.values: dict[str, dict[tuple[str, ...], float | Histogram]] = {}
        self.backends: set[str] = set()
        for metric in METRICS:
            if metric.type in ("counter", "histogram") and metric.name not in READ_ELSEWHERE:
                zero = Histogram(metric.bounds) if metric.bounds else 0
                self.values[metric.name] = {} if metric.labels else {(): zero}
        self._start_at_zero("clisup_spans_total", SPAN_RESULTS)
        self._start_at_zero("clisup_notifications_total", NOTIFY_RESULTS)

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to a counter."""
        series: dict[tuple[str, ...], Any] = self.values[name]
        series[labels] = series.get(labels, 0) + by

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Add an observation to a histogram. A clock that was set back gives no negative time."""
        series: dict[tuple[str, ...], Any] = self.values[name]
        if labels not in series:
            series[labels] = Histogram(_BOUNDS[name])
        series[labels].observe(max(0.0, seconds))

    def backend(self, name: str) -> str:
        """Return the label of a backend. Its counters begin at 0 here, so that the first failure is an increase too."""
        if name not in self.backends and len(self.backends) >= MAX_BACKENDS:
            name = OTHER
        if name not in self.backends:
            self.backends.add(name)
            for metric in METRICS:
                if metric.type == "counter" and metric.labels == ("backend",):
                    self.count(metric.name, name, by=0)
            self._start_at_zero("clisup_turns_total", OUTCOMES, name)
            self._start_at_zero("clisup_turn_errors_total", ERROR_KINDS, name)
            self._start_at_zero("clisup_watchdog_firings_total", FIRING, name)
            self._start_at_zero("clisup_journal_events_total", ("backend", "daemon"), name)
        return name

    def _start_at_zero(self, name: str, values: Iterable[str], *labels: str) -> None:
        for value in values:
            self.count(name, *labels, value, by=0)

    def requested(self, method: str, error: str | None) -> None:
        """Count an answered request, with the kind of its error or None.

        `method` is a method of the table, or `other`.
        """
        self.count("clisup_requests_total", method)
        if error is not None:
            self.count("clisup_request_errors_total", method, error)


_BOUNDS = {metric.name: metric.bounds for metric in METRICS}


async def watch_lag(metrics: Metrics) -> None:
    """Measure once a second how late this task runs: the wait that the daemon causes for all clients. Until cancelled."""
    while True:
        due = trio.current_time() + LOOK_EVERY_S
        await trio.sleep_until(due)
        metrics.observe("clisup_event_loop_lag_seconds", trio.current_time() - due)


# -- the events of a session -------------------------------------------------------------------------------------------

_NOTHING: frozenset[str] = frozenset()


class Meter:
    """Meter of one session, which counts its events for its backend.

    A batch of events costs three additions; only events of rare types are counted one by one.
    """

    def __init__(self, metrics: Metrics, backend: str) -> None:
        self.metrics = metrics
        self._backend = metrics.backend(backend)
        self._accepted: dict[str, float] = {}  # waiting turns, at most `max_queue`
        self._began: float | None = None  # start of the running turn, until its process and its first event have come
        self._awaited = _NOTHING

    def stored(self, events: int, own: int, size: int) -> None:
        """Count a journaled batch: its events, the daemon's own events among them, and its bytes."""
        count, backend = self.metrics.count, self._backend
        if events > own:
            count("clisup_journal_events_total", backend, "backend", by=events - own)
        if own:
            count("clisup_journal_events_total", backend, "daemon", by=own)
        count("clisup_journal_bytes_total", backend, by=size)

    def see(self, event: EventBase, turn_id: str | None, now: float) -> None:
        """Count a journaled event of `COUNTED`."""
        COUNTED[event.type](self, event, turn_id, now)

    def first_event(self, now: float) -> None:
        """Record the first output of the CLI for the turn.

        After a restart the duration is unknown and does not count.
        """
        self._arrived("event", "clisup_turn_first_event_seconds", now)

    def _arrived(self, what: str, name: str, now: float) -> None:
        if what in self._awaited and self._began is not None:
            self._awaited -= {what}
            self._observe(name, now - self._began)

    def _count(self, name: str, *labels: str, by: float = 1) -> None:
        self.metrics.count(name, self._backend, *labels, by=by)

    def _observe(self, name: str, seconds: float) -> None:
        self.metrics.observe(name, seconds, self._backend)

    def _prompt(self, event: PromptAccepted, turn_id: str | None, now: float) -> None:
        self._count("clisup_prompts_total", event.delivery)
        if turn_id is not None and event.delivery != "steered":
            self._accepted[turn_id] = now

    def _turn_started(self, event: TurnStarted, turn_id: str | None, now: float) -> None:
        self._count("clisup_turns_started_total", event.origin)
        if (accepted := self._accepted.pop(turn_id or "", None)) is not None:
            self._observe("clisup_turn_wait_seconds", now - accepted)
        self._began, self._awaited = now, frozenset({"process", "event"})

    def _process_started(self, event: ProcessStarted, turn_id: str | None, now: float) -> None:
        self._count("clisup_processes_started_total")
        self._arrived("process", "clisup_turn_process_start_seconds", now)

    def _turn_completed(self, event: TurnCompleted, turn_id: str | None, now: float) -> None:
        if self._accepted.pop(turn_id or "", None) is None:  # otherwise the turn never ran, and the running one goes on
            self._began = None
        self._count("clisup_turns_total", event.outcome)
        if event.error is not None:
            self._count("clisup_turn_errors_total", among(event.error.kind, ERROR_KINDS))
        if event.duration_s is not None:
            self._observe("clisup_turn_duration_seconds", event.duration_s)
        for name, kind in TOKENS.items():
            if tokens := getattr(event.usage, name):  # a running total that has fallen subtracts nothing
                self._count("clisup_tokens_total", kind, by=max(0, tokens))
        self._count("clisup_cost_usd_total", by=max(0.0, event.cost_usd or 0.0))

    def _process_exited(self, event: ProcessExited, turn_id: str | None, now: float) -> None:
        self._count("clisup_processes_ended_total", among(event.ended_by.partition(":")[0], ENDED_BY))
        if event.signal is not None:
            self._count("clisup_process_signals_total", SIGNALS.get(event.signal, OTHER))
        for fate, processes in (("killed", event.survivors), ("kept", event.kept), ("left", event.left)):
            self._count("clisup_survivors_total", fate, by=len(processes or ()))

    def _watchdog(self, event: WatchdogNotice, turn_id: str | None, now: float) -> None:
        self._count(WATCHDOG[event.action], among(event.phase, PHASES))

    def _approval_requested(self, event: ApprovalRequested, turn_id: str | None, now: float) -> None:
        self._count("clisup_approvals_requested_total")

    def _approval_resolved(self, event: ApprovalResolved, turn_id: str | None, now: float) -> None:
        self._count("clisup_approvals_resolved_total", event.decision, event.by)

    def _tool_use(self, event: ToolUse, turn_id: str | None, now: float) -> None:
        self._count("clisup_tool_calls_total")

    def _tool_result(self, event: ToolResult, turn_id: str | None, now: float) -> None:
        self._count("clisup_tool_errors_total", by=event.is_error)

    def _retry(self, event: BackendRetry, turn_id: str | None, now: float) -> None:
        self._count("clisup_backend_retries_total")

    def _unparsed(self, event: Unparsed, turn_id: str | None, now: float) -> None:
        self._count("clisup_unparsed_lines_total", event.reason, by=event.lines or 1)

    def _notice(self, event: Notice, turn_id: str | None, now: float) -> None:
        self._count("clisup_notices_total", among(event.code, NOTICES))


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
