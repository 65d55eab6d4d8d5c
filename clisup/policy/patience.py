"""Patience with retries that a CLI announces: when to end the turn instead. Pure.

A turn ends for retries that cannot succeed, too many retries, or too long a wait.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from clisup.model.events import BackendRetry, TurnError

_HOPELESS = ("authentication", "permission", "quota_exceeded")  # no retry changes these errors


class Patience(NamedTuple):
    """Limits on announced retries; 0 leaves them to the CLI (claude 2.1.329: 10 retries, 187 s of 429)."""

    retries: int = 0
    wait_s: float = 0


def out_of_patience(event: BackendRetry, patience: Patience) -> TurnError | None:
    """Return the error with which the turn ends after this announced retry. Return None to let the CLI retry."""
    if event.error is None:
        return None
    if event.error.kind in _HOPELESS:
        return replace(event.error, retryable=False)
    if patience.wait_s and (event.delay_s or 0) > patience.wait_s:
        return replace(event.error, retry_after_s=event.delay_s)
    if patience.retries and (event.attempt or 0) > patience.retries:
        return event.error
    return None
