"""Errors in the form of OpenAI's APIs. Pure."""

from __future__ import annotations

from clisup.client.raw import JsonObject
from clisup.doors.gateway.failures import HttpFailure

__all__ = ["error_body", "openai_code"]

_CODES = {
    "context_overflow": "context_length_exceeded",
    "invalid_token": "invalid_api_key",
    "model_not_found": "model_not_found",
    "backend_not_found": "model_not_found",
    "previous_not_found": "previous_response_not_found",
    "quota_exceeded": "insufficient_quota",
    "rate_limit": "rate_limit_exceeded",
    "rate_limited": "rate_limit_exceeded",
}


def openai_code(failure: HttpFailure) -> str:
    """Return the code: OpenAI's own where one is known, else the kind."""
    return _CODES.get(failure.kind, failure.kind)


def error_body(failure: HttpFailure) -> JsonObject:
    """Return the body of an error."""
    kind = "rate_limit_error" if failure.status == 429 else "server_error"
    if failure.status < 500 and failure.status != 429:
        kind = "invalid_request_error"
    error = {"message": failure.message, "type": kind, "param": failure.param, "code": openai_code(failure)}
    return {"error": error}
