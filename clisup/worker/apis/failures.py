"""Causes of failed requests, from status, headers and body, in the words of claude's frames. Pure.

Sources: the error types of the Anthropic API and the codes of the OpenAI API as their SDKs document them (anthropic 2.12.0,
openai 3.54.0), and the documentation of Groq and OpenRouter for 402, 413, 498 and 502.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from clisup.worker import JsonObject
from clisup.worker.apis.events import StreamError

MAX_WAIT_S = 60.0
"""Longest delay, in seconds, that the API may ask for before a retry. After a longer one the turn fails."""

_MESSAGE_MAX = 4096
_KEY_MIN = 6  # a shorter key is a placeholder such as `none`, and may be part of any word


@dataclass(frozen=True)
class Endpoint:
    """Address of an API, and the key for it."""

    url: str
    key_env: str | None = None
    key: str | None = field(default=None, repr=False)

    def redact(self, text: str) -> str:
        """Return the text without the key."""
        return text.replace(self.key, "[redacted]") if self.key and len(self.key) >= _KEY_MIN else text


class RequestFailure(Exception):
    """Failure of a request.

    `code` is claude's `error` and `api_error` its `api_error`; the decoder of claude's frames derives the kind from them.
    `status` is None if no answer came. `again` says that the same request may succeed later, `retry_after_s` when.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        api_error: str | None = None,
        status: int | None = None,
        again: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message[:_MESSAGE_MAX]
        self.code, self.api_error, self.status = code, api_error, status
        self.again, self.retry_after_s = again, retry_after_s

    @property
    def is_limit(self) -> bool:
        """Return whether the account has reached a rate limit."""
        return self.code == "rate_limit"

    @property
    def refuses_request(self) -> bool:
        """Return whether the API refused the fields of the request, for no more exact reason."""
        return self.status in (400, 422) and self.code == "invalid_request" and self.api_error is None

    def fields(self) -> JsonObject:
        """Return the fields of claude's frames beside the text."""
        named = {"error": self.code, "api_error": self.api_error}
        return {name: word for name, word in named.items() if word} | {"api_error_status": self.status}


class _Word(NamedTuple):
    code: str | None = None
    api_error: str | None = None
    again: bool = False


_QUOTA = _Word("billing_error")
_TOO_LONG = _Word("invalid_request", "message_over_context_limit")
_REFUSED = _Word("invalid_request", "safety_monitor_blocked")
_BUSY = _Word("overloaded", again=True)
_SERVER = _Word("server_error", again=True)
_INVALID = _Word("invalid_request")
_LIMIT = _Word("rate_limit", again=True)
_LOGIN = _Word("authentication_failed")
_NETWORK = _Word("server_error", "connection_failed", again=True)
_TLS = _Word("server_error", "tls_untrusted_ca")
_NO_API = _Word("server_error", "gateway_content_type")
_NO_MODEL = _Word("model_not_found")
_FORBIDDEN = _Word(None)

# The API's own word is more exact than the status: 429 also reports a spent balance.
_BY_WORD: dict[str, _Word] = {
    "authentication_error": _LOGIN, "invalid_api_key": _LOGIN, "invalid_authentication": _LOGIN,
    "permission_error": _FORBIDDEN, "billing_error": _QUOTA, "insufficient_quota": _QUOTA,
    "billing_hard_limit_reached": _QUOTA, "rate_limit_error": _LIMIT, "rate_limit_exceeded": _LIMIT,
    "overloaded_error": _BUSY, "engine_overloaded": _BUSY, "server_is_overloaded": _BUSY, "slow_down": _BUSY,
    "api_error": _SERVER, "server_error": _SERVER, "internal_server_error": _SERVER, "timeout_error": _SERVER,
    "model_not_found": _NO_MODEL, "model_not_active": _NO_MODEL, "model_decommissioned": _NO_MODEL,
    "request_too_large": _TOO_LONG, "context_length_exceeded": _TOO_LONG, "string_above_max_length": _TOO_LONG,
    "exceed_context_size_error": _TOO_LONG, "content_policy_violation": _REFUSED, "content_filter": _REFUSED, "cyber_policy": _REFUSED,
    "invalid_prompt": _REFUSED, "tool_use_failed": _Word("server_error", "malformed_tool_use_exhausted"),
    "cut_stream": _NETWORK, "malformed_chunk": _SERVER,
}  # fmt: skip
_BY_STATUS: dict[int, _Word] = {
    400: _INVALID, 401: _LOGIN, 402: _QUOTA, 403: _FORBIDDEN, 408: _SERVER, 409: _SERVER, 422: _INVALID, 429: _LIMIT,
    498: _BUSY, 503: _BUSY, 529: _BUSY,
}  # fmt: skip
_TOO_LONG_TEXT = re.compile(
    r"prompt is too long|maximum context length|exceeds? the (?:model's )?(?:maximum )?context|context window|"
    r"too many tokens|reduce the length|available context size|context size has been exceeded|context the overflows|"
    r"loaded with context length|input token count .{0,40}exceeds|maximum number of tokens allowed|exceed_context_size",
    re.IGNORECASE,
)
_SPENT_TEXT = re.compile(r"credit balance is too low|insufficient (?:credits|balance|quota)", re.IGNORECASE)
_TLS_TEXT = re.compile(r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|\bSSL|\bTLS", re.IGNORECASE)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SPAN_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WAIT_TEXT = re.compile(
    r"(?:try again|retry|wait)[^.;\n]{0,30}?\b(?:in|after|for)\s+((?:\d+(?:\.\d+)?\s?(?:ms|s|m|h|d)[a-z]{0,8}\s?)+)",
    re.IGNORECASE,
)
_HOST = re.compile(r"[\w.:-]{1,253}", re.ASCII)
_RESETS = ("x-ratelimit-reset-requests", "x-ratelimit-reset-tokens", "x-ratelimit-reset",
           "anthropic-ratelimit-requests-reset", "anthropic-ratelimit-tokens-reset")  # fmt: skip


