"""Sender of spans to a collector, by OTLP over HTTP.

Only this file knows the OpenTelemetry SDK (extra `clisup[otel]`).
"""

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

SCOPE = "clisup"
TRACES_PATH = "/v1/traces"


class SpanSender(Protocol):
    """Receiver of spans. `send` blocks for as long as it takes: call it in a thread."""

    def send(self, spans: Sequence[Span]) -> bool:
        """Send the spans; return whether they were taken."""

    def close(self) -> None:
        """Close the sender: no more spans will come, and a waiting `send` gives up."""


def check_installed(config: TracingConfig) -> None:
    """Raise `ConfigurationError` if tracing is switched on and its libraries are missing."""
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
    """Return the URL for the spans.

    As with OTEL_EXPORTER_OTLP_ENDPOINT, the path of traces is added to a collector's address.
    """
    address = config.endpoint.rstrip("/")
    return address if address.endswith(TRACES_PATH) else address + TRACES_PATH


class OtlpSender:
    """Sender to the collector of the configuration."""

    def __init__(self, config: TracingConfig, resource: Mapping[str, str]) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from requests import Session

        for name in ("opentelemetry", "urllib3"):  # the daemon itself reports an absent collector, once
            logger = logging.getLogger(name)
            logger.addHandler(logging.NullHandler())
            logger.propagate = False
        headers = {name: value.get_secret_value() for name, value in config.headers.items()}
        # Some versions of the exporter follow redirects, and take the headers and the texts to another address.
        session = Session()
        session.max_redirects = 0
        self._exporter = OTLPSpanExporter(
            endpoint=endpoint_of(config), headers=headers, timeout=config.timeout_s, session=session
        )
        self._resource = resource_of(resource)

    def send(self, spans: Sequence[Span]) -> bool:
        """Send the spans, with retries for at most `tracing.timeout_s`."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        try:
            result = self._exporter.export([readable(span, self._resource) for span in spans])
        except Exception:  # an error of the library may cost nothing but these spans
            logging.getLogger(SCOPE).debug("export failed", exc_info=True)
            return False
        return result is SpanExportResult.SUCCESS

    def close(self) -> None:
        """Cancel a send in progress."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # the library lacks the annotation


def resource_of(attributes: Mapping[str, str]) -> Resource:
    """Return the resource that names the sender: `service.name` and the like."""
    from opentelemetry.sdk.resources import Resource

    return Resource(dict(attributes))


def readable(span: Span, resource: Resource) -> ReadableSpan:
    """Return the span in the form of the SDK's exporters, complete from the start: a span never changes."""
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
