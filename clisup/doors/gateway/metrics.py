"""Metrics of the gateway, as text for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["MAX_MODELS", "GatewayMetrics"]

MAX_MODELS = 100
"""Models with counts of their own. Further ones count as `other`."""

_PATHS = (
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/models",
    "/metrics",
)
_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class GatewayMetrics:
    """Counts since the start of this process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=True)
        self._models: set[str] = set()
        self._requests = Counter(
            "clisup_gateway_requests", "Requests, by path, model and HTTP status; 0: the client left before",
            ["path", "model", "status"], registry=self._registry,
        )  # fmt: skip
        self._errors = Counter(
            "clisup_gateway_errors", "Failed requests, by kind and model", ["kind", "model"], registry=self._registry
        )
        self._seconds = Histogram(
            "clisup_gateway_request_seconds", "Time from a request to the end of its answer", ["path", "model"],
            buckets=_SECONDS, registry=self._registry,
        )  # fmt: skip
        self.connection_faults = Counter(
            "clisup_gateway_connection_faults",
            "Faults of connections and requests",
            registry=self._registry,
        )
        self.running = Gauge("clisup_gateway_running", "Requests for answers at work", registry=self._registry)

    def note(self, path: str, model: str, status: int, kind: str, seconds: float) -> None:
        """Count a request."""
        path = path if path in _PATHS else "other"
        if model and model not in self._models:
            if len(self._models) >= MAX_MODELS:
                model = "other"
            self._models.add(model)
        self._requests.labels(path, model, str(status)).inc()
        self._seconds.labels(path, model).observe(seconds)
        if kind:
            self._errors.labels(kind, model).inc()

    def text(self) -> bytes:
        """Return the metrics."""
        return generate_latest(self._registry)
