"""`daemon/metrics`: the daemon's figures in Prometheus' text format, or in OpenMetrics. Loaded when somebody first asks.

Nothing is kept here: each answer is made from the figures, the sessions and the services as they are at that moment, by a
collector over a registry of its own. There is no HTTP server: the socket is the way in, docs/metrics.md the way on.
"""

from __future__ import annotations

import os
import platform
import resource
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from prometheus_client import CollectorRegistry, exposition
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from clisup import __version__
from clisup.daemon.app import Daemon
from clisup.daemon.ops.drift import Drift
from clisup.daemon.sessions.session import Session
from clisup.host import clock
from clisup.host.process.own_process import open_descriptors, resident_bytes
from clisup.model.lifecycle import SessionState
from clisup.ops.figures import Histogram
from clisup.ops.metrics import METRICS, Metric, Rows, unit_of
from clisup.policy.rate_limit import epoch
from clisup.policy.storage_health import StorageState
from clisup.wire.daemon_models import MetricsFormat

__all__ = ["CONTENT_TYPES", "exposition_of"]

CONTENT_TYPES: dict[MetricsFormat, str] = {
    "prometheus": exposition.CONTENT_TYPE_PLAIN_0_0_4,
    "openmetrics": openmetrics.CONTENT_TYPE_LATEST,
}
DAEMON_STATES = ("starting", "ready", "draining")


def exposition_of(daemon: Daemon, form: MetricsFormat) -> str:
    """The text, as it is now."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(daemon))
    generate = openmetrics.generate_latest if form == "openmetrics" else exposition.generate_latest
    return generate(registry).decode()


class _Figures(Collector):
    """One answer's view of the daemon."""

    def __init__(self, daemon: Daemon) -> None:
        figures = daemon.manager.services.figures
        self._own = figures_of(daemon)
        self._tallies = [(name, figures.of(name)) for name in sorted(_named(daemon))]  # a counter begins at 0, visibly

    def describe(self) -> list[Family]:
        return []

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            yield _family(metric, self._rows(metric))

    def _rows(self, metric: Metric) -> Rows:
        if metric.of is None:
            return self._own[metric.name]
        rows = [(name, metric.of(tally)) for name, tally in self._tallies]
        return [((name, *labels), value) for name, found in rows for labels, value in found]


def _family(metric: Metric, rows: Rows) -> Family:
    if metric.type == "info":
        info = InfoMetricFamily(metric.name.removesuffix("_info"), metric.help)
        for labels, _ in rows:
            info.add_metric([], dict(zip(metric.labels, labels, strict=True)))
        return info
    kind: Any = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    family: Family = kind[metric.type](metric.name, metric.help, labels=metric.labels, unit=unit_of(metric))
    for labels, value in rows:
        if isinstance(value, Histogram):
            family.add_metric(labels, *_buckets(value))  # type: ignore[attr-defined]  # of each of the three
        else:
            family.add_metric(labels, value)  # type: ignore[attr-defined]
    return family


