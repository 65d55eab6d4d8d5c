"""Kinds of failed turns of opencode: `error` frames, and the log on stderr for errors without words on stdout (1.18.34)."""

from __future__ import annotations

import json
import re

from clisup.backends.base import RunEnd
from clisup.backends.errors import (
    LIMIT_RULE,
    MESSAGE_CHARS,
    RETRYABLE,
    STATUS_RULES,
    ErrorRule,
    Taxonomy,
    explain_end,
    kind_of_status,
)
from clisup.backends.frames import Frame, get_dict, get_int, get_str
from clisup.model.events import TurnError, TurnErrorKind

__all__ = ["ERRORS", "error_of", "explain_exit", "last_attempt"]

ERRORS: tuple[ErrorRule, ...] = (
    ErrorRule("code", "ContentFilterError", "refusal"),
    ErrorRule("code", "ContextOverflowError", "context_overflow"),
    ErrorRule("code", "MessageAbortedError", "cancelled"),
    ErrorRule("code", "MessageOutputLengthError", "output_limit"),
    ErrorRule("code", "ProviderAuthError", "authentication"),
    # Words of the API that are more exact than the status.
    LIMIT_RULE,
    ErrorRule("text", r"(?i)maximum context length|context[_ ]length[_ ]exceeded|context window|too many tokens", "context_overflow"),
    ErrorRule("text", r"(?i)content[_ ]filter", "refusal"),
    ErrorRule("text", r"ProviderModelNotFoundError|(?i:model not found|model \S+ does not exist)", "model_not_found"),
    ErrorRule("status", "400", "invalid_request"),
    ErrorRule("status", "401", "authentication"),
    *STATUS_RULES,
    ErrorRule("status", "404", "model_not_found"),
    ErrorRule("status", "529", "overloaded"),
    # Without a status.
    ErrorRule("text", r"(?i)api key (?:is missing|not found)|incorrect api key|invalid api key|unauthorized", "authentication"),
    ErrorRule("text", r"(?i)rate limit|too many requests|free usage exceeded", "rate_limit"),
    ErrorRule("text", r"(?i)overloaded", "overloaded"),
    ErrorRule("text", r"(?i)unable to connect|cannot connect|typo in the url|fetch failed|connection reset|socket", "network"),
    ErrorRule("text", r"ECONN|ENOTFOUND|ETIMEDOUT", "network"),
    ErrorRule("text", r"(?i)server (?:had an )?error|internal server error|bad gateway", "server"),
    # Exits without an event.
    ErrorRule("stderr", r"Session not found", "session_not_found", "start the session anew"),
    ErrorRule("stderr", r"(?m)^opencode run \[message", "invalid_request",
              "opencode refuses an argument, and prints only its help: look at the backend's args, and at the installed version",
              help_only=True),
    ErrorRule("stderr", r"ConfigInvalidError|ConfigJsonError|Configuration is invalid|Config file at .{1,4096} is not valid JSON",
              "invalid_request", "mend opencode's settings"),
)  # fmt: skip
_TAXONOMY = Taxonomy(ERRORS)
_EXACT = frozenset({"quota_exceeded", "context_overflow", "refusal", "model_not_found"})
"""Kinds of the text rules that decide before a status."""
# A request that failed, a turn that failed, and an answer of opencode's own server that failed.
_LOGGED = re.compile(
    r'message=(?P<what>"stream error"|process|failed) .*?\berror(?:\.error)?=(?P<words>"(?:[^"\\]|\\.)*"|\S+)'
)


def error_of(error: Frame) -> TurnError:
    """Return the error of an `error` frame: by its name, by exact words, by the HTTP status, by any other words."""
    data = get_dict(error, "data")
    name, status = get_str(error, "name"), get_int(data, "statusCode")
    message = get_str(data, "message") or name or "opencode failed without a message"
    by_name = _TAXONOMY.exact("code", name)
    kind = by_name.kind if by_name else _kind(f"{message}\n{get_str(data, 'responseBody') or ''}", status)
    return TurnError(kind=kind, message=message[:MESSAGE_CHARS], retryable=kind in RETRYABLE, http_status=status)


def _kind(words: str, status: int | None) -> TurnErrorKind:
    by_text, by_status = _TAXONOMY.search("text", words), _TAXONOMY.exact("status", status)
    if by_text is not None and (status is None or by_text.kind in _EXACT):
        return by_text.kind
    return by_status.kind if by_status else kind_of_status(status) or "crashed"


def explain_exit(end: RunEnd) -> TurnError:
    """Explain a run without a terminal frame by the last error in the log, else by its exit and stderr."""
    words = _last_logged(end, "process", "failed")
    return _by_words(words) if words and end.signal is None else explain_end(_TAXONOMY, "opencode", end)


def last_attempt(end: RunEnd) -> TurnError | None:
    """Return the failure of the last request that the log tells, or None."""
    words = _last_logged(end, '"stream error"')
    return _by_words(words) if words else None


def _by_words(words: str) -> TurnError:
    kind = _kind(words, None)
    return TurnError(kind=kind, message=words[:MESSAGE_CHARS], retryable=kind in RETRYABLE)


def _last_logged(end: RunEnd, *kinds: str) -> str | None:
    found = [match["words"] for match in _LOGGED.finditer(end.stderr) if match["what"] in kinds]
    if not found:
        return None
    try:
        return str(json.loads(found[-1]))
    except ValueError:
        return found[-1]
