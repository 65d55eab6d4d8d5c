"""How the real CLI ends a turn when the API fails, as a table: the words, the fields and the shapes of 2.1.329."""

from __future__ import annotations

from typing import Any, NamedTuple

from clisup.demo.turn import Turn

__all__ = ["API_FAILURES", "RETRIES", "fail_turn", "refuse_script", "use_up"]

_RESETS_AT = 4102444800  # the year 2100: a limit that no clock of a test reaches


class ApiFailure(NamedTuple):
    """One failure: the text that claude shows, its `error`, the API's status and type, and claude's `terminal_reason`."""

    text: str
    error: str
    status: int | None = None
    type: str | None = None
    terminal_reason: str = "api_error"
    api_error: str | None = None


API_FAILURES: dict[str, ApiFailure] = {
    "authentication": ApiFailure("Failed to authenticate. API Error: 401 Invalid bearer token", "authentication_failed", 401,
                                 "authentication_error"),
    "login": ApiFailure("Not logged in · Please run /login", "authentication_failed"),
    "rate_limit": ApiFailure("API Error: Request rejected (429) · Too many requests", "rate_limit", 429, "rate_limit_error"),
    "usage_limit": ApiFailure("You've hit your limit · resets Jan 1, 2100, 12am (UTC)", "rate_limit", 429, "rate_limit_error",
                              api_error="usage_limit_reached"),
    "overloaded": ApiFailure("API Error: Repeated 529 Overloaded errors. The API is at capacity — this is usually temporary. "
                             "Try again in a moment.", "server_error", 529, "overloaded_error"),
    "server": ApiFailure("API Error: 500 Internal server error. This is a server-side issue, usually temporary — try again in a "
                         "moment.", "server_error", 500, "api_error"),
    "network": ApiFailure("API Error: Connection refused — a firewall or proxy may be blocking it (ECONNREFUSED)", "server_error",
                          api_error="connection_failed"),
    "billing": ApiFailure("Credit balance is too low", "billing_error", 400, "invalid_request_error"),
    "context": ApiFailure("Prompt is too long · the request is ~250000 tokens (limit 200000)", "invalid_request", 400,
                          "invalid_request_error", "prompt_too_long"),
    "model_not_found": ApiFailure("There's an issue with the selected model (MODEL). It may not exist or you may not have "
                                  "access to it. Run --model to pick a different model.", "model_not_found", 404, "not_found_error"),
    "invalid_request": ApiFailure("API Error: 400 messages.0: something is wrong", "unknown", 400, "invalid_request_error"),
}  # fmt: skip

RETRIES: dict[str, tuple[int | None, str]] = {
    "authentication": (401, "authentication_failed"),
    "rate_limit": (429, "rate_limit"),
    "overloaded": (529, "overloaded"),
    "server": (500, "server_error"),
    "network": (None, "unknown"),
}
"""What an api_retry frame says: `error_status` and `error`."""


def fail_turn(turn: Turn, kind: str) -> None:
    """End the turn with a failure of `ERROR_KINDS`. The process then exits with 1."""
    if kind == "refusal":
        _refuse(turn)
    elif kind in ("max_turns", "budget"):
        _exceed(turn, kind)
    else:
        failure = API_FAILURES[kind]
        if kind == "usage_limit":
            _reject(turn, _RESETS_AT)
        _fail(turn, failure._replace(text=failure.text.replace("MODEL", turn.frames.model)))


def use_up(turn: Turn, resets_at: float) -> None:
    """End the turn as with a used-up limit that resets at `resets_at` (seconds since the epoch; the CLI knows whole ones)."""
    _reject(turn, int(resets_at))
    _fail(turn, API_FAILURES["usage_limit"])


def _reject(turn: Turn, resets_at: int) -> None:
    turn.send(turn.frames.rate_limit(status="rejected", resetsAt=resets_at, rateLimitType="five_hour",
                                     overageStatus="rejected", isUsingOverage=False))  # fmt: skip


def refuse_script(turn: Turn, message: str) -> None:
    """A script that cannot be played is a request that the API refuses."""
    _fail(turn, API_FAILURES["invalid_request"]._replace(text=f"API Error: 400 demo script, {message}"))


def _fail(turn: Turn, failure: ApiFailure) -> None:
    turn.end_message("end_turn")
    said = {"api_error_status": failure.status, "api_error_type": failure.type, "api_error": failure.api_error}
    fields: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    turn.send(turn.frames.synthetic(failure.text, error=failure.error, is_api_error_message=True, **fields))
    turn.finish(subtype="success", is_error=True, terminal_reason=failure.terminal_reason, stop_reason="stop_sequence",
                result=failure.text, **{"api_error_status": None, **fields})  # fmt: skip


def _refuse(turn: Turn) -> None:
    """A model whose answer is stopped: the CLI asks it once more in its own words, and gives up at the second refusal."""
    model = turn.frames.model
    turn.delta("I")
    turn.end_message("refusal")
    notice = f"{model}'s safeguards stopped the response above · continuing once with that noted"
    turn.send(turn.frames.system("informational", content=notice, level="notice"))
    request = "Your response above was stopped by a safety classifier — this is not a tool or API error."
    turn.send(turn.frames.user([{"type": "text", "text": request}], isSynthetic=True))
    turn.delta("I")
    turn.end_message("refusal")
    turn.send(
        turn.frames.system("model_refusal_no_fallback", original_model=model, api_refusal_category=None, content="")
    )
    text = f"API Error: {model}'s safeguards flagged this message. Try rephrasing the request in a new session."
    turn.send(turn.frames.synthetic(text, error="invalid_request", is_api_error_message=True))
    turn.finish(subtype="success", is_error=True, terminal_reason="api_error", stop_reason="refusal", result=text,
                api_error_status=None)  # fmt: skip


def _exceed(turn: Turn, kind: str) -> None:
    """A limit of the command line: a result of another subtype, without a text."""
    turn.end_message("end_turn")
    subtypes = {"max_turns": "error_max_turns", "budget": "error_max_budget_usd"}
    errors = {"max_turns": "Reached maximum number of turns (1)", "budget": "Reached maximum budget ($0.01)"}
    reasons = {"max_turns": "max_turns", "budget": "budget_exhausted"}
    turn.finish(
        subtype=subtypes[kind], is_error=True, terminal_reason=reasons[kind], stop_reason=None, errors=[errors[kind]]
    )
