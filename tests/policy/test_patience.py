"""When announced retries of a CLI end the turn."""

from __future__ import annotations

import msgspec
import pytest

from clisup.model.events import BackendRetry, TurnError
from clisup.policy.watchdog import Patience, out_of_patience


def retry(kind: str, *, attempt: int | None = 1, delay_s: float | None = 1.0) -> BackendRetry:
    error = msgspec.convert({"kind": kind, "message": "no", "retryable": True}, TurnError)
    return BackendRetry(attempt=attempt, max_attempts=10, delay_s=delay_s, error=error)


@pytest.mark.fault(64)
@pytest.mark.parametrize("kind", ["authentication", "permission", "quota_exceeded"])
def test_what_no_retry_can_change_ends_at_once_and_is_not_retryable(kind: str) -> None:
    error = out_of_patience(retry(kind), Patience())
    assert error is not None and error.kind == kind and not error.retryable


@pytest.mark.parametrize("kind", ["overloaded", "rate_limit", "server", "network"])
def test_all_else_is_left_to_the_cli_by_default(kind: str) -> None:
    assert out_of_patience(retry(kind, attempt=9, delay_s=40), Patience()) is None


def test_one_retry_more_than_allowed_ends_the_turn_with_its_own_error() -> None:
    patience = Patience(retries=2)
    assert out_of_patience(retry("overloaded", attempt=2), patience) is None
    error = out_of_patience(retry("overloaded", attempt=3), patience)
    assert error is not None and error.kind == "overloaded" and error.retryable


def test_a_wait_longer_than_allowed_ends_the_turn_and_says_how_long_it_would_be() -> None:
    patience = Patience(wait_s=5)
    assert out_of_patience(retry("rate_limit", delay_s=5), patience) is None
    error = out_of_patience(retry("rate_limit", delay_s=30), patience)
    assert error is not None and (error.kind, error.retry_after_s) == ("rate_limit", 30)


@pytest.mark.parametrize("event", [BackendRetry(attempt=99), retry("server", attempt=None, delay_s=None)])
def test_a_retry_that_says_little_is_given_time(event: BackendRetry) -> None:
    assert out_of_patience(event, Patience(retries=1, wait_s=1)) is None
