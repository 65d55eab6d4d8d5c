"""`daemon/metrics`: the text in Prometheus' format or in OpenMetrics. Loaded with the first request.

One collector reads the counters of `metrics.py` and, for the gauges, the state of the daemon.

The daemon has no HTTP server: clients ask through its socket, docs/reference/observe.md says how Prometheus gets the text.
"""

from __future__ import annotations

import os
import platform
import resource
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast, get_args

from prometheus_client import CollectorRegistry, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from clisup import __version__
from clisup.daemon.metrics import METRICS, Histogram, Metric, unit_of
from clisup.host import clock
from clisup.host.process.own_process import open_descriptors, resident_bytes
from clisup.model.lifecycle import SessionState
from clisup.model.structs import JsonObject
from clisup.policy.rate_limit import epoch
from clisup.policy.storage_health import StorageState
from clisup.wire.params import MetricsFormat

if TYPE_CHECKING:
    from clisup.daemon.app import Daemon
    from clisup.daemon.ops.drift import Drift
    from clisup.daemon.sessions.session import Session

CONTENT_TYPES: dict[MetricsFormat, str] = {
    "prometheus": exposition.CONTENT_TYPE_PLAIN_0_0_4,
    "openmetrics": openmetrics.CONTENT_TYPE_LATEST,
}
DAEMON_STATES = ("starting", "ready", "draining")
Rows = Iterable[tuple[tuple[str, ...], float | Histogram]]
"""Pairs of label values, in the order of the metric's labels, and the value for them."""


def exposition_of(daemon: Daemon, form: MetricsFormat) -> str:
    """Return the text with the values of this moment."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_DaemonCollector(daemon))
    generate = openmetrics.generate_latest if form == "openmetrics" else exposition.generate_latest
    return generate(registry).decode()


class _DaemonCollector(Collector):
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def collect(self) -> Iterator[Family]:
        """Yield all metrics in the order of the table."""
        metrics = self._daemon.manager.services.metrics
        for name in _named(self._daemon):
            metrics.backend(name)
        state = _values(self._daemon)
        for metric in METRICS:
            series = metrics.values.get(metric.name)
            yield _family(metric, state[metric.name] if series is None else sorted(series.items()))


def _family(metric: Metric, rows: Rows) -> Family:
    if metric.type == "info":
        info = InfoMetricFamily(metric.name.removesuffix("_info"), metric.help)
        for labels, _ in rows:
            info.add_metric([], dict(zip(metric.labels, labels, strict=True)))
        return info
    kind: Any = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    family = kind[metric.type](metric.name, metric.help, labels=metric.labels, unit=unit_of(metric))
    for labels, value in rows:
        if isinstance(value, Histogram):
            bounds, counts = (*map(str, value.bounds), "+Inf"), map(float, accumulate(value.counts))
            family.add_metric(labels, list(zip(bounds, counts, strict=True)), value.total)
        else:
            family.add_metric(labels, value)
    return cast("Family", family)


def _values(daemon: Daemon) -> dict[str, Rows]:
    manager, services, clients = daemon.manager, daemon.manager.services, daemon.server.connections
    slots, storage = services.slots, services.storage.describe()
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
        "clisup_sessions": _sessions(daemon),
        "clisup_damaged_sessions": _one(len(manager.damaged)),
        "clisup_turns_running": _one(slots.used),
        "clisup_turns_running_limit": _one(slots.total),
        "clisup_turns_waiting": _one(slots.waiting),
        "clisup_turns_queued": _per_backend(daemon, lambda session: len(session.ledger.queue)),
        "clisup_turns_adopted": _one(manager.adopted),
        "clisup_live_processes": _one(len(manager.live)),
        "clisup_live_processes_limit": _one(manager.live.limit),
        "clisup_approvals_open": _per_backend(daemon, lambda session: len(session.approvals.open)),
        **_accounts(services.accounts.describe()),
        "clisup_storage_state": _states(storage["state"], get_args(StorageState)),
        "clisup_storage_free_bytes": [] if storage["free_bytes"] is None else _one(storage["free_bytes"]),
        "clisup_storage_writable": _one(storage["writable"]),
        "clisup_storage_refusals_total": _one(storage["failures"]),
        "clisup_clients": _one(len(clients)),
        "clisup_subscriptions": _one(sum(len(client.subscriptions) for client in clients)),
        "clisup_subscriptions_behind": _one(sum(s.behind for c in clients for s in c.subscriptions.values())),
        "clisup_drift_sightings": _drift(services.drift),
        "clisup_spans_queued": _one(daemon.spans_queued),
    }


def _one(value: float) -> Rows:
    return [((), value)]


def _sorted(counts: Mapping[Any, float]) -> Rows:
    return sorted(counts.items())


def _states(current: str, states: tuple[str, ...]) -> Rows:
    return [((state,), float(state == current)) for state in states]


def _named(daemon: Daemon) -> set[str]:
    """Return the backends of the configuration file, and those that have had a session."""
    return set(daemon.backends.names()) - daemon.config.untouched | daemon.manager.services.metrics.backends


def _sessions(daemon: Daemon) -> Rows:
    counts = Counter((session.spec.backend, str(session.visible_state)) for session in daemon.manager)
    names = sorted(_named(daemon))
    return [((name, str(state)), counts[name, str(state)]) for name in names for state in SessionState]


def _per_backend(daemon: Daemon, count: Callable[[Session], int]) -> Rows:
    counts = Counter({(name,): 0 for name in _named(daemon)})
    for session in daemon.manager:
        counts[(session.spec.backend,)] += count(session)
    return _sorted(counts)


def _accounts(rows: list[JsonObject]) -> dict[str, Rows]:
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
