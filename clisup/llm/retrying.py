"""When a request is made once more, after how long, and when another model is asked: rules alone. Pure."""

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

__all__ = ["FALLBACK_ON", "Fallback", "OnFallback", "OnRetry", "Retry", "RetryPolicy", "falls_back"]

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
"""What another model may not have. A wrong request, a refusal, a budget and an interrupt are the same with each."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`attempts` are all tries of one model at one prompt, the first one included.

    Before the nth repetition there is a pause of `first_delay_s * factor ** (n - 1)`, at most `max_delay_s`, of which up to the
    share `jitter` is left out by chance. Where the backend says when it may be asked again, the pause is that (and the jitter is added); a
    longer one than `max_retry_after_s` is not waited for: the next model is asked, or the error is raised.
    """

    attempts: int = 3
    first_delay_s: float = 1.0
    factor: float = 2.0
    max_delay_s: float = 60.0
    jitter: float = 0.5
    max_retry_after_s: float = 120.0

    def delay_s(self, error: LLMError, attempt: int, *, chance: float, now: datetime) -> float | None:
        """The pause after the failed `attempt` (1 is the first); None where it is not made again. `chance` is from [0, 1)."""
        if error.side_effects or not error.retryable or attempt >= self.attempts:
            return None
        backoff = min(self.first_delay_s * self.factor ** (attempt - 1), self.max_delay_s)
        told = _told_s(error, now)
        if told is None:
            return backoff * (1 - self.jitter * chance)
        return told + backoff * self.jitter * chance if told <= self.max_retry_after_s else None


def falls_back(error: LLMError, on: tuple[type[LLMError], ...] = FALLBACK_ON) -> bool:
    """May another model be asked? Never after a tool was called."""
    return isinstance(error, on) and not error.side_effects


def _told_s(error: LLMError, now: datetime) -> float | None:
    """How long the backend said to wait: by seconds, or by the time at which its limit ends."""
    if error.retry_after_s is not None:
        return max(error.retry_after_s, 0.0)
    try:
        return max((datetime.fromisoformat(str(error.data.get("resets_at"))) - now).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class Retry:
    """The same model is asked again, after `delay_s`. `attempt` is the one that failed, from 1."""

    model: str
    attempt: int
    delay_s: float
    error: LLMError


@dataclass(frozen=True, slots=True)
class Fallback:
    """Another model goes on with the conversation."""

    model: str
    to: str
    error: LLMError


OnRetry = Callable[[Retry], Awaitable[None] | None]
OnFallback = Callable[[Fallback], Awaitable[None] | None]
