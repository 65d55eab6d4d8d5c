"""The ASGI application: paths of all dialects, the list of models and the metrics, behind the guard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from clisup.client.aio import AsyncClient
from clisup.client.raw import JsonObject
from clisup.doors.gateway.answers import Dialect
from clisup.doors.gateway.anthropic_messages.answer import MESSAGES
from clisup.doors.gateway.endpoint import AnswerDesk, AnswerEndpoint
from clisup.doors.gateway.failures import GatewayError, HttpFailure, failure_of, refused
from clisup.doors.gateway.guard import GatewayGuard, error_response
from clisup.doors.gateway.metrics import GatewayMetrics
from clisup.doors.gateway.models import ModelBook
from clisup.doors.gateway.openai_chat.answer import CHAT
from clisup.doors.gateway.openai_responses.answer import RESPONSES
from clisup.doors.gateway.sessions import GatewaySessions
from clisup.doors.gateway.settings import GatewaySettings
from clisup.doors.gateway.turns import TurnDesk
from clisup.doors.log import DoorLog
from clisup.errors import ClisupError
from clisup.http.addresses import Addresses

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["make_gateway"]

_EPOCH = "1970-01-01T00:00:00Z"


def make_gateway(
    settings: GatewaySettings, token: str, place: Addresses, client: Callable[[], Awaitable[AsyncClient]],
    sessions: GatewaySessions, log: DoorLog, metrics: GatewayMetrics,
) -> ASGIApp:  # fmt: skip
    """Return the application. `sessions` must run beside it."""
    book = ModelBook(settings)
    desk = AnswerDesk(settings, TurnDesk(settings, book, sessions, client), sessions, metrics)

    async def models(request: Request) -> Response:
        try:
            return _model_list(request, await book.names(await client()))
        except ClisupError as error:
            raise GatewayError(failure_of(error)) from error

    async def count(request: Request) -> Response:
        raise refused("no backend counts the tokens of a request before it is answered", kind="unsupported", status=404)

    async def told(request: Request) -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    app = Starlette(
        routes=[
            Route("/v1/models", models, methods=["GET"]),
            Route("/v1/models/{model:path}", models, methods=["GET"]),
            Route("/v1/chat/completions", AnswerEndpoint(desk, CHAT), methods=["POST"]),
            Route("/v1/responses", AnswerEndpoint(desk, RESPONSES), methods=["POST"]),
            Route("/v1/messages", AnswerEndpoint(desk, MESSAGES), methods=["POST"]),
            Route("/v1/messages/count_tokens", count, methods=["POST"]),
            Route("/metrics", told, methods=["GET"]),
        ],
        exception_handlers={HTTPException: _no_endpoint, GatewayError: _refused, Exception: _failed},
    )
    return GatewayGuard(app, place, token, log, metrics, dialect_of)


def dialect_of(path: str, headers: Mapping[str, str]) -> Dialect:
    """Return the dialect of a request outside of the endpoints, too."""
    if path.startswith("/v1/messages") or "anthropic-version" in headers:
        return MESSAGES
    return RESPONSES if path.startswith("/v1/responses") else CHAT


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, GatewayError)
    request.scope["record"].kind = error.failure.kind
    return error_response(error.failure, _dialect(request))


async def _failed(request: Request, error: Exception) -> Response:
    """Answer for a fault. Starlette raises it again afterwards, and the guard logs it."""
    message = "internal error of the gateway; its log says more"
    return error_response(HttpFailure(500, "internal", message, retryable=False), _dialect(request))


def _dialect(request: Request) -> Dialect:
    return dialect_of(request.url.path, request.scope["headers_read"])


async def _no_endpoint(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = "no such method here" if error.status_code == 405 else "no such path here"
    failure = HttpFailure(error.status_code, "not_found", f"{words}: {request.method} {request.url.path[:100]}")
    return JSONResponse(_dialect(request).error(failure), error.status_code, headers=dict(error.headers or {}))


def _model_list(request: Request, names: list[str]) -> Response:
    """Return the list, or the one model of the path, in the form of the client's API."""
    anthropic = "anthropic-version" in request.scope["headers_read"]
    found = [_anthropic_model(name) if anthropic else _openai_model(name) for name in names]
    if (wanted := request.path_params.get("model")) is not None:
        if wanted not in names:
            raise refused(f"the model {wanted[:128]!r} is not served", "model", kind="model_not_found")
        return JSONResponse(found[names.index(wanted)])
    if anthropic:
        ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
        return JSONResponse({"data": found, "has_more": False, **ends})
    return JSONResponse({"object": "list", "data": found})


def _openai_model(name: str) -> JsonObject:
    return {"id": name, "object": "model", "created": 0, "owned_by": "clisup"}


def _anthropic_model(name: str) -> JsonObject:
    return {"type": "model", "id": name, "display_name": name, "created_at": _EPOCH, "lifecycle": "active"}
