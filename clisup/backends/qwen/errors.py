"""Kinds of failed turns of qwen. The CLI gives a text, "[API Error: <status> <the API's words>]", an exit code, and stderr."""

from __future__ import annotations

import json
import re

from clisup.backends.errors import (
    LIMIT_RULE,
    MESSAGE_CHARS,
    RETRYABLE,
    STATUS_RULES,
    ErrorRule,
    Taxonomy,
    kind_of_status,
)
from clisup.model.events import TurnError, TurnErrorKind

__all__ = ["ERRORS", "UNASKED", "explain_error", "explain_retry", "last_failure"]

_PLAIN = re.compile(r"\[API Error: (?P<words>.*?)\](?:\n.*)?\Z", re.DOTALL)
_STATUS = re.compile(r"^(\d{3}) ")

ERRORS: tuple[ErrorRule, ...] = (
    # Words of the API that are more exact than the status.
    LIMIT_RULE,
    ErrorRule("text", r"(?i)Qwen OAuth free tier|arrearage", "quota_exceeded"),
    ErrorRule(
        "text",
        r"(?i)maximum context length|context[_ ]length[_ ]exceeded|context window|input (?:is )?too long"
        r"|range of input length",
        "context_overflow",
    ),
    ErrorRule("text", r"(?i)content[_ ]filter|data_inspection_failed|inappropriate content", "refusal"),
    ErrorRule("text", r"No auth type is selected|Missing API key|OPENAI_API_KEY.*(?:not found|required)", "authentication"),
    # Statuses of the API.
    ErrorRule("status", "400", "invalid_request"),
    ErrorRule("status", "401", "authentication"),
    *STATUS_RULES,
    ErrorRule("status", "404", "model_not_found"),
    ErrorRule("status", "422", "invalid_request"),
    ErrorRule("status", "529", "overloaded"),
    # Without a status: no answer, or an incomplete one.
    ErrorRule(
        "text",
        r"Connection error|fetch failed|ECONN|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|UND_ERR|terminated|socket hang up"
        r"|(?i:request timed out)",
        "network",
    ),
    # Without a status too: an error in a stream that began with 200 (qwen-code #11217).
    ErrorRule("text", r"(?i)invalid_request_error|invalid (?:model )?parameter", "invalid_request"),
    ErrorRule("text", r"Model stream ended|empty response|Streaming request failed", "server"),
    ErrorRule("text", r"(?i)loop detected", "max_turns"),
    ErrorRule("text", r"^Operation cancelled\.", "cancelled"),
    # Exits without a result.
    ErrorRule("exit", "53", "max_turns", "raise --max-session-turns, or model.maxSessionTurns in the CLI's settings"),
    ErrorRule("exit", "55", "budget", "raise --max-wall-time or --max-tool-calls"),
    ErrorRule("stderr", r"No saved session found with", "session_not_found", "start the session anew"),
    ErrorRule(
        "stderr", r"Session Id \S+ already exists", "invalid_request", "resume the session instead of creating it"
    ),
    ErrorRule(
        "stderr",
        r"(?m)^Usage: qwen ",  # the help, after the error about the arguments
        "invalid_request",
        "look at the backend's args, and at the installed version",
    ),
    ErrorRule("stderr", r"No input provided via stdin", "invalid_request", "give a prompt"),
    ErrorRule(
        "stderr",
        r"Please fix the configuration file|settings\.json: SyntaxError",
        "invalid_request",
        "mend the CLI's settings.json",
    ),
    ErrorRule("stderr", r"No auth type is selected", "authentication",
              "set OPENAI_API_KEY (and OPENAI_BASE_URL, OPENAI_MODEL) in the backend's env, or log in with the CLI"),
    ErrorRule("stderr", r"ERR_UNKNOWN_BUILTIN_MODULE|SyntaxError: ", "spawn_failed", "qwen needs node 22 or newer"),
)  # fmt: skip
_TAXONOMY = Taxonomy(ERRORS)
_FAILED_REQUEST, _ANSWERED_REQUEST = "qwen-code.api_error", "qwen-code.api_response"
UNASKED = TurnError(
    kind="permission",
    message="qwen ended the turn without asking the model, and gives no reason; look for a UserPromptSubmit hook in its settings",
)
"""Return the error of a success without a text: qwen reports a hook that refused the prompt only so (0.24.4)."""


def explain_error(said: str) -> TurnError:
    """Return the error of a result with `is_error`: the API's words without the CLI's wrapping, and the status."""
    plain = _PLAIN.match(said.strip())
    words = (plain["words"] if plain else said).strip()
    found = _STATUS.match(words)
    status = int(found[1]) if found else None
    kind = _kind(words, status)
    return TurnError(
        kind=kind,
        message=words[:MESSAGE_CHARS] or "qwen failed without a message",
        retryable=kind in RETRYABLE,
        http_status=status,
    )


def explain_retry(*, limited: bool) -> TurnError:
    """Return the error behind one `system/retry`, which has no cause: only rate limits have a delay."""
    if limited:
        return TurnError(
            kind="rate_limit", message="the API limits the rate of requests", retryable=True, http_status=429
        )
    return TurnError(kind="server", message="the model's answer was broken, empty or cut by its length", retryable=True)


def _kind(words: str, status: int | None) -> TurnErrorKind:
    if status is None:
        rule = _TAXONOMY.search("text", words)
        return rule.kind if rule else "crashed"
    by_text = _TAXONOMY.search("text", words)
    by_status = _TAXONOMY.exact("status", status)
    if by_text is not None and by_text.kind in ("quota_exceeded", "context_overflow", "refusal"):
        return by_text.kind
    return by_status.kind if by_status else kind_of_status(status) or "invalid_request"


def last_failure(transcript: bytes) -> TurnError | None:
    """Return the failure of the last request in a transcript's lines, or None if the request succeeded or has no answer."""
    for line in reversed(transcript.splitlines()):
        try:
            entry = json.loads(line)
            kind, told = entry["type"], entry.get("systemPayload", {}).get("uiEvent", {})
            if told.get("event.name") == _FAILED_REQUEST:
                return explain_error(told["error_message"])
            if kind != "system" or told.get("event.name") == _ANSWERED_REQUEST:
                return None
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue  # an incomplete or unexpected line
    return None
