"""End of a gemini turn: outcome, usage and error from the `result` frame, the exit code and stderr.

Measured with gemini 0.61.0. After a failed API request the exit code is the HTTP status & 255 (145 for 401), so the code alone
proves nothing. A failed turn may exit with 0. A `result` with success may have no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from clisup.backends.base import RunEnd
from clisup.backends.errors import (
    LIMIT_RULE,
    MESSAGE_CHARS,
    RETRYABLE,
    STATUS_RULES,
    ErrorRule,
    Taxonomy,
    crashed,
    how,
    kind_of_status,
    refused,
)
from clisup.backends.frames import Frame, get_dict, get_str, get_tokens
from clisup.model.events import TurnError
from clisup.model.usage import Usage
from clisup.model.verdict import Terminal

__all__ = ["ERRORS", "UNANSWERED", "explain_end", "explain_refusal", "is_denial", "last_attempt", "terminal_of"]

_CANCELLED = "FatalCancellationError"
# Tools that need a permission. Headless gemini removes them instead of a denial, and then reports "not found".
_GUARDED = frozenset({"run_shell_command", "write_file", "replace", "web_fetch", "save_memory"})

ERRORS: tuple[ErrorRule, ...] = (
    ErrorRule("code", "FatalTurnLimitedError", "max_turns"),
    ErrorRule("code", _CANCELLED, "cancelled"),
    ErrorRule("code", "FatalAuthenticationError", "authentication"),
    ErrorRule("code", "FatalInputError", "invalid_request"),
    ErrorRule("code", "FatalConfigError", "invalid_request"),
    ErrorRule("code", "no_space_left", "storage_failed"),
    LIMIT_RULE,
    ErrorRule("text", r"limit:\s*0\b", "quota_exceeded"),
    ErrorRule("text", r"(?i)INSUFFICIENT_G1_CREDITS|QUOTA_EXHAUSTED", "quota_exceeded"),
    ErrorRule("text", r"(?i)input token count.*exceeds|exceeds the maximum number of tokens", "context_overflow"),
    ErrorRule("text", r"(?i)API key not valid|API_KEY_INVALID|API key expired", "authentication"),
    ErrorRule("text", r"(?i)is not found for API version|model not found", "model_not_found"),
    ErrorRule("text", r"blocked due to (safety|recitation|other policy)", "refusal"),
    ErrorRule("text", r"PROHIBITED_CONTENT|BLOCKLIST", "refusal"),
    ErrorRule("text", r"truncated because it exceeded the token limit", "output_limit"),
    ErrorRule("text", r"Loop detected", "max_turns"),
    ErrorRule("text", r"Maximum session turns exceeded", "max_turns"),
    ErrorRule("text", r"Agent execution blocked", "permission"),
    ErrorRule("text", r"returned an empty response|reasoning thoughts but no final|Invalid stream", "server"),
    ErrorRule("text", r"without a finish reason|without an answer", "server"),
    ErrorRule("status", "400", "invalid_request"),
    ErrorRule("status", "401", "authentication", "log in, or give GEMINI_API_KEY to the backend"),
    *STATUS_RULES,
    ErrorRule("status", "404", "model_not_found", "name another model"),
    ErrorRule("status", "499", "cancelled"),
    ErrorRule("status", "500", "server"),
    ErrorRule("status", "504", "server"),
    ErrorRule("text", r"(?i)resource has been exhausted|quota|rate limit", "rate_limit"),
    ErrorRule("text", r"(?i)overloaded|UNAVAILABLE", "overloaded"),
    ErrorRule("text", r"(?i)fetch failed|terminated|ECONN|ENOTFOUND|EAI_AGAIN|socket hang up|ETIMEDOUT", "network"),
    ErrorRule("stderr", r"Invalid session identifier|No previous sessions found|Error resuming session", "session_not_found",
              "start the session anew: gemini keeps sessions by directory, so another cwd does not see them"),
    ErrorRule("stderr", r"Session ID \S+ already exists", "invalid_request", "resume the session instead of creating it"),
    ErrorRule("stderr", r"not running in a trusted directory", "permission",
              "name `user` or `project` in the backend's setting_sources, or trust the directory in gemini itself"),
    ErrorRule("stderr", r"Invalid auth method selected", "authentication",
              'with GOOGLE_GEMINI_BASE_URL set, say security.auth.selectedType = "gemini-api-key" in ~/.gemini/settings.json'),
    ErrorRule("stderr", r"Please set an Auth method|you must specify the GEMINI_API_KEY|Authentication consent", "authentication",
              "log in as the daemon's user, or give GEMINI_API_KEY to the backend"),
    ErrorRule("stderr", r"No input provided via stdin", "invalid_request", "give a prompt"),
    # The help, after the error about the arguments.
    ErrorRule("stderr", r"(?m)^Usage: gemini ", "invalid_request",
              "look at the backend's args, and at the installed version"),
    ErrorRule("stderr", r"YOLO mode .* disabled|disabled by the .disableYolo", "permission", "take another permission mode"),
    ErrorRule("stderr", r"\bModelNotFoundError:", "model_not_found", "name another model"),
    ErrorRule("exit", "41", "authentication", "log in as the daemon's user, or give GEMINI_API_KEY to the backend"),
    ErrorRule("exit", "42", "invalid_request"),
    ErrorRule("exit", "44", "invalid_request", "gemini's sandbox could not be started"),
    ErrorRule("exit", "52", "invalid_request", "look into ~/.gemini/settings.json"),
    ErrorRule("exit", "53", "max_turns"),
    ErrorRule("exit", "54", "crashed"),
    ErrorRule("exit", "55", "permission", "name `user` or `project` in the backend's setting_sources"),
    ErrorRule("exit", "130", "cancelled"),
)  # fmt: skip
_TAXONOMY = Taxonomy(ERRORS)
_STATUS = re.compile(r'"code"\s*:\s*([45]\d\d)\b')
_STATUS_EXITS = range(400 & 255, 511 & 255)
"""Exit codes that can only be an HTTP status & 255. gemini's own codes and codes of signals are smaller."""
_RETRY_AFTER = re.compile(r"Suggested retry after (\d{1,6}(?:\.\d+)?)s|[Pp]lease retry in (\d{1,6}(?:\.\d+)?)s")
_ATTEMPT = re.compile(r"^(?=Attempt \d+ failed)", re.MULTILINE)
_REPEATED = re.compile(r"Attempt .*Retrying ", re.DOTALL)


