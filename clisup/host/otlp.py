"""Sending spans to a collector by OTLP over HTTP: the one file that knows the OpenTelemetry SDK (the extra `clisup[otel]`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from clisup.config.model import TracingConfig
from clisup.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan

    from clisup.ops.spans import Span

__all__ = ["OtlpSender", "SpanSender", "check_installed", "readable", "resource_of"]

SCOPE = "clisup"
TRACES_PATH = "/v1/traces"


class SpanSender(Protocol):
    """Who takes spans away. `send` blocks for as long as it takes, so it is called in a thread."""

    def send(self, spans: Sequence[Span]) -> bool:
        """Have they been taken?"""

    def close(self) -> None:
        """No more will come; a `send` that waits gives up."""


def check_installed(config: TracingConfig) -> None:
    """Raises `ConfigurationError` where tracing is switched on and its libraries are not there."""
    if not config.enabled:
        return
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(
            f"cannot trace, because the OpenTelemetry libraries are not installed ({error})",
            hint='pip install "clisup[otel]", or set tracing.enabled = false',
        ) from None


def endpoint_of(config: TracingConfig) -> str:
    """Where the spans go: as with OTEL_EXPORTER_OTLP_ENDPOINT, the path of traces is added to a collector's address."""
    address = config.endpoint.rstrip("/")
    return address if address.endswith(TRACES_PATH) else address + TRACES_PATH


class OtlpSender:
    """Sends to the collector of the configuration."""

    def __init__(self, config: TracingConfig, resource: Mapping[str, str]) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        for name in ("opentelemetry", "urllib3"):  # a collector that is away is told once, by the daemon
            logger = logging.getLogger(name)
            logger.addHandler(logging.NullHandler())
            logger.propagate = False
        headers = {name: value.get_secret_value() for name, value in config.headers.items()}
        self._exporter = OTLPSpanExporter(endpoint=endpoint_of(config), headers=headers, timeout=config.timeout_s)
        self._resource = resource_of(resource)

    def send(self, spans: Sequence[Span]) -> bool:
        """Send them; tries again by itself, for at most `tracing.timeout_s`."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        try:
            result = self._exporter.export([readable(span, self._resource) for span in spans])
        except Exception:  # the library's own, whose failures must cost nothing but these spans
            logging.getLogger(SCOPE).debug("export failed", exc_info=True)
            return False
        return result is SpanExportResult.SUCCESS

    def close(self) -> None:
        """Give up what is under way."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # the library's own omission


def resource_of(attributes: Mapping[str, str]) -> Resource:
    """Who speaks: `service.name` and the like."""
    from opentelemetry.sdk.resources import Resource

    return Resource(dict(attributes))


def readable(span: Span, resource: Resource) -> ReadableSpan:
    """The span as the SDK's exporters take it: made whole, as nothing of it is ever changed."""
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

    def context(id_: int) -> SpanContext:
        return SpanContext(span.trace_id, id_, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    return ReadableSpan(
        name=span.name,
        context=context(span.span_id),
        parent=None if span.parent_id is None else context(span.parent_id),
        resource=resource,
        attributes=span.attributes,
        kind=SpanKind.CLIENT if span.kind == "client" else SpanKind.INTERNAL,
        status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=InstrumentationScope(SCOPE),
    )
