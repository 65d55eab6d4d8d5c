"""Rules of retries and fallbacks: a failed request is repeated, then the next model goes on with the conversation. Pure.

Nothing is repeated after a tool call, because nobody knows its effect the second time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from clisup.llm.failures import (
    Authentication,
    BackendUnavailable,
    ContextOverflow,
    DaemonUnavailable,
    Failed,
    LLMError,
    ModelNotFound,
    Overloaded,
    RateLimited,
    TimedOut,
)

FALLBACK_ON: tuple[type[LLMError], ...] = (
    Authentication,
    BackendUnavailable,
    ContextOverflow,
    DaemonUnavailable,
    Failed,
    ModelNotFound,
    Overloaded,
    RateLimited,
    TimedOut,
)
"""Failures that another model may not have. Wrong requests, refusals, budgets and interrupts fail with every model."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Policy of repetitions. `attempts` counts all tries of one model at one prompt, with the first.

    The pause before the nth repetition is `first_delay_s * factor ** (n - 1)`, at most `max_delay_s`, and shorter by a random share
    up to `jitter`. If the backend names a time, the pause is that time plus the jitter. A time above `max_retry_after_s` is not
    waited for: the next model answers, or the error is raised.
    """

    attempts: int = 3
    first_delay_s: float = 1.0
    factor: float = 2.0
    max_delay_s: float = 60.0
    jitter: float = 0.5
    max_retry_after_s: float = 120.0

    def delay_s(self, error: LLMError, attempt: int, *, chance: float, now: datetime) -> float | None:
        """Return the pause after a failed attempt (from 1), or None for no repetition. `chance` is in [0, 1)."""
        if error.side_effects or not error.retryable or attempt >= self.attempts:
            return None
        backoff = min(self.first_delay_s * self.factor ** (attempt - 1), self.max_delay_s)
        told = _told_s(error, now)
        if told is None:
            return backoff * (1 - self.jitter * chance)
        return told + backoff * self.jitter * chance if told <= self.max_retry_after_s else None


def falls_back(error: LLMError, on: tuple[type[LLMError], ...] = FALLBACK_ON) -> bool:
    """Return whether another model may be asked. After a tool call, none may."""
    return isinstance(error, on) and not error.side_effects


def _told_s(error: LLMError, now: datetime) -> float | None:
    """Return the backend's own waiting time: its seconds, or the end of its limit."""
    if error.retry_after_s is not None:
        return max(error.retry_after_s, 0.0)
    try:
        return max((datetime.fromisoformat(str(error.data.get("resets_at"))) - now).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class Retry:
    """Repetition with the same model after `delay_s`. `attempt` is the failed one, from 1."""

    model: str
    attempt: int
    delay_s: float
    error: LLMError


@dataclass(frozen=True, slots=True)
class Fallback:
    """Change to another model, with the conversation."""

    model: str
    to: str
    error: LLMError


OnRetry = Callable[[Retry], Awaitable[None] | None]
OnFallback = Callable[[Fallback], Awaitable[None] | None]
