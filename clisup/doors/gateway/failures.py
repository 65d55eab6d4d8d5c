"""Failures of a request: HTTP status, kind and words, before a dialect gives them its own form. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from clisup.errors import KINDS, ClisupError
from clisup.llm.failures import LLMError

__all__ = ["GatewayError", "HttpFailure", "failure_of", "refused"]

_STATUSES = {
    400: ("invalid_request", "invalid_params", "usage", "unsupported", "context_overflow", "parse_error", "refusal"),
    403: ("permission_denied",),
    404: ("model_not_found", "backend_not_found", "session_not_found", "session_closed", "turn_not_found"),
    409: ("session_busy", "session_exists", "idempotency_key_reused"),
    429: ("rate_limit", "rate_limited", "quota_exceeded", "limit_exceeded", "budget", "budget_exhausted"),
    502: ("authentication", "permission", "backend_not_logged_in", "server", "network", "crashed", "protocol",
          "output_limit", "resource_limit", "spawn_failed", "answer_retracted", "uncertain"),
    503: ("overloaded", "daemon_not_running", "box_away", "shutting_down", "storage_failed", "backend_unavailable",
          "backend_version_unsupported"),
    504: ("turn_timeout", "idle_timeout", "startup_timeout"),
}  # fmt: skip
RETRY_AFTER_S = 30.0
"""Seconds for `retry-after` of a limit whose end the backend does not tell."""

_STATUS_OF = {kind: status for status, kinds in _STATUSES.items() for kind in kinds}


@dataclass(frozen=True, slots=True)
class HttpFailure:
    """Failed request. `kind` is stable. `retryable`: the same request may work later; None leaves that to the status."""

    status: int
    kind: str
    message: str
    param: str | None = None
    retry_after_s: float | None = None
    retryable: bool | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that tell a client whether and when to try again. The official SDKs obey both."""
        found = {} if self.retry_after_s is None else {"retry-after": str(max(1, ceil(self.retry_after_s)))}
        if self.retryable is not None:
            found["x-should-retry"] = "true" if self.retryable else "false"
        return found


class GatewayError(Exception):
    """Request that cannot be answered."""

    def __init__(self, failure: HttpFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def refused(message: str, param: str | None = None, *, kind: str = "invalid_request", status: int = 0) -> GatewayError:
    """Return the error for a wrong request. A repetition fails again."""
    return GatewayError(HttpFailure(status or _STATUS_OF.get(kind, 400), kind, message, param, retryable=False))


def failure_of(error: LLMError | ClisupError, *, recorded: bool = False) -> HttpFailure:
    """Return the failure of a turn or a refusal of the daemon. `recorded`: the same request gets this failure again."""
    message = f"{error.message}; {error.hint}" if error.hint else error.message
    if isinstance(error, ClisupError):
        retryable, after = KINDS[error.kind].retryable, error.data.get("retry_after_s")
        kind, param = error.kind, error.data.get("param")
    else:
        kind = error.kind if type(error).__name__ != "Uncertain" else "uncertain"
        retryable, after, param = error.retryable, error.retry_after_s, error.data.get("param")
    after_s = float(after) if isinstance(after, int | float) else None
    status = _STATUS_OF.get(kind, 500)
    if status == 429 and after_s is None:
        after_s = RETRY_AFTER_S
    return HttpFailure(status, kind, message, param if isinstance(param, str) else None, after_s,
                   retryable=retryable and not recorded)  # fmt: skip
