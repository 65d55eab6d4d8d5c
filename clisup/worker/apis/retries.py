"""Delays before a failed request is repeated. Pure."""

from __future__ import annotations

from clisup.worker.apis.failures import MAX_WAIT_S, RequestFailure

FIRST_S = 0.5
LONGEST_S = 32.0
"""First and longest delay, in seconds, that the API has not asked for. The delay doubles in between, as in claude 2.1.330."""


def delay_of(failure: RequestFailure, attempt: int, jitter: float) -> float | None:
    """Return the seconds before repeat `attempt` (from 1), or None for no repeat. `jitter` is from 0 to 1."""
    if not failure.again:
        return None
    if failure.retry_after_s is not None:
        return failure.retry_after_s if failure.retry_after_s <= MAX_WAIT_S else None
    return min(LONGEST_S, FIRST_S * 2.0 ** min(attempt - 1, 16)) * (1 - jitter / 4)
