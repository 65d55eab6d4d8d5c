"""Kinds of failed turns of claude, from the dozen ways in which the CLI reports a failure.

The words come from claude 2.1.329: its `error` codes, its `api_error` codes, the Messages API's statuses and error
types, its result subtypes and terminal reasons, and its lines on stderr. A failed API call ends in a result that says
`subtype: "success"`, and 2.1.197 says `terminal_reason: "completed"` too, so neither alone is ever taken as an outcome.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from clisup.backends.errors import LIMIT_WORDS, MESSAGE_CHARS, RETRYABLE, ErrorRule, kind_of_status
from clisup.model.events import TurnError, TurnErrorKind

__all__ = [
    "ERRORS",
    "INTERRUPTED",
    "ClaudeFailure",
    "explain_compaction",
    "explain_hook",
    "explain_report",
    "explain_retry",
]

INTERRUPTED = frozenset({"aborted_streaming", "aborted_tools"})
_ABORTED = "Request was aborted"
_STATUS_IN_TEXT = re.compile(r"\bAPI Error: (\d{3})\b")
_DIAGNOSTIC = "[ede_diagnostic]"

# fmt: off
_BY_SUBTYPE: dict[str, TurnErrorKind] = {
    "error_max_turns": "max_turns",
    "error_max_budget_usd": "budget",
    # The model missed the schema five times: CLI and account are fine.
    "error_max_structured_output_retries": "invalid_request",
}

_BY_TERMINAL_REASON: dict[str, TurnErrorKind] = {
    "aborted_streaming": "cancelled", "aborted_tools": "cancelled",
    "max_turns": "max_turns", "budget_exhausted": "budget",
    "prompt_too_long": "context_overflow", "blocking_limit": "context_overflow",
    "rapid_refill_breaker": "context_overflow",
    "structured_output_retry_exhausted": "invalid_request",
    "malformed_tool_use_exhausted": "server",
}

_BY_API_ERROR: dict[str, TurnErrorKind] = {
    "usage_limit_reached": "quota_exceeded", "model_requires_usage_credits": "quota_exceeded",
    "long_context_credits_required": "quota_exceeded",
    "connection_failed": "network", "network_edge_blocked": "network", "tls_untrusted_ca": "network",
    "tls_cert_signature_failure": "network", "computer_slept": "network", "gateway_content_type": "network",
    "stream_idle_timeout": "server", "no_response": "server", "empty_completion": "server",
    "malformed_tool_use_exhausted": "server",
    "stored_login_refused": "authentication", "oauth_refresh_store_refused": "authentication",
    "provider_credentials": "authentication", "gateway_signin_required": "authentication",
    "gateway_session_expired": "authentication", "api_key_auth_disabled": "authentication",
    "invalid_credential_header": "authentication",
    "org_disabled_credential": "permission", "dlp_request_denied": "permission", "hook_denied": "permission",
    "field_not_granted": "permission",
    "no_allowed_fallback": "model_not_found", "model_substitution_disabled": "model_not_found",
    "message_over_context_limit": "context_overflow", "autocompact_thrashing": "context_overflow",
    "max_output_tokens": "output_limit",
    "safety_monitor_blocked": "refusal",
    "effort_requires_thinking": "invalid_request", "advisor_incompatible": "invalid_request",
    "tool_history_mismatch": "invalid_request", "pdf_too_large": "invalid_request",
    "pdf_password_protected": "invalid_request", "media_removed": "invalid_request",
    "claude_code_version_too_old": "invalid_request",
}

_BY_API_TYPE: dict[str, TurnErrorKind] = {
    "authentication_error": "authentication", "permission_error": "permission", "not_found_error": "model_not_found",
    "rate_limit_error": "rate_limit", "overloaded_error": "overloaded", "api_error": "server",
    "timeout_error": "server", "billing_error": "quota_exceeded", "request_too_large": "context_overflow",
}

_LOGIN = "; log in again with `claude auth login` as the daemon's user, or give a valid key"
_CLOUD_LOGIN = "; renew the cloud provider's credentials (AWS, Google or Azure) of the daemon's user"

# Outcomes of a prompt that a hook of the settings stopped: the result says success.
_BY_HOOK: dict[str, TurnErrorKind] = {"blocked_by_hook": "permission", "stopped_by_hook": "permission"}

# Codes that are more exact than the API's type: an empty balance has the type `invalid_request_error`.
_BY_EXACT_CODE: dict[str, TurnErrorKind] = {
    "billing_error": "quota_exceeded", "account_on_hold": "permission", "verification_required": "permission",
    "oauth_org_not_allowed": "permission", "cloud_credential_error": "authentication",
}

_BY_CODE: dict[str, TurnErrorKind] = {
    "authentication_failed": "authentication", "rate_limit": "rate_limit", "overloaded": "overloaded",
    "model_not_found": "model_not_found", "invalid_request": "invalid_request", "server_error": "server",
    "max_output_tokens": "output_limit",
}

_BY_STATUS: dict[int, TurnErrorKind] = {
    401: "authentication", 402: "quota_exceeded", 403: "permission", 404: "model_not_found", 408: "server",
    413: "context_overflow", 429: "rate_limit", 529: "overloaded",
}

# Texts that are more exact than the codes (2.1.330): a full context window has the codes of a too long output, a revoked
# login those of a missing permission, and some lost connections that of a server error.
_BY_EXACT_TEXT: tuple[tuple[re.Pattern[str], TurnErrorKind], ...] = (
    (re.compile(r"No conversation found"), "session_not_found"),
    (re.compile(r"requires a valid session ID"), "session_not_found"),
    (re.compile(r"reached its context window limit"), "context_overflow"),
    (re.compile(r"Unable to connect to API"), "network"),
    (re.compile(r"OAuth (?:access )?token (?:has been )?revoked"), "authentication"),
    (re.compile(r"Could not load (?:\w+ )?credentials|[Cc]ould not load the default credentials"), "authentication"),
    (re.compile(r"\b(?:ENOSPC|EDQUOT)\b"), "storage_failed"),
    # Another process was writing the file (claude-code #29051).
    (re.compile(r"Configuration error in .{0,4096}\.claude\.json|configuration file at .{1,4096} is corrupted"), "invalid_request"),
)

_BY_TEXT: tuple[tuple[re.Pattern[str], TurnErrorKind], ...] = (
    (re.compile(r"Not logged in|Please run /login|Invalid API key|Authentication required"), "authentication"),
    (re.compile(r"Credit balance is too low|hit your .*limit"), "quota_exceeded"),
    (re.compile(LIMIT_WORDS), "quota_exceeded"),  # of gateways and of claude before 2.1.309
    (re.compile(r"[Pp]rompt is too long|exceeds? the context"), "context_overflow"),
)
# fmt: on


class ClaudeFailure(Struct, frozen=True):
    """Words of the CLI about a failure, from the result and the last synthetic assistant frame."""

    text: str = ""
    code: str | None = None
    api_error: str | None = None
    api_type: str | None = None
    status: int | None = None
    subtype: str | None = None
    terminal_reason: str | None = None
    stop_reason: str | None = None
    resets_at: str | None = None


def explain_report(report: ClaudeFailure) -> TurnError:
    """Return the error of a result with `is_error`."""
    kind = _kind_of(report)
    resets_at = report.resets_at if kind in ("rate_limit", "quota_exceeded") else None
    message = _message(report)
    return TurnError(
        kind=kind,
        message=message,
        retryable=kind in RETRYABLE or resets_at is not None,
        resets_at=resets_at,
        http_status=report.status,
    )


def explain_hook(*, outcome: str | None, reason: str | None) -> TurnError | None:
    """Return the error of a prompt that never reached the model, or None for any other `outcome`."""
    kind = _BY_HOOK.get(outcome or "")
    if kind is None:
        return None
    why = (reason or "it gives no reason")[:MESSAGE_CHARS]
    return TurnError(kind=kind, message=f"a UserPromptSubmit hook of claude's settings refused the prompt: {why}")


def explain_compaction(text: str | None) -> TurnError:
    """Return the error of a compaction that failed. claude 2.1.332 reports a success of the turn all the same.

    Only the text names the cause: "API Error: 403 ...", or "Request was aborted" after an interrupt.
    """
    text = text or "the compaction failed without a message"
    if _ABORTED in text:
        return TurnError(kind="cancelled", message=text[:MESSAGE_CHARS])
    status = _STATUS_IN_TEXT.search(text)
    return explain_report(ClaudeFailure(text=text, status=int(status[1]) if status else None))


def _message(report: ClaudeFailure) -> str:
    """Return the CLI's message. An interrupted turn has only a debugging line, which does not count."""
    if report.terminal_reason in INTERRUPTED and report.text.startswith(_DIAGNOSTIC):
        return "the turn was interrupted"
    cause = report.terminal_reason or report.subtype or "unknown cause"
    return report.text.strip()[:MESSAGE_CHARS] or f"claude failed without a message ({cause})"


