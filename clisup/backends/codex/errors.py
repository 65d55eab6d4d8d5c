"""Kinds of failed turns of codex, from its words (0.169.0).

`codex app-server` gives a code (`codexErrorInfo`), sometimes with an HTTP status. `codex exec --json` gives a sentence only. The
rules look at the code first, then the status, then the sentence.
"""

from __future__ import annotations

import re

from msgspec import Struct

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
from clisup.backends.frames import Frame, get_int, get_str
from clisup.model.events import BackendRetry, TurnError, TurnErrorKind

__all__ = ["ERRORS", "CodexFailure", "explain_refusal", "explain_report", "read_report", "retry_of"]

_LOGIN = "run `codex login` as the daemon's user, or set the key in the backend's env table"
_ELSEWHERE = "another codex has this conversation open: end it, then send the prompt again"

# fmt: off
ERRORS: tuple[ErrorRule, ...] = (
    ErrorRule("code", "contextWindowExceeded", "context_overflow"),
    ErrorRule("code", "sessionBudgetExceeded", "budget"),
    ErrorRule("code", "usageLimitExceeded", "quota_exceeded"),
    ErrorRule("code", "rateLimitExceeded", "rate_limit"),
    ErrorRule("code", "flexUnavailable", "overloaded"),
    ErrorRule("code", "serverOverloaded", "overloaded"),
    ErrorRule("code", "policyCapacityUnavailable", "overloaded"),
    ErrorRule("code", "modelNotFound", "model_not_found"),
    ErrorRule("code", "inferenceHookDenied", "permission"),
    ErrorRule("code", "tooManyDenials", "permission"),
    ErrorRule("code", "sandboxError", "permission"),
    ErrorRule("code", "cyberPolicy", "refusal"),
    ErrorRule("code", "misalignmentPolicyViolation", "refusal"),
    ErrorRule("code", "internalServerError", "server"),
    ErrorRule("code", "unauthorized", "authentication"),
    ErrorRule("code", "badRequest", "invalid_request"),
    ErrorRule("code", "threadRollbackFailed", "protocol"),
    ErrorRule("code", "activeTurnNotSteerable", "protocol"),
    ErrorRule("status", "401", "authentication"),
    *STATUS_RULES,
    ErrorRule("status", "404", "model_not_found"),
    ErrorRule("text", r"required MCP servers failed to initialize", "spawn_failed"),
    ErrorRule("text", r"no rollout found", "session_not_found"),
    LIMIT_RULE,
    ErrorRule("text", r"To use Codex with your ChatGPT plan", "quota_exceeded"),
    ErrorRule("text", r"rate limit", "rate_limit"),
    ErrorRule("text", r"at capacity", "overloaded"),
    ErrorRule("text", r"high demand", "server"),
    ErrorRule("text", r"context window", "context_overflow"),
    ErrorRule("text", r"reason: max_output_tokens", "output_limit"),
    ErrorRule("text", r"reason: content_filter", "refusal"),
    ErrorRule("text", r"model_not_found|[Mm]odel .*(?:does not exist|not found)", "model_not_found"),
    ErrorRule("text", r"Missing environment variable|[Nn]ot logged in|log ?in again|refresh token", "authentication",
              _LOGIN),
    ErrorRule("text", r"already has an active writer", "session_busy", _ELSEWHERE),
    ErrorRule("text", r'^\s*\{\s*"(?:error|detail)"|"invalid_request_error"|^Invalid (?:prompt|request)\b', "invalid_request"),
    ErrorRule("text", r"[Cc]onnection failed|stream disconnected|error sending request|timed? ?out|waiting for network",
              "network"),
    ErrorRule("stderr", r"required MCP servers failed to initialize", "spawn_failed",
              "`clisup` is the server that brings the session's tools: see the daemon's log"),
    ErrorRule("stderr", r"no rollout found", "session_not_found", "start the session anew"),
    ErrorRule("stderr", r"already has an active writer", "session_busy", _ELSEWHERE),
    ErrorRule("stderr", r"[Ee]rror loading config|error: unexpected argument|error: invalid value|unknown variant|invalid type:|TOML parse",
              "invalid_request", "look at config.toml in CODEX_HOME and at the backend's args"),
    ErrorRule("stderr", r"CODEX_HOME points to", "invalid_request", "make that directory, or take CODEX_HOME away"),
    ErrorRule("stderr", r"No prompt provided", "invalid_request", "give a prompt"),
    ErrorRule("stderr", r"Not logged in|Missing environment variable", "authentication", _LOGIN),
)
# fmt: on

