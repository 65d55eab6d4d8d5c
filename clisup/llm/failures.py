"""Failures of models as exceptions: one class for each failure that a program may want to tell apart.

Each is an `LLMError` with a stable `kind` of docs/reference/errors.md. Its source is a refusal of the daemon (`ClisupError`) or the
error of a failed turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from clisup.errors import KINDS, ClisupError, UsageError
from clisup.model.events import TurnCompleted


class LLMError(Exception):
    """Base of all failures. `kind` is stable, `message` is for people, and `hint` names the next step.

    `retryable`: the same request may work later, on this model, after `retry_after_s` if the backend says so. `side_effects`:
    a tool ran before the failure, or the turn may still run, so a repetition may do something twice. `data` has further fields.
    """

    kinds: tuple[str, ...] = ()
    """Kinds of refusals (clisup.errors.KINDS) and of turns' errors (docs/reference/errors.md). The first is the default `kind`."""

    def __init__(
        self,
        message: str,
        *,
        kind: str | None = None,
        hint: str = "",
        retryable: bool = False,
        retry_after_s: float | None = None,
        side_effects: bool = False,
        **data: Any,
    ) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint
        self.kind = kind or next(iter(self.kinds), "")
        self.retryable, self.retry_after_s, self.side_effects = retryable, retry_after_s, side_effects
        self.data = data

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle all fields, for copies and other processes."""
        return _again, (type(self), self.message, self.__dict__)


def _again(kind: type[LLMError], message: str, fields: dict[str, Any]) -> LLMError:
    error = kind.__new__(kind, message)
    error.__dict__.update(fields)
    return error


class Authentication(LLMError):
    """The CLI is not logged in, or its account lacks a permission."""

    kinds = ("authentication", "permission", "backend_not_logged_in", "permission_denied")


class RateLimited(LLMError):
    """The account has reached its limit. `retry_after_s` is set if the backend says when the limit ends."""

    kinds = ("rate_limit", "rate_limited", "quota_exceeded")

    @property
    def retry_after(self) -> float | None:
        """`retry_after_s`, under the name of the HTTP header."""
        return self.retry_after_s


class Overloaded(LLMError):
    """The model's server, the network or the daemon is overloaded."""

    kinds = ("overloaded", "server", "network", "limit_exceeded", "session_busy", "storage_failed")


class ModelNotFound(LLMError):
    """The backend knows no such model."""

    kinds = ("model_not_found",)


class BackendUnavailable(LLMError):
    """The backend is unknown, or its CLI is missing, too old or too new."""

    kinds = ("backend_unavailable", "backend_not_found", "backend_version_unsupported", "spawn_failed")


class InvalidRequest(LLMError):
    """The request is wrong, and a repetition fails in the same way."""

    kinds: tuple[str, ...] = ("invalid_request", "invalid_params", "usage")


class Unsupported(InvalidRequest):
    """The backend lacks a feature."""

    kinds = ("unsupported",)


class ContextOverflow(LLMError):
    """The conversation is longer than the model's context."""

    kinds = ("context_overflow",)


class BudgetExhausted(LLMError):
    """A budget is used up: the caller's own, or the session's in the daemon."""

    kinds = ("budget_exhausted", "budget")


class Refused(LLMError):
    """The model refused to answer."""

    kinds = ("refusal",)


class TimedOut(LLMError):
    """The daemon ended the turn: the CLI was silent for too long, or the turn took too long."""

    kinds = ("turn_timeout", "idle_timeout", "startup_timeout")


class Cancelled(LLMError):
    """A client interrupted the turn."""

    kinds = ("cancelled", "request_cancelled")


class StructureError(LLMError):
    """An answer does not fit the request, even after repairs. `text` is the last answer, `problems` lists its faults."""

    def __init__(self, message: str, *, text: str, problems: tuple[str, ...] = (), **about: Any) -> None:
        super().__init__(message, kind="invalid_request", **about)
        self.text, self.problems = text, problems


class Uncertain(LLMError):
    """The CLI may or may not have taken the prompt, so a repetition may run it twice. `data["evidence"]` has the known facts."""


class DaemonUnavailable(LLMError):
    """No daemon answers."""

    kinds = ("daemon_not_running", "box_away", "shutting_down")


class Failed(LLMError):
    """Any other failure of a turn: the CLI crashed, or its output was malformed or too long."""


_ALL: list[type[LLMError]] = [*LLMError.__subclasses__(), Unsupported]
_CLASSES = {kind: cls for cls in _ALL for kind in cls.kinds}


def error_of_turn(end: TurnCompleted, *, side_effects: bool = False) -> LLMError:
    """Return the exception for a turn that did not complete."""
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
    """Return the exception for a refusal of the daemon."""
    about = {key: value for key, value in error.data.items() if key not in ("retry_after_s", "message", "side_effects")}
    return _CLASSES.get(error.kind, Failed)(
        error.message,
        kind=error.kind,
        hint=error.hint,
        retryable=KINDS[error.kind].retryable,
        retry_after_s=error.data.get("retry_after_s"),
        **{key: value for key, value in about.items() if key not in ("kind", "hint", "retryable")},
    )


def usage_error(message: str, hint: str = "") -> UsageError:
    """Return the error for a mistake of the program, before the daemon is asked."""
    return UsageError(message, kind="usage", hint=hint)


@contextmanager
def as_llm_errors() -> Iterator[None]:
    """Turn each `ClisupError` of this block into the `LLMError` of its kind."""
    try:
        yield
    except ClisupError as error:
        raise error_of_refusal(error) from error