def explain_retry(*, code: str | None, status: int | None, words: str | None = None) -> TurnError:
    """Return the error behind one `api_retry`. The first one already shows a 401, long before the CLI gives up (177 s).

    `words` are the API's own, which the API backends tell and claude does not.
    """
    report = ClaudeFailure(
        code=code, status=None if code == "authentication_failed" else status
    )  # the only 403 that the CLI repeats
    kind = _http_kind(report) or ("network" if status is None else "server")
    message = f"the request to the model failed: {words or code or 'unknown'}"[:MESSAGE_CHARS]
    message += f" (HTTP {status})" if status else ""
    if kind == "authentication":
        message += _CLOUD_LOGIN if code == "cloud_credential_error" else _LOGIN
    return TurnError(kind=kind, message=message, retryable=kind in RETRYABLE, http_status=status)


def _kind_of(report: ClaudeFailure) -> TurnErrorKind:
    """Return the kind by the most exact word: the subtype, a missing session, the CLI's codes, the API's codes, the text."""
    found = (
        _BY_SUBTYPE.get(report.subtype or "")
        or _text_kind(report.text, _BY_EXACT_TEXT)
        or ("refusal" if report.stop_reason == "refusal" else None)  # its code says invalid_request
        or _BY_TERMINAL_REASON.get(report.terminal_reason or "")
        or _http_kind(report)
        or _text_kind(report.text)
    )
    return found or ("server" if report.terminal_reason in ("api_error", "model_error") else "crashed")


