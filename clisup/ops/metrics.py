"""Table of metrics: name, type, labels and meaning of each metric.

For a backend's metric it also has the value's source. Pure. Names follow the rules of Prometheus: the prefix `clisup_`,
base units (seconds, bytes), `_total` for counters. No label names a session, a turn, a model or a client. A test
compares docs/metrics.md with this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from clisup.ops.figures import Histogram, Tally

__all__ = ["METRICS", "Metric", "MetricType", "Rows", "unit_of"]

MetricType = Literal["counter", "gauge", "histogram", "info"]
Rows = Iterable[tuple[tuple[str, ...], "float | Histogram"]]
"""Pairs of label values, in the order of the metric's labels, and the value for them."""
SINCE = "Since this daemon's start."
UNITS = ("seconds", "bytes", "ratio", "usd")


class Metric(NamedTuple):
    """Metric.

    `of` reads its values from a backend's counters, with the backend as first label. Without `of` the daemon supplies
    them.
    """

    name: str
    type: MetricType
    help: str
    labels: tuple[str, ...] = ()
    of: Callable[[Tally], Rows] | None = None


def unit_of(metric: Metric) -> str:
    """Return the unit at the end of the name, or an empty string for a count."""
    last = metric.name.removesuffix("_total").rpartition("_")[2]
    return last if last in UNITS and metric.type != "info" else ""


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "counter", f"{text} {SINCE}", labels)


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "gauge", text, labels)


def _by_backend(name: str, text: str, of: Callable[[Tally], Rows], *labels: str) -> Metric:
    return Metric(name, "counter", f"{text} {SINCE}", ("backend", *labels), of)


def _times(name: str, text: str, of: Callable[[Tally], Histogram]) -> Metric:
    def rows(tally: Tally) -> Rows:
        histogram = of(tally)
        return [((), histogram)] if histogram.count else []

    return Metric(name, "histogram", f"{text} {SINCE}", ("backend",), rows)


def _one(value: float) -> Rows:
    return [((), value)]


def _each(counts: dict[str, int]) -> Rows:
    return sorted(((label,), value) for label, value in counts.items())


def _phases(tally: Tally, action: str) -> Rows:
    return [((phase,), value) for (did, phase), value in sorted(tally.watchdog.items()) if did == action]


