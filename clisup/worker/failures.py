"""Why a request to an API failed: its status, headers and body, in the words of claude's frames. Pure.

Sources: the error types of the Anthropic API and the codes of the OpenAI API as their SDKs document them (anthropic 2.12.0, openai
3.54.0), and the documentation of Groq and OpenRouter for 402, 413, 498 and 502.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from clisup.worker.events import StreamError

__all__ = ["MAX_WAIT_S", "Failure", "of_connection", "of_response", "of_stream", "retry_after"]

MAX_WAIT_S = 60.0
"""Seconds that a request waits for an API that asks for patience. A longer wait ends the turn; the account's hold has the rest."""

_MESSAGE_MAX = 4096


class Failure(Exception):
    """A request that failed.

    `code` is claude's `error`, `api_error` its `api_error`, of which the decoder of claude's frames makes the kind. `status` is
    None where no answer came. `again` says that the same request may succeed later, `retry_after_s` when.
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
        """Tell whether the account has used up what it may use in a time."""
        return self.code == "rate_limit"

    def fields(self) -> dict[str, Any]:
        """Return what claude's frames say beside the text."""
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
_NO_MODEL = _Word("model_not_found")
_FORBIDDEN = _Word(None)

# A word of the API's own says more than the status beside it: a spent balance comes with 429.
_BY_WORD: dict[str, _Word] = {
    "authentication_error": _LOGIN, "invalid_api_key": _LOGIN, "invalid_authentication": _LOGIN,
    "permission_error": _FORBIDDEN, "billing_error": _QUOTA, "insufficient_quota": _QUOTA,
    "billing_hard_limit_reached": _QUOTA, "rate_limit_error": _LIMIT, "rate_limit_exceeded": _LIMIT,
    "overloaded_error": _BUSY, "engine_overloaded": _BUSY, "server_is_overloaded": _BUSY, "slow_down": _BUSY,
    "api_error": _SERVER, "server_error": _SERVER, "internal_server_error": _SERVER, "timeout_error": _SERVER,
    "model_not_found": _NO_MODEL, "model_not_active": _NO_MODEL, "model_decommissioned": _NO_MODEL,
    "context_length_exceeded": _TOO_LONG, "string_above_max_length": _TOO_LONG,
    "content_policy_violation": _REFUSED, "content_filter": _REFUSED, "cyber_policy": _REFUSED,
    "invalid_prompt": _REFUSED, "tool_use_failed": _Word("server_error", "malformed_tool_use_exhausted"),
    "cut_stream": _NETWORK, "malformed_chunk": _SERVER,
}  # fmt: skip
_BY_STATUS: dict[int, _Word] = {
    400: _INVALID, 401: _LOGIN, 402: _QUOTA, 403: _FORBIDDEN, 404: _NO_MODEL, 408: _SERVER, 409: _SERVER, 413: _TOO_LONG,
    422: _INVALID, 429: _LIMIT, 498: _BUSY, 503: _BUSY, 529: _BUSY,
}  # fmt: skip
_TOO_LONG_TEXT = re.compile(
    r"prompt is too long|maximum context length|exceeds? the (?:model's )?(?:maximum )?context|context window|"
    r"too many tokens|reduce the length",
    re.IGNORECASE,
)
_SPENT_TEXT = re.compile(r"credit balance is too low|insufficient (?:credits|balance|quota)", re.IGNORECASE)
_TLS_TEXT = re.compile(r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|SSL|TLS", re.IGNORECASE)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SPAN_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RESETS = ("x-ratelimit-reset-requests", "x-ratelimit-reset-tokens", "x-ratelimit-reset",
           "anthropic-ratelimit-requests-reset", "anthropic-ratelimit-tokens-reset")  # fmt: skip


def of_response(status: int, body: Any, headers: Mapping[str, str], now: float, url: str) -> Failure:
    """Return why the API at `url` answered with an error; `now` is in seconds since the epoch."""
    told = _told(body)
    if status == 404 and not isinstance(body, Mapping):
        message = f"{url} is no API of this kind (status 404): look at the backend's base_url"
        return Failure(message, code="server_error", api_error="gateway_content_type", status=status)
    message = str(told.get("message") or f"the API answered with status {status}")
    word = _word(told, message, status)
    after = retry_after(headers, now) if word.again else None
    return Failure(
        message, code=word.code, api_error=word.api_error, status=status, again=word.again, retry_after_s=after
    )


def of_stream(error: StreamError) -> Failure:
    """Return why an API ended its answer in the stream."""
    word = _word({"type": error.word}, error.message, error.status or 0)
    if word is _INVALID and error.status is None:
        word = _SERVER
    status = 403 if word is _FORBIDDEN else error.status
    return Failure(error.message, code=word.code, api_error=word.api_error, status=status, again=word.again)


def of_connection(why: str, url: str) -> Failure:
    """Return why no answer came, or not all of it."""
    if _TLS_TEXT.search(why):
        message = f"cannot reach {url} by TLS: {why}; name the authority's certificate in SSL_CERT_FILE"
        return Failure(message, code="server_error", api_error="tls_untrusted_ca")
    return Failure(
        f"Unable to connect to API {url}: {why}", code="server_error", api_error="connection_failed", again=True
    )


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds until the API wants to be asked again; None where it does not say.

    `retry-after-ms`, `retry-after` (seconds or a date) and then the latest of the resets of a limit that is used up.
    """
    if (ms := _number(headers.get("retry-after-ms"))) is not None:
        return max(0.0, ms / 1000)
    if (said := headers.get("retry-after")) is not None:
        seconds = _number(said)
        at = None if seconds is not None else _date(said)
        if seconds is not None or at is not None:
            return max(0.0, seconds if seconds is not None else (at or now) - now)
    ends = [end for name in _RESETS if _used_up(headers, name) and (end := _span(headers.get(name), now)) is not None]
    return max(ends, default=None)


def _told(body: Any) -> Mapping[str, Any]:
    """The error in a body: under `error`, or the body itself; a text where it is none of that."""
    if isinstance(body, Mapping):
        inner = body.get("error")
        return inner if isinstance(inner, Mapping) else {"message": inner} if isinstance(inner, str) else body
    text = str(body or "").strip()
    return {"message": text[:500]} if text else {}


def _word(told: Mapping[str, Any], message: str, status: int) -> _Word:
    if _TOO_LONG_TEXT.search(message) and status in (0, 400, 413, 422):
        return _TOO_LONG
    if _SPENT_TEXT.search(message):
        return _QUOTA
    for name in ("code", "type"):
        if isinstance(word := told.get(name), str) and word in _BY_WORD:
            return _BY_WORD[word]
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return _SERVER if status >= 500 else _INVALID


def _used_up(headers: Mapping[str, str], reset: str) -> bool:
    """Of two limits, the one with something left is not what the API waits for."""
    left = _number(headers.get(reset.replace("-reset", "-remaining")))
    return left is None or left <= 0


def _span(text: str | None, now: float) -> float | None:
    """Seconds in `6m0s`, `20ms`, a plain number, or until a time; numbers above 10^9 are times since the epoch."""
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
        return float(text) if text is not None else None
    except ValueError:
        return None