def of_response(status: int, body: Any, headers: Mapping[str, str], now: float, endpoint: Endpoint) -> RequestFailure:
    """Return the failure that an error response reports. `now` is in seconds since the epoch."""
    if 300 <= status < 400:
        return _failure(endpoint, _redirected(status, headers.get("location", ""), endpoint), _NO_API, status)
    error = _error_object(body)
    message = _text_of(error.get("message") or error.get("detail")) or f"the API answered with status {status}"
    word = _word(error, message, status)
    if word is _NO_API and _is_api_error(body):
        word = _INVALID  # the API's own words about something else than its address
    if word is _NO_API:
        message = f"{endpoint.url} is no API of this kind (status 404: {message}); check the backend's base_url"
    elif word is _LOGIN and endpoint.key_env:
        message = f"{message} (check the key in {endpoint.key_env})"
    elif word is _LOGIN:
        message = f"{message} (name the variable with the key in the backend's key_env)"
    after = retry_after(headers, now) if word.again else None
    after = wait_in(error, message, now) if after is None and word.again else after
    return _failure(endpoint, message, word, status, after)


def of_stream(error: StreamError, endpoint: Endpoint, now: float) -> RequestFailure:
    """Return the failure that an error inside an answer's stream reports. `now` is in seconds since the epoch."""
    word = _word({"code": error.code, "type": error.kind}, error.message, error.status or 0)
    if word is _INVALID and error.status is None:
        word = _SERVER
    after = wait_in(error.fields, error.message, now) if word.again else None
    return _failure(endpoint, error.message, word, 403 if word is _FORBIDDEN else error.status, after)


def of_connection(why: str, endpoint: Endpoint) -> RequestFailure:
    """Return the failure of a connection that could not be made, or that broke."""
    if _TLS_TEXT.search(why):
        message = f"cannot reach {endpoint.url} by TLS: {why}; name the authority's certificate in SSL_CERT_FILE"
        return _failure(endpoint, message, _TLS, None)
    return _failure(endpoint, f"Unable to connect to API {endpoint.url}: {why}", _NETWORK, None)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds after which the API accepts the next request, or None.

    `retry-after-ms` comes first, then `retry-after` (seconds or a date), then the latest reset of an exhausted limit.
    """
    if (ms := _number(headers.get("retry-after-ms"))) is not None:
        return max(0.0, ms / 1000)
    if (text := headers.get("retry-after")) is not None:
        seconds = _number(text)
        at = None if seconds is not None else _date(text)
        if seconds is not None or at is not None:
            return max(0.0, seconds if seconds is not None else (at or now) - now)
    ends = [end for name in _RESETS if _exhausted(headers, name) and (end := _span(headers.get(name), now)) is not None]
    return max(ends, default=None)


def wait_in(error: Mapping[str, Any], message: str, now: float) -> float | None:
    """Return the seconds to wait that an error's body tells, or None: Gemini's details, OpenRouter's headers, words of OpenAI."""
    for name, factor in (("retry_after_ms", 0.001), ("retry_after", 1.0), ("retryAfter", 1.0)):
        if (seconds := _number(str(error.get(name)))) is not None:
            return max(0.0, seconds * factor)
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, Mapping) and (delay := _span(str(detail.get("retryDelay") or ""), now)) is not None:
            return delay
    metadata = error.get("metadata")
    headers = metadata.get("headers") if isinstance(metadata, Mapping) else None
    if isinstance(headers, Mapping):
        return retry_after({str(name).lower(): str(value) for name, value in headers.items()}, now)
    found = _WAIT_TEXT.search(message)
    return _span(found[1], now) if found else None


