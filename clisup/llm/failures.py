"""What can go wrong with a model, as exceptions: one class for each way that a program may want to tell apart.

Every one is an `LLMError` with the stable `kind` of docs/errors.md, be it the daemon's refusal of a request (`ClisupError`) or the
error of a turn that failed. `error_of_turn` and `error_of_refusal` make them.
"""

from __future__ import annotations

from typing import Any

from clisup.errors import KINDS, ClisupError
from clisup.model.events import TurnCompleted

__all__ = [
    "Authentication",
    "BackendUnavailable",
    "BudgetExhausted",
    "Cancelled",
    "ContextOverflow",
    "DaemonUnavailable",
    "Failed",
    "InvalidRequest",
    "LLMError",
    "ModelNotFound",
    "Overloaded",
    "RateLimited",
    "Refused",
    "StructureError",
    "TimedOut",
    "Uncertain",
    "Unsupported",
    "error_of_refusal",
    "error_of_turn",
]


class LLMError(Exception):
    """`kind` is stable, `message` for people, `hint` the next step. `retryable`: the same may work later, on this model.

    `retry_after_s` is known for some. `side_effects`: a tool had been called before it failed, or its turn may still run, so to
    ask once more may do something twice. `data` has what else the daemon said.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        hint: str = "",
        retryable: bool = False,
        retry_after_s: float | None = None,
        side_effects: bool = False,
        **data: Any,
    ) -> None:
        super().__init__(message)
        self.message, self.kind, self.hint = message, kind, hint
        self.retryable, self.retry_after_s, self.side_effects = retryable, retry_after_s, side_effects
        self.data = data

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        """To be copied, and sent to other processes."""
        return _again, (type(self), self.message, self.__dict__)


def _again(kind: type[LLMError], message: str, fields: dict[str, Any]) -> LLMError:
    error = kind.__new__(kind, message)
    error.__dict__.update(fields)
    return error


class Authentication(LLMError):
    """The CLI is not logged in, or its account may not do this."""


class RateLimited(LLMError):
    """The account's limit is reached; `retry_after_s` where the backend says when it ends."""

    @property
    def retry_after(self) -> float | None:
        """`retry_after_s`, by the name that the header of HTTP and other clients have for it; seconds."""
        return self.retry_after_s


class Overloaded(LLMError):
    """The model's server, the network or the daemon has too much to do."""


class ModelNotFound(LLMError):
    """The backend knows no such model."""


class BackendUnavailable(LLMError):
    """There is no such backend, or its CLI is not there, too old or too new."""


class InvalidRequest(LLMError):
    """The request itself is wrong: the same again gives the same."""


class Unsupported(InvalidRequest):
    """The backend has no such feature."""


class ContextOverflow(LLMError):
    """The conversation is longer than the model's context: edit it."""


class BudgetExhausted(LLMError):
    """A budget is used up: the caller's own, or the session's in the daemon."""


class Refused(LLMError):
    """The model would not answer."""


class TimedOut(LLMError):
    """The CLI said nothing for too long, or the turn took too long, and was ended."""


class Cancelled(LLMError):
    """Somebody interrupted the turn."""


class StructureError(LLMError):
    """An answer is not what was asked for, also after repair. `text` is the last answer, `problems` what is wrong with it."""

    def __init__(self, message: str, *, text: str, problems: tuple[str, ...] = (), **about: Any) -> None:
        super().__init__(message, kind="invalid_request", **about)
        self.text, self.problems = text, problems


class Uncertain(LLMError):
    """Nobody saw whether the CLI took the prompt: to send it again may do it twice. `data["evidence"]` says what is known."""


class DaemonUnavailable(LLMError):
    """There is no daemon to ask."""


class Failed(LLMError):
    """Any other failure of a turn: the CLI crashed, said what nobody understands, or too much."""


# kind of a refusal (clisup.errors.KINDS) or of a turn's error (docs/errors.md) -> the class
_CLASSES: dict[str, type[LLMError]] = {
    "authentication": Authentication,
    "permission": Authentication,
    "backend_not_logged_in": Authentication,
    "permission_denied": Authentication,
    "rate_limit": RateLimited,
    "rate_limited": RateLimited,
    "quota_exceeded": RateLimited,
    "overloaded": Overloaded,
    "server": Overloaded,
    "network": Overloaded,
    "limit_exceeded": Overloaded,
    "session_busy": Overloaded,
    "storage_failed": Overloaded,
    "shutting_down": DaemonUnavailable,
    "daemon_not_running": DaemonUnavailable,
    "model_not_found": ModelNotFound,
    "backend_not_found": BackendUnavailable,
    "backend_unavailable": BackendUnavailable,
    "backend_version_unsupported": BackendUnavailable,
    "spawn_failed": BackendUnavailable,
    "invalid_request": InvalidRequest,
    "invalid_params": InvalidRequest,
    "usage": InvalidRequest,
    "unsupported": Unsupported,
    "context_overflow": ContextOverflow,
    "budget": BudgetExhausted,
    "budget_exhausted": BudgetExhausted,
    "refusal": Refused,
    "startup_timeout": TimedOut,
    "idle_timeout": TimedOut,
    "turn_timeout": TimedOut,
    "cancelled": Cancelled,
    "request_cancelled": Cancelled,
}


def error_of_turn(end: TurnCompleted, *, side_effects: bool = False) -> LLMError:
    """The exception for a turn that did not complete."""
    error = end.error
    if error is None:
        kind = "cancelled" if end.outcome == "interrupted" else "crashed"
        message = f"the turn ended as {end.outcome}"
        return _CLASSES.get(kind, Failed)(message, kind=kind, side_effects=side_effects, outcome=end.outcome)
    return _CLASSES.get(error.kind, Failed)(
        error.message,
        kind=error.kind,
        retryable=error.retryable,
        retry_after_s=error.retry_after_s,
        side_effects=side_effects,
        outcome=end.outcome,
        resets_at=error.resets_at,
        http_status=error.http_status,
    )


def error_of_refusal(error: ClisupError) -> LLMError:
    """The exception for what the daemon refused."""
    about = {key: value for key, value in error.data.items() if key not in ("retry_after_s", "message", "side_effects")}
    return _CLASSES.get(error.kind, Failed)(
        error.message,
        kind=error.kind,
        hint=error.hint,
        retryable=KINDS[error.kind].retryable,
        retry_after_s=error.data.get("retry_after_s"),
        **{key: value for key, value in about.items() if key not in ("kind", "hint", "retryable")},
    )