def _http_kind(report: ClaudeFailure) -> TurnErrorKind | None:
    """Return the kind by the API's error. The text goes before the code, because an overflow has the code invalid_request."""
    code = report.code or ""
    return (
        _BY_API_ERROR.get(report.api_error or "")
        or _BY_EXACT_CODE.get(code)
        or _BY_API_TYPE.get(report.api_type or "")
        or (_text_kind(report.text) if code == "invalid_request" else None)
        or _BY_STATUS.get(report.status or 0)
        or _BY_CODE.get(code)
        or kind_of_status(report.status)
    )


def _text_kind(text: str, table: tuple[tuple[re.Pattern[str], TurnErrorKind], ...] = _BY_TEXT) -> TurnErrorKind | None:
    return next((kind for pattern, kind in table if pattern.search(text)), None)


# Lines on stderr with which 2.1.329 refuses to start: exit code 1, stdout empty.
_EXITS: tuple[ErrorRule, ...] = (
    ErrorRule(
        "stderr",
        r"cannot be used with root/sudo privileges",
        "permission",
        "claude does not run as root with permission mode bypassPermissions: run the daemon as another user, take "
        "another permission mode, or set IS_SANDBOX=1 in the backend's env table where this machine is a sandbox",
    ),
    ErrorRule("stderr", r"not supported in restricted mode", "permission", "take another permission mode"),
    ErrorRule(
        "stderr", r"Session ID \S+ is already in use", "invalid_request", "resume the session instead of creating it"
    ),
    ErrorRule("stderr", r"No conversation found", "session_not_found", "start the session anew"),
    ErrorRule("stderr", r"requires a valid session ID", "session_not_found", "claude's session ids are UUIDs"),
    ErrorRule(
        "stderr", r"Invalid session ID|Must be a valid UUID", "invalid_request", "claude's session ids are UUIDs"
    ),
    ErrorRule(
        "stderr",
        r"error: unknown option|error: option '.*' (?:argument|requires)",
        "invalid_request",
        "look at the backend's args, and at the installed version with `clisup doctor`",
    ),
    ErrorRule(
        "stderr",
        r"Input must be provided|Input contained only whitespace",
        "invalid_request",
        "give a prompt; if there was one, the machine was too slow to hand it over within claude's 3 s",
    ),
    ErrorRule("stderr", r"Invalid MCP configuration", "invalid_request", "mend the session's mcp_config"),
    # 2.1.332 names the flags that do not go together, and a missing tool of --permission-prompt-tool.
    ErrorRule(
        "stderr",
        r"(?m)^Error: (?:When using --print, )?--\S+ .*(?:requires|needs) |MCP tool .* not found",
        "invalid_request",
        "look at the backend's args, and at the session's mcp_config",
    ),
    ErrorRule("stderr", r"--json-schema (?:is not|must be)", "invalid_request", "mend the prompt's output_schema"),
    ErrorRule("stderr", r"Error processing --setting-sources", "invalid_request", "mend the backend's setting_sources"),
    ErrorRule(
        "stderr", r"Not logged in|Please run /login", "authentication", "run `claude auth login` as the daemon's user"
    ),
)


def _rules() -> Iterator[ErrorRule]:
    """Return all tables above as rules, for the table in the docs. The code below reads the tables directly."""
    words: tuple[dict[str, TurnErrorKind], ...] = (
        _BY_SUBTYPE, _BY_TERMINAL_REASON, _BY_HOOK, _BY_API_ERROR, _BY_EXACT_CODE, _BY_API_TYPE, _BY_CODE,
    )  # fmt: skip
    yield ErrorRule("code", "refusal", "refusal")
    for table in words:
        yield from (ErrorRule("code", word, kind) for word, kind in table.items())
    yield from (ErrorRule("status", str(status), kind) for status, kind in _BY_STATUS.items())
    yield from (ErrorRule("text", pattern.pattern, kind) for pattern, kind in (*_BY_EXACT_TEXT, *_BY_TEXT))
    yield from _EXITS


ERRORS = tuple(dict.fromkeys(_rules()))
