"""Endings that a CLI would drag out: retries that cannot succeed, too many of them, or a wait that nobody asked for. Pure."""

from __future__ import annotations

from typing import NamedTuple

from clisup.model.events import BackendRetry, TurnError

__all__ = ["Patience", "out_of_patience"]

_HOPELESS = ("authentication", "permission", "quota_exceeded")  # no retry changes an answer like this


class Patience(NamedTuple):
    """How long announced retries are watched; 0 leaves it to the CLI (claude 2.1.329: 10 retries, 187 s of 429)."""

    retries: int = 0
    wait_s: float = 0


def out_of_patience(event: BackendRetry, patience: Patience) -> TurnError | None:
    """The error to end the turn with, now that the CLI has announced this retry; None to let it try."""
    if event.error is None:
        return None
    if event.error.kind in _HOPELESS:
        return event.error.model_copy(update={"retryable": False})
    if patience.wait_s and (event.delay_s or 0) > patience.wait_s:
        return event.error.model_copy(update={"retry_after_s": event.delay_s})
    if patience.retries and (event.attempt or 0) > patience.retries:
        return event.error
    return None