_RULES = Taxonomy(ERRORS)
_STATUS = re.compile(r"(?:unexpected status|last status:) (\d{3})\b")
_ATTEMPT = re.compile(r"Reconnecting\.\.\. (\d{1,6})/(\d{1,6})")
_RECONNECTING = re.compile(r"^Reconnecting\.\.\.[^(]*(?:\((.*)\))?\s*$", re.DOTALL)
_TRY_AGAIN = re.compile(r"try again in (\d{1,9}(?:\.\d{1,9})?) ?(ms|s)\b", re.IGNORECASE)


class CodexFailure(Struct, frozen=True):
    """Words of codex about a failure. `code` is a plain code, or the name of a code with a status inside."""

    text: str = ""
    code: str | None = None
    status: int | None = None


def read_report(error: Frame) -> CodexFailure:
    """Return the `error` object of an `error` notification or of a failed turn.

    While codex repeats a request, `message` only reports the reconnection, and `additionalDetails` has the reason.
    """
    text = get_str(error, "additionalDetails") or get_str(error, "message") or ""
    info = error.get("codexErrorInfo")
    if isinstance(info, dict) and info:
        code = next(iter(info))
        inner = info[code]
        return CodexFailure(text, code, get_int(inner, "httpStatusCode") if isinstance(inner, dict) else None)
    return CodexFailure(text, info if isinstance(info, str) else None)


def explain_report(report: CodexFailure, resets_at: str | None = None) -> TurnError:
    """Return the error of a failed request. `resets_at` comes from the last rate limits, and applies to limits only."""
    status = report.status or _status_in(report.text)
    kind = _kind_of(report, status)
    until = resets_at if kind in ("quota_exceeded", "rate_limit") else None
    return TurnError(
        kind=kind,
        message=plain_words(report.text).strip()[:MESSAGE_CHARS]
        or f"codex failed without a message ({report.code or 'no code'})",
        retryable=kind in RETRYABLE or until is not None,
        retry_after_s=_retry_after(report.text),
        resets_at=until,
        http_status=status,
    )


def explain_refusal(message: str) -> TurnError:
    """Return the error of a refused request, with advice if there is any. A message without a rule is `protocol`."""
    found = explain_report(CodexFailure(message))
    rule = _RULES.search("text", message)
    advice = rule.advice if rule is not None and rule.kind == found.kind else ""
    kind: TurnErrorKind = "protocol" if found.kind == "crashed" else found.kind
    return TurnError(kind, "; ".join(part for part in (message, advice) if part), found.retryable)


def retry_of(message: str, report: CodexFailure | None = None) -> BackendRetry | None:
    """Return the retry of a `Reconnecting...` message, or None for another message.

    Without a network codex counts no attempts, and repeats until it is ended.
    """
    found = _RECONNECTING.match(message)
    if found is None:
        return None
    count = _ATTEMPT.match(message)
    return BackendRetry(
        attempt=int(count[1]) if count else None,
        max_attempts=int(count[2]) if count else None,
        error=explain_report(report or CodexFailure(found[1] or message)),
    )


def _kind_of(report: CodexFailure, status: int | None) -> TurnErrorKind:
    rule = _RULES.exact("code", report.code) or _RULES.exact("status", status)
    if rule is not None:
        return rule.kind
    if (kind := kind_of_status(status)) is not None:
        return kind
    rule = _RULES.search("text", report.text)
    if rule is not None:
        return rule.kind
    # codes with a status inside are about the connection; without a status there was no answer
    return "network" if report.code and report.code.startswith(("http", "response")) else "crashed"


def _status_in(text: str) -> int | None:
    found = _STATUS.search(text)
    return int(found[1]) if found else None


def _retry_after(text: str) -> float | None:
    found = _TRY_AGAIN.search(text)
    return float(found[1]) / (1000 if found[2].lower() == "ms" else 1) if found else None