def _text_of(told: Any) -> str:
    """Return a message as text. FastAPI tells a list of places and their faults (Mistral, vLLM)."""
    if isinstance(told, list):
        return "; ".join(filter(None, map(_text_of, told)))
    if isinstance(told, Mapping):
        place, fault = told.get("loc"), told.get("msg") or told.get("message") or told.get("detail")
        named = ".".join(map(str, place)) if isinstance(place, list) else ""
        return ": ".join(part for part in (named, _text_of(fault)) if part)
    return str(told) if told else ""


def _is_api_error(body: Any) -> bool:
    """Tell whether a body is an error of an API, and not of a web server on the way."""
    body = body[0] if isinstance(body, list) and body else body
    error = body.get("error") if isinstance(body, Mapping) else None
    return isinstance(error, Mapping) and bool(error.get("message")) and bool(error.get("type") or error.get("code"))


def _failure(
    endpoint: Endpoint, message: str, word: _Word, status: int | None, after: float | None = None
) -> RequestFailure:
    return RequestFailure(
        endpoint.redact(message),
        code=word.code,
        api_error=word.api_error,
        status=status,
        again=word.again,
        retry_after_s=after,
    )


def _redirected(status: int, location: str, endpoint: Endpoint) -> str:
    """Return the message about a redirect. Of the new address it names the host alone: a path or query may be a secret."""
    try:
        host = urlsplit(urljoin(endpoint.url, location)).hostname or ""
    except ValueError:
        host = ""
    place = f"to {host} " if _HOST.fullmatch(host) else ""
    return (
        f"{endpoint.url} answered with a redirect {place}(status {status}), and clisup follows none: the prompt would go to "
        "an address that the configuration does not name. Set the backend's base_url to the final address"
    )


def _error_object(body: Any) -> Mapping[str, Any]:
    """Return the error object of a body: the value of `error`, the body itself, or its text. HTML says nothing."""
    body = body[0] if isinstance(body, list) and body else body  # Gemini's compatible API
    if isinstance(body, Mapping):
        inner = body.get("error")
        return inner if isinstance(inner, Mapping) else {"message": inner} if isinstance(inner, str) else body
    text = str(body or "").strip()
    return {"message": text[:500]} if text and not text.startswith("<") else {}


def _word(error: Mapping[str, Any], message: str, status: int) -> _Word:
    if status == 413 or (_TOO_LONG_TEXT.search(message) and status in (0, 400, 422)):
        return _TOO_LONG
    if status == 404:
        return _NO_MODEL if "model" in message.lower() else _NO_API
    if _SPENT_TEXT.search(message):
        return _QUOTA
    for field_name in ("code", "type"):
        if isinstance(name := error.get(field_name), str) and (word := _BY_WORD.get(name)) is not None:
            # The status says that the request is at fault: Ollama calls it an `api_error`.
            return _INVALID if word is _SERVER and status in (400, 422) else word
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return _SERVER if status >= 500 else _INVALID


def _exhausted(headers: Mapping[str, str], reset: str) -> bool:
    """Return whether nothing is left of the limit with this reset header."""
    left = _number(headers.get(reset.replace("-reset", "-remaining")))
    return left is None or left <= 0


def _span(text: str | None, now: float) -> float | None:
    """Return the seconds of `6m0s`, `20ms` or a number, or until a time. Numbers above 10^9 are times since the epoch."""
    if text is None:
        return None
    number = _number(text)
    if number is not None:
        number = number / 1000 if number > 1e12 else number
        return max(0.0, number - now if number > 1e9 else number)
    if parts := _SPAN.findall(text):
        return sum(float(count) * _SPAN_S[unit] for count, unit in parts)
    at = _date(text)
    return None if at is None else max(0.0, at - now)


def _date(text: str) -> float | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        try:
            at = parsedate_to_datetime(text)
        except (ValueError, TypeError):
            return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) else None
