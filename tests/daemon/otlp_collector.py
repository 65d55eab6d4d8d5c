"""A collector on the loopback: what comes to it by OTLP over HTTP, decoded; it can refuse, and it can stay silent."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

from loopback_server import LoopbackServer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector(LoopbackServer):
    """`spans` are those it has taken, as (name, ids in hex, times, attributes and so on)."""

    def __init__(self, answer: int = 200) -> None:
        self.spans: list[dict[str, Any]] = []
        self.resources: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.refused = 0
        self.location: str | None = None
        self._lock = threading.Lock()
        super().__init__(answer)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def take(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        if self.silent.is_set():
            self._closing.wait(60)
            return
        with self._lock:
            assert request.path == "/v1/traces"
            self.refused += self.answer != 200
            if self.answer == 200:
                self.headers.append({name.lower(): value for name, value in request.headers.items()})
                self._decode(body)
        request.send_response(self.answer)
        request.send_header("Content-Length", "0")
        if self.location is not None:
            request.send_header("Location", self.location)
        request.end_headers()

    def _decode(self, body: bytes) -> None:
        message = ExportTraceServiceRequest()
        message.ParseFromString(body)
        for resource in message.resource_spans:
            self.resources.append(_attributes(resource.resource.attributes))
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans.append({
                        "name": span.name,
                        "kind": span.kind,
                        "trace_id": span.trace_id.hex(),
                        "span_id": span.span_id.hex(),
                        "parent_id": span.parent_span_id.hex(),
                        "start_ns": span.start_time_unix_nano,
                        "end_ns": span.end_time_unix_nano,
                        "status": (span.status.code, span.status.message),
                        "attributes": _attributes(span.attributes),
                    })  # fmt: skip


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(item) for item in value.array_value.values] if kind == "array_value" else getattr(value, kind)
