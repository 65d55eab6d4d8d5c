"""What is known of an account's limit, from what its CLIs say."""

from __future__ import annotations

import msgspec
import pytest

from clisup.model.events import (
    AssistantMessage,
    ContentDelta,
    EventBase,
    MessageStart,
    RateLimit,
    TurnCompleted,
    TurnError,
)
from clisup.policy.rate_limit import AccountLimit, describe, epoch, fold_limit, iso, with_wait

NOW = 1_800_000_000.0
RESET = NOW + 3600
REJECTED = RateLimit(status="rejected", limit_type="five_hour", resets_at=iso(RESET))
LIMITED = AccountLimit(state="limited", until=RESET, limit_type="five_hour", said_at=NOW)
DAY = 86_400.0


def failed(**error: object) -> TurnCompleted:
    return TurnCompleted(outcome="failed", error=msgspec.convert({"message": "no\nmore", **error}, TurnError))


def test_a_rejection_with_a_reset_holds_new_turns_until_then() -> None:
    limit = fold_limit(AccountLimit(), REJECTED, NOW)
    assert limit == LIMITED
    assert limit.holds(NOW, 8 * DAY) == RESET
    assert limit.holds(RESET, 8 * DAY) is None


@pytest.mark.parametrize("status", ["allowed", "allowed_warning"])
def test_a_warning_is_no_failure_and_ends_a_limit(status: str) -> None:
    limit = fold_limit(LIMITED, RateLimit(status=status, utilization=0.93), NOW + 1)
    assert limit.state == ("ok" if status == "allowed" else "warned")
    assert limit.holds(NOW, DAY) is None


@pytest.mark.parametrize("kind", ["rate_limit", "quota_exceeded"])
def test_a_failed_turn_that_says_when_to_come_back_limits_its_account(kind: str) -> None:
    assert fold_limit(AccountLimit(), failed(kind=kind, retry_after_s=20), NOW).until == NOW + 20
    assert fold_limit(AccountLimit(), failed(kind=kind, resets_at=iso(RESET)), NOW).until == RESET


def test_a_limit_without_an_end_is_known_and_holds_nobody() -> None:
    limit = fold_limit(AccountLimit(), failed(kind="quota_exceeded"), NOW)
    assert (limit.state, limit.until, limit.message) == ("limited", None, "no")
    assert limit.holds(NOW, DAY) is None


def test_an_end_that_was_told_is_not_forgotten_for_an_error_without_one() -> None:
    assert fold_limit(LIMITED, failed(kind="rate_limit"), NOW + 1) is LIMITED


@pytest.mark.parametrize("kind", ["overloaded", "server", "authentication", "crashed"])
def test_other_failures_say_nothing_of_the_account(kind: str) -> None:
    assert fold_limit(LIMITED, failed(kind=kind), NOW) is LIMITED
    unknown = AccountLimit()
    assert fold_limit(unknown, failed(kind=kind), NOW) is unknown


@pytest.mark.parametrize(
    "event", [MessageStart(message_id="m"), AssistantMessage(message_id="m"), TurnCompleted(outcome="completed")]
)
def test_an_answer_of_the_model_ends_the_limit(event: EventBase) -> None:
    assert fold_limit(LIMITED, event, NOW).state == "ok"


def test_a_message_of_the_cli_itself_or_a_delta_is_no_answer() -> None:
    for event in (AssistantMessage(message_id="m", synthetic=True), ContentDelta(kind="text", text="x")):
        assert fold_limit(LIMITED, event, NOW) is LIMITED


def test_nobody_is_held_for_longer_than_the_configuration_says() -> None:
    far = fold_limit(AccountLimit(), RateLimit(status="rejected", resets_at="2100-01-01T00:00:00Z"), NOW)
    assert far.holds(NOW, DAY) == NOW + DAY
    assert far.holds(NOW + DAY, DAY) is None
    assert far.holds(NOW, 0) is None


def test_nobody_is_held_for_longer_after_the_clock_was_set_back() -> None:
    soon = failed(kind="rate_limit", retry_after_s=20)
    assert fold_limit(AccountLimit(), soon, NOW + 1000 * DAY).holds(NOW, DAY) is None
    assert fold_limit(AccountLimit(), soon, NOW + 60).holds(NOW, DAY) == NOW + 80


@pytest.mark.parametrize("text", ["soon", "", "2100-13-01T00:00:00Z"])
def test_a_time_that_is_none_is_no_end(text: str) -> None:
    assert epoch(text) is None
    assert fold_limit(AccountLimit(), RateLimit(status="rejected", resets_at=text), NOW).until is None


def test_times_are_shown_in_utc_and_an_impossible_one_is_none() -> None:
    assert describe(LIMITED)["until"] == "2027-01-15T09:00:00Z"
    assert epoch("2027-01-15T09:00:00") == RESET
    assert iso(1e300) is None


def wait_of(done: TurnCompleted, limit: AccountLimit = LIMITED, now: float = NOW) -> float | None:
    error = with_wait(done, limit, now).error
    return error.retry_after_s if error is not None else None


def test_the_error_of_a_limit_says_the_seconds_until_its_reset() -> None:
    assert wait_of(failed(kind="quota_exceeded", resets_at=iso(NOW + 90)), AccountLimit()) == 90
    assert wait_of(failed(kind="rate_limit"), LIMITED, NOW + 8) == 3592
    assert wait_of(failed(kind="rate_limit", retry_after_s=37.0), LIMITED) == 37
    assert wait_of(failed(kind="quota_exceeded", resets_at=iso(NOW - 5)), AccountLimit()) == 0


def test_an_error_says_no_seconds_where_nobody_knows_them_or_it_is_none_of_a_limit() -> None:
    assert wait_of(failed(kind="rate_limit"), AccountLimit(state="limited", said_at=NOW)) is None
    assert wait_of(failed(kind="server")) is None
    assert wait_of(TurnCompleted(outcome="completed")) is None