def _buckets(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """Counts up to each bound, and the sum of all that was seen."""
    upto, buckets = 0, []
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        upto += count
        buckets.append((bound, float(upto)))
    return buckets, histogram.total


# -- what the daemon knows at the moment ----------------------------------------------------------------------------------


def figures_of(daemon: Daemon) -> dict[str, Rows]:
    """The metrics that are no backend's sums, as they are now."""
    manager, services, clients = daemon.manager, daemon.manager.services, daemon.server.connections
    figures, slots, storage = services.figures, services.slots, services.storage.describe()
    times = os.times()
    return {
        "clisup_build_info": [((__version__, platform.python_version()), 1.0)],
        "clisup_start_time_seconds": _one(epoch(daemon.started_at) or 0.0),
        "clisup_started_in_place": _one(bool(daemon.reexec.inherited)),
        "clisup_exposition_timestamp_seconds": _one(clock.wall()),
        "clisup_daemon_state": _states(daemon.state, DAEMON_STATES),
        "clisup_process_resident_memory_bytes": _one(resident_bytes()),
        "clisup_process_open_fds": _one(open_descriptors()),
        "clisup_process_max_fds": _one(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        "clisup_process_cpu_seconds_total": _one(times.user + times.system),
        "clisup_event_loop_lag_seconds": [((), figures.lag)],
        "clisup_sessions": _sessions(daemon),
        "clisup_damaged_sessions": _one(len(manager.damaged)),
        "clisup_turns_running": _one(slots.used),
        "clisup_turns_running_limit": _one(slots.total),
        "clisup_turns_waiting": _one(slots.waiting),
        "clisup_turns_queued": _per_backend(daemon, lambda session: len(session.ledger.queue)),
        "clisup_turns_adopted": _one(manager.adopted),
        "clisup_live_processes": _one(len(daemon.manager.live)),
        "clisup_live_processes_limit": _one(daemon.manager.live.limit),
        "clisup_approvals_open": _per_backend(daemon, lambda session: len(session.approvals.open)),
        **_accounts(services.accounts.describe()),
        "clisup_journal_sync_duration_seconds": [((), figures.synced)],
        "clisup_storage_state": _states(storage["state"], get_args(StorageState)),
        "clisup_storage_free_bytes": [] if storage["free_bytes"] is None else _one(storage["free_bytes"]),
        "clisup_storage_writable": _one(storage["writable"]),
        "clisup_storage_refusals_total": _one(storage["failures"]),
        "clisup_clients": _one(len(clients)),
        "clisup_subscriptions": _one(sum(len(client.subscriptions) for client in clients)),
        "clisup_subscriptions_behind": _one(sum(s.behind for c in clients for s in c.subscriptions.values())),
        "clisup_connections_total": _one(figures.connections),
        "clisup_refused_connections_total": _one(figures.refused_connections),
        "clisup_refused_frames_total": _one(figures.refused_frames),
        "clisup_requests_total": _sorted({(method,): count for method, count in figures.requests.items()}),
        "clisup_request_errors_total": _sorted(figures.request_errors),
        "clisup_drift_sightings": _drift(services.drift),
        "clisup_spans_queued": _one(figures.spans_queued),
        "clisup_spans_total": _sorted({(result,): count for result, count in figures.spans.items()}),
    }


def _one(value: float) -> Rows:
    return [((), value)]


def _sorted(counts: Mapping[Any, float]) -> Rows:
    return sorted(counts.items())


def _states(current: str, states: tuple[str, ...]) -> Rows:
    return [((state,), float(state == current)) for state in states]


def _named(daemon: Daemon) -> set[str]:
    """The backends to tell of: those of the configuration file, and those that have had a session."""
    return set(daemon.backends.names()) - daemon.config.defaults | set(daemon.manager.services.figures.backends)


def _sessions(daemon: Daemon) -> Rows:
    counts = Counter((session.spec.backend, str(session.visible_state)) for session in daemon.manager)
    names = sorted(_named(daemon))
    return [((name, str(state)), counts[name, str(state)]) for name in names for state in SessionState]


def _per_backend(daemon: Daemon, count: Callable[[Session], int]) -> Rows:
    counts = Counter({(name,): 0 for name in _named(daemon)})
    for session in daemon.manager:
        counts[(session.spec.backend,)] += count(session)
    return _sorted(counts)


def _accounts(rows: list[dict[str, Any]]) -> dict[str, Rows]:
    waiting: Counter[tuple[str, ...]] = Counter()
    highest: dict[tuple[str, ...], float] = {}
    for row in rows:
        kind = (row["kind"],)
        waiting[kind] += len(row["waiting"])
        if row["utilization"] is not None:
            highest[kind] = max(row["utilization"], highest.get(kind, 0.0))
    return {
        "clisup_accounts": _sorted(Counter((row["kind"], row["state"]) for row in rows)),
        "clisup_account_waiting_sessions": _sorted(waiting),
        "clisup_account_utilization_ratio": _sorted(highest),
    }


def _drift(drift: Drift) -> Rows:
    seen: Counter[tuple[str, ...]] = Counter()
    for entry in drift:
        seen[entry.kind, "frame"] += sum(entry.frames.values())
        seen[entry.kind, "field"] += sum(entry.fields.values())
    return _sorted(seen)
