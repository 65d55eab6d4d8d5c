"""Check of every request before an endpoint sees it: host, origin and token; and its lines in the log and the metrics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse, Response

from clisup.doors.gateway.answers import Dialect
from clisup.doors.gateway.failures import HttpFailure
from clisup.doors.gateway.metrics import GatewayMetrics
from clisup.doors.log import DoorLog
from clisup.host.log_file import traceback_of
from clisup.http.addresses import Addresses, headers_of, same_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["GatewayGuard", "RequestRecord", "error_response"]

_HEADERS = (("cache-control", "no-store"), ("x-content-type-options", "nosniff"))


@dataclass(slots=True)
class RequestRecord:
    """Facts of a request for the log and the metrics. It holds no text of a prompt or an answer."""

    id: str
    model: str = ""
    session: str = ""
    kind: str = ""
    status: int = 0
    sent: int = 0


def error_response(failure: HttpFailure, dialect: Dialect) -> Response:
    """Return an error in the form of a dialect."""
    return JSONResponse(dialect.error(failure), failure.status, headers=failure.headers)


class GatewayGuard:
    """ASGI middleware around the endpoints. `dialect_of` chooses the form of an error by path and headers."""

    def __init__(
        self, app: ASGIApp, place: Addresses, token: str, log: DoorLog, metrics: GatewayMetrics,
        dialect_of: Callable[[str, Mapping[str, str]], Dialect],
    ) -> None:  # fmt: skip
        self._app, self._place, self._token = app, place, token
        self._log, self._metrics, self._dialect_of = log, metrics, dialect_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, record, begun = headers_of(scope), RequestRecord(uuid4().hex), time.monotonic()
        scope["headers_read"], scope["record"] = headers, record

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                own = MutableHeaders(scope=message)
                for name, value in (*_HEADERS, ("x-request-id", record.id), ("request-id", record.id)):
                    own[name] = value
            else:
                record.sent += len(message.get("body", b""))
            await send(message)

        try:
            if failure := self._refusal(headers):
                record.kind = failure.kind
                dialect = self._dialect_of(scope["path"], headers)
                await error_response(failure, dialect)(scope, receive, send_noted)
            else:
                await self._app(scope, receive, send_noted)
        except Exception as error:
            record.kind = "internal"
            self._log.write(f"{record.id} fault: {traceback_of(error)}")
        finally:
            self._note(scope, record, time.monotonic() - begun)

    def _refusal(self, headers: Mapping[str, str]) -> HttpFailure | None:
        """Return why a request is refused. Programs send no Origin; a browser's page of another site does."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if not self._place.has_host(headers):
            return HttpFailure(403, "unknown_host", "the Host header names another server", retryable=False)
        if (origin is not None and origin not in self._place.origins) or site not in (None, "same-origin", "none"):
            return HttpFailure(403, "foreign_origin", "pages of other sites have no access", retryable=False)
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = headers.get("x-api-key") or (bearer if scheme.lower() == "bearer" else "")
        if not same_token(given.strip(), self._token):
            message = "the token is missing or wrong: clisup gateway --print-token prints it"
            return HttpFailure(401, "invalid_token", message, retryable=False)
        return None

    def _note(self, scope: Scope, record: RequestRecord, seconds: float) -> None:
        self._metrics.note(scope["path"], record.model, record.status, record.kind, seconds)
        words = [record.id, scope["method"], scope["path"][:100], str(record.status or "left"), f"{seconds * 1000:.0f}ms",
                 f"{record.sent}B", record.model or "-", record.session or "-", record.kind]  # fmt: skip
        self._log.write(" ".join(word for word in words if word))
