"""Kinds of failed turns of ACP agents, from JSON-RPC errors and from exits without an answer.

The codes are those of the protocol's schema (SDK 2.4.0). Errors of a provider are not standardised: agents put an HTTP status
into the code (gemini 0.61.0), into `data`, or into the message only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from clisup.backends.errors import (
    LIMIT_RULE,
    MESSAGE_CHARS,
    RETRYABLE,
    STATUS_RULES,
    ErrorRule,
    Taxonomy,
    kind_of_status,
    plain_words,
)
from clisup.backends.frames import Frame, first_str, get_dict, get_int, get_number, get_str
from clisup.model.events import TurnError, TurnErrorKind

__all__ = ["ERRORS", "explain_error"]

_STATUS_NAMES = ("status", "statusCode", "status_code", "httpStatus", "http_status", "code")
_WAIT_NAMES = ("retryAfter", "retry_after", "retryAfterSeconds", "retry_after_s")
_STATUS_IN_TEXT = re.compile(
    r"(?:^(?:Error: )?|\b(?:status(?: code)?|HTTP|API Error|Last error|code)\b[\"':= ]{0,4}|\bRequest rejected \()([45]\d\d)\b",
    re.IGNORECASE,
)
_STATUS_AT_END = re.compile(r"^Internal error: .{0,80}\b([45]\d\d)\.?$")  # opencode 1.18.34: the provider's words alone
_HOLLOW = ("Internal error", "Invalid params", "Invalid request")  # the SDKs' own words, where `data` says more
_STARTS_SESSION = ("session/load", "session/resume")
_LOGIN = "log the agent in as the daemon's user, or give its key in the backend's env"

ERRORS: tuple[ErrorRule, ...] = (
    ErrorRule("code", "-32000", "authentication", _LOGIN),
    ErrorRule("code", "-32002", "session_not_found", "open a new session"),
    ErrorRule("code", "-32800", "cancelled"),
    ErrorRule("code", "-32700", "protocol"),
    ErrorRule("code", "-32600", "protocol"),
    ErrorRule("code", "-32601", "protocol", "the agent lacks a method that it has to have"),
    ErrorRule("code", "-32602", "invalid_request"),
    ErrorRule("code", "-32603", "server"),
    ErrorRule("status", "400", "invalid_request"),
    ErrorRule("status", "401", "authentication", _LOGIN),
    *STATUS_RULES,
    ErrorRule("status", "404", "model_not_found"),
    ErrorRule("status", "529", "overloaded"),
    LIMIT_RULE,
    ErrorRule("text", r"(?i)usage limit", "quota_exceeded"),
    ErrorRule("text", r"(?i)context[ _]length|maximum context|context window|prompt is too long|too many tokens", "context_overflow"),
    ErrorRule("text", r"(?i)rate.?limit|too many requests", "rate_limit"),
    ErrorRule("text", r"(?i)overloaded", "overloaded"),
    ErrorRule("text", r"(?i)api key|unauthori[sz]ed|not logged in|authenticat", "authentication", _LOGIN),
    ErrorRule("text", r"ECONNREFUSED|ECONNRESET|ENOTFOUND|ETIMEDOUT|EAI_AGAIN|(?i:fetch failed|connection error)", "network"),
    ErrorRule("stderr", r"(?i)api key|not logged in|set an auth method|no auth type", "authentication", _LOGIN),
    ErrorRule("stderr", r"(?i)unknown (?:option|argument)|unexpected argument", "invalid_request", "mend the backend's command"),
)  # fmt: skip
_EXACT = frozenset(
    {-32000, -32800, -32601, -32700, -32600}
)  # these codes have one meaning; agents send the others for everything


def explain_error(rules: Sequence[ErrorRule], error: Frame, method: str) -> TurnError:
    """Return the error of a JSON-RPC error: by a code with one meaning, an HTTP status, the text, then the general code."""
    code, text = get_int(error, "code"), get_str(error, "message") or "no message"
    said = _details(error)
    whole = text if not said or said in text else said if text in _HOLLOW else f"{text}: {said}"
    words = plain_words(whole)
    data = get_dict(error, "data")
    status = _status(code, data, whole)
    kind, advice = _kind(Taxonomy(rules), code, status, whole)
    if method in _STARTS_SESSION and kind in ("invalid_request", "server", "protocol", "model_not_found"):
        kind, advice = "session_not_found", "open a new session"
    elif method == "authenticate" and kind in ("invalid_request", "server", "protocol"):
        kind, advice = "authentication", _LOGIN
    elif code == -32002 and method not in _STARTS_SESSION:
        kind = "invalid_request"
    waits = [wait for name in _WAIT_NAMES if (wait := get_number(data, name)) is not None]
    return TurnError(
        kind=kind,
        message=f"the agent refused {method}: {words[:MESSAGE_CHARS]}" + (f"; {advice}" if advice else ""),
        retryable=kind in RETRYABLE,
        retry_after_s=waits[0] if waits else None,
        http_status=status,
    )


def _kind(rules: Taxonomy, code: int | None, status: int | None, text: str) -> tuple[TurnErrorKind, str]:
    return next(_found(rules, code, status, text), ("server", ""))


def _found(rules: Taxonomy, code: int | None, status: int | None, text: str) -> Iterator[tuple[TurnErrorKind, str]]:
    general = rules.exact("code", code)
    if general and code in _EXACT:
        yield general.kind, general.advice
    spent = rules.search("text", text)
    if spent and spent.kind in ("quota_exceeded", "context_overflow"):  # they come as 429 and 400 too
        yield spent.kind, spent.advice
    if rule := rules.exact("status", status):
        yield rule.kind, rule.advice
    if (kind := kind_of_status(status)) is not None:
        yield kind, ""
    for rule in (spent, general):
        if rule:
            yield rule.kind, rule.advice


def _details(error: Frame) -> str:
    """Return the cause behind a general message: `data` as text, or the message in it."""
    data = error.get("data")
    if isinstance(data, str):
        return data
    data = data if isinstance(data, dict) else {}
    return first_str(data, "details", "message", "detail") or ""


def _status(code: int | None, data: Frame, text: str) -> int | None:
    told = [code, *(get_int(data, name) for name in _STATUS_NAMES)]
    for value in told:
        if value is not None and 400 <= value <= 599:
            return value
    found = _STATUS_IN_TEXT.search(text) or _STATUS_AT_END.search(text)
    return int(found[1]) if found else None