# fmt: off
METRICS: tuple[Metric, ...] = (
    # the daemon
    Metric("clisup_build_info", "info", "Version of clisup and of the Python it runs on.", ("version", "python")),
    _gauge("clisup_start_time_seconds", "Start time of this daemon, in seconds since the epoch. A restart in place is a start too."),
    _gauge("clisup_started_in_place", "1 if this daemon took over in the process of the previous daemon, else 0."),
    _gauge("clisup_exposition_timestamp_seconds", "Time of this text, in seconds since the epoch: shows the age of a stored copy."),
    _gauge("clisup_daemon_state", "1 for the current state of the daemon, 0 for the others.", "state"),
    _gauge("clisup_process_resident_memory_bytes", "Resident memory of the daemon's own process."),
    _gauge("clisup_process_open_fds", "Open file descriptors of the daemon's own process."),
    _gauge("clisup_process_max_fds", "Limit of file descriptors of the daemon's own process."),
    Metric("clisup_process_cpu_seconds_total", "counter", "User and system CPU time of the daemon's own process. Since the process began."),
    Metric("clisup_event_loop_lag_seconds", "histogram", f"Delay of a task that is due once a second: the wait that the daemon causes for all clients. {SINCE}"),
    # sessions and turns
    _gauge("clisup_sessions", "Stored sessions, closed ones too, by backend and state.", "backend", "state"),
    _gauge("clisup_damaged_sessions", "Stored sessions that could not be read at the start."),
    _gauge("clisup_turns_running", "Running turns, adopted ones too."),
    _gauge("clisup_turns_running_limit", "Limit of turns that run at once (daemon.max_running)."),
    _gauge("clisup_turns_waiting", "Turns that wait because of daemon.max_running."),
    _gauge("clisup_turns_queued", "Accepted prompts whose turn has not started, by backend.", "backend"),
    _gauge("clisup_turns_adopted", "Running turns that this daemon took over from the previous daemon at its start."),
    _gauge("clisup_live_processes", "CLI processes of live sessions, at work or at rest."),
    _gauge("clisup_live_processes_limit", "Limit of CLI processes of live sessions (daemon.max_live)."),
    _by_backend("clisup_prompts_total", "Prompts accepted, by their immediate delivery.", lambda t: _each(t.prompts), "delivery"),
    _by_backend("clisup_turns_started_total", "Turns started, by origin: a prompt, or the CLI itself (backend).", lambda t: _each(t.turns_started), "origin"),
    _by_backend("clisup_turns_total", "Turns ended, by outcome.", lambda t: _each(t.turns), "outcome"),
    _by_backend("clisup_turn_errors_total", "Turns that ended with an error, by its kind.", lambda t: _each(t.turn_errors), "kind"),
    _times("clisup_turn_duration_seconds", "Duration of turns, as reported at their ends.", lambda t: t.lasted),
    _times("clisup_turn_wait_seconds", "Time from a prompt's acceptance to its turn's start: in the queue, for a free place, for its account.", lambda t: t.waited),
    _times("clisup_turn_first_event_seconds", "Time from a turn's start to the first event of its CLI.", lambda t: t.first_event_came),
    _times("clisup_turn_process_start_seconds", "Time from a turn's start to its CLI's process, if the turn needed a new one.", lambda t: t.process_came),
    _by_backend("clisup_tokens_total", "Tokens of ended turns as the CLIs report them; output includes reasoning, input excludes cached tokens.", lambda t: _each(t.tokens), "kind"),
    _by_backend("clisup_cost_usd_total", "Cost of ended turns in US dollars, as their CLIs report it, else estimated; unknown models add nothing.", lambda t: _one(t.cost_usd)),
    _by_backend("clisup_tool_calls_total", "Tool calls that the CLIs reported.", lambda t: _one(t.tool_calls)),
    _by_backend("clisup_tool_errors_total", "Tool results that were errors.", lambda t: _one(t.tool_errors)),
    _by_backend("clisup_backend_retries_total", "Model requests that the CLIs repeated by themselves.", lambda t: _one(t.retries)),
    _by_backend("clisup_unparsed_lines_total", "Lines of output that are no events, by reason.", lambda t: _each(t.unparsed), "reason"),
    _by_backend("clisup_notices_total", "The daemon's own notices, by code: adopted, run_replaced, process_restarted and so on.", lambda t: _each(t.notices), "code"),
    # processes
    _by_backend("clisup_processes_started_total", "CLI processes started.", lambda t: _one(t.processes_started)),
    _by_backend("clisup_processes_ended_total", "CLI processes ended, by cause.", lambda t: _each(t.processes_ended), "ended_by"),
    _by_backend("clisup_process_signals_total", "CLI processes ended by a signal, by signal.", lambda t: _each(t.signals), "signal"),
    _by_backend("clisup_survivors_total", "Processes that outlived their CLI, by fate: killed, kept by the orphan policy, or left because they could not be killed.", lambda t: _each(t.survivors), "fate"),
    _by_backend("clisup_watchdog_firings_total", "Runs that the watchdog ended, by phase.", lambda t: _phases(t, "fired"), "phase"),
    _by_backend("clisup_watchdog_warnings_total", "Warnings of the watchdog at 80 % of a limit, by phase.", lambda t: _phases(t, "warned"), "phase"),
    _by_backend("clisup_watchdog_credits_total", "New windows that the watchdog gave for evidence of work, by phase.", lambda t: _phases(t, "credited"), "phase"),
    # approvals
    _gauge("clisup_approvals_open", "Tool calls that wait for an approval, by backend.", "backend"),
    _by_backend("clisup_approvals_requested_total", "Tool calls that CLIs asked about.", lambda t: _one(t.approvals_requested)),
    _by_backend("clisup_approvals_resolved_total", "Approvals that are over, by decision and its maker.",
                lambda t: sorted(t.approvals_resolved.items()), "decision", "by"),
    # accounts
    _gauge("clisup_accounts", "Known accounts of the backends, by kind of CLI and state of their rate limit.", "kind", "state"),
    _gauge("clisup_account_waiting_sessions", "Sessions whose next turn waits for their account's rate limit.", "kind"),
    _gauge("clisup_account_utilization_ratio", "Highest used share of a rate limit, over the accounts of a kind whose CLI reports it.", "kind"),
    # the journal and its disk
    Metric("clisup_journal_events_total", "counter", f"Events journaled, by source: backend or daemon. {SINCE}", ("backend", "source"),
           lambda t: [(("backend",), t.events - t.own_events), (("daemon",), t.own_events)]),
    _by_backend("clisup_journal_bytes_total", "Bytes appended to journals, without the heads of segments.", lambda t: _one(t.journal_bytes)),
    Metric("clisup_journal_sync_duration_seconds", "histogram", f"Duration of journal syncs. {SINCE}"),
    _gauge("clisup_storage_state", "1 for the current state of the state directory (ok, full, read_only, failing), 0 for the others.", "state"),
    _gauge("clisup_storage_free_bytes", "Free space on the state directory's file system, for the daemon's user."),
    _gauge("clisup_storage_writable", "1 if the state directory may be written, else 0."),
    _counter("clisup_storage_refusals_total", "Writes that the disk refused; repeated tries count again."),
    # clients
    _gauge("clisup_clients", "Open connections."),
    _gauge("clisup_subscriptions", "Subscriptions, of one session or of all."),
    _gauge("clisup_subscriptions_behind", "Subscriptions whose client has not received the newest event yet."),
    _counter("clisup_connections_total", "Connections accepted."),
    _counter("clisup_refused_connections_total", "Connections refused: another user, too many connections, or a process below a CLI."),
    _counter("clisup_refused_frames_total", "Frames that were no request, or exceeded their connection's share for too long."),
    _counter("clisup_requests_total", "Requests answered, by method; unknown methods are other.", "method"),
    _counter("clisup_request_errors_total", "Requests answered with an error, by method and the error's kind.", "method", "kind"),
    # drift and traces
    _gauge("clisup_drift_sightings", "Recorded unknown frames and fields, by kind of CLI; kept over restarts.", "kind", "what"),
    _gauge("clisup_spans_queued", "Spans that wait to be exported; 0 if tracing is off."),
    _counter("clisup_spans_total", "Spans made, by result: exported, failed (the collector did not take them) or dropped (the queue was full).", "result"),
)
# fmt: on
"""All metrics, in the order of the text."""
