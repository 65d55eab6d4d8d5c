"""How long a request that failed waits before it is made again. Pure."""

from __future__ import annotations

from clisup.worker.failures import MAX_WAIT_S, Failure

__all__ = ["FIRST_S", "LONGEST_S", "delay_of"]

FIRST_S = 0.5
LONGEST_S = 32.0
"""Seconds of the first and the longest pause that the API has not asked for: they double in between, as with claude 2.1.330."""


def delay_of(failure: Failure, attempt: int, jitter: float) -> float | None:
    """Return the seconds before repeat number `attempt` (from 1); None where it is no use. `jitter` is from 0 to 1."""
    if not failure.again:
        return None
    if failure.retry_after_s is not None:
        return failure.retry_after_s if failure.retry_after_s <= MAX_WAIT_S else None
    return min(LONGEST_S, FIRST_S * 2.0 ** min(attempt - 1, 16)) * (1 - jitter / 4)