UNANSWERED = TurnError(kind="server", message="gemini ended the turn without an answer", retryable=True)


def terminal_of(frame: Frame, text: str, complaint: str | None, denied: Iterable[str]) -> Terminal:
    """Return the end of the turn. `text` is the final answer, `complaint` the last error after which the model did not go on.

    Success without an answer is a failure, although the frame gives no reason.
    """
    error = _error_of(frame, text, complaint)
    return Terminal(
        is_error=error is not None,
        text="" if error else text,
        usage=_usage(get_dict(frame, "stats")),
        error=error,
        interrupted=get_str(get_dict(frame, "error"), "type") == _CANCELLED,
        denied=tuple(denied),
    )


def _error_of(frame: Frame, text: str, complaint: str | None) -> TurnError | None:
    said = get_dict(frame, "error")
    if get_str(frame, "status") == "success":
        stopped = complaint if complaint and _TAXONOMY.search("text", complaint) else None
        if text.strip() and stopped is None:
            return None
        return _turn_error(None, stopped) if stopped else UNANSWERED
    message = get_str(said, "message") or complaint or "gemini failed without a message"
    return _turn_error(get_str(said, "type"), message)


def explain_refusal(message: str, status: int | None) -> TurnError:
    """Return the error of a failed prompt in live mode. `status` is that of the API, if its message tells none."""
    return _turn_error(None, message or "gemini failed without a message", status)


def is_denial(error_type: str | None, name: str) -> bool:
    """Tell whether a tool was refused because a permission is missing."""
    return error_type == "policy_violation" or (error_type == "tool_not_registered" and name in _GUARDED)


def _turn_error(code: str | None, message: str, status: int | None = None) -> TurnError:
    """Return the error by the most exact word: the error's name, an exact text, the status, any other text."""
    status = _status(message) or (status if status in range(400, 600) else None)
    by_text = _TAXONOMY.search("text", message)
    rule = _TAXONOMY.exact("code", code) or _exact_text(by_text) or _TAXONOMY.exact("status", status) or by_text
    kind = rule.kind if rule else kind_of_status(status) or "crashed"
    return TurnError(
        kind=kind,
        message=message.strip()[:MESSAGE_CHARS],
        retryable=kind in RETRYABLE,
        retry_after_s=_retry_after(message) if kind in ("rate_limit", "quota_exceeded", "overloaded") else None,
        http_status=status,
    )


def _exact_text(rule: ErrorRule | None) -> ErrorRule | None:
    """Return a text rule that stands before the statuses in the table. Rules after the statuses are guesses."""
    first_status = next(index for index, known in enumerate(ERRORS) if known.where == "status")
    return rule if rule is not None and ERRORS.index(rule) < first_status else None


def _status(message: str) -> int | None:
    """Return the HTTP status if the message holds the API's own JSON."""
    found = _STATUS.search(message)
    return int(found[1]) if found else None


def _retry_after(message: str) -> float | None:
    found = _RETRY_AFTER.search(message)
    return float(found[1] or found[2]) if found else None


def _usage(stats: Frame) -> Usage:
    """Return the turn's tokens. Zeros stand for answers that failed before their usage came: the usage is unknown.

    `input_tokens` includes cached tokens. `output_tokens` excludes the thoughts; only the total includes them.
    """
    total, prompt, output = (get_tokens(stats, name) for name in ("total_tokens", "input_tokens", "output_tokens"))
    if not total or prompt is None or output is None:
        return Usage()
    cached = get_tokens(stats, "cached")
    thoughts = max(0, total - prompt - output)
    return Usage(
        input_tokens=prompt if cached is None else max(0, prompt - cached),
        output_tokens=output + thoughts,
        cache_read_input_tokens=cached,
        reasoning_tokens=thoughts,
        source="reported",
    )


def explain_end(end: RunEnd) -> TurnError:
    """Explain a run without a result, or with a result that no rule knows.

    The message holds the words of stderr, with advice if there is any.
    """
    code = end.exit_code
    status = code + 256 if code is not None and code in _STATUS_EXITS else None
    by_stderr, said = refused(_TAXONOMY, end)
    rule = by_stderr or _TAXONOMY.exact("exit", code) or _TAXONOMY.exact("status", status)
    if rule is None and status is None:
        return crashed("gemini", end)
    kind = rule.kind if rule else kind_of_status(status) or "crashed"
    words = "; ".join(part for part in (said, rule.advice if rule else "") if part) or f"gemini {how(end)}"
    return TurnError(kind=kind, message=words, retryable=kind in RETRYABLE, http_status=status)


def last_attempt(end: RunEnd) -> TurnError | None:
    """Return the failure of the last request that gemini repeats according to stderr, without its stack trace."""
    *_, last = _ATTEMPT.split(end.stderr)
    words = last.partition("\n    at ")[0]
    return _turn_error(None, words) if _REPEATED.match(words) else None
