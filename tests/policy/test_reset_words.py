"""The end of a limit in words: wordings of public reports, each with the time that it means."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.model.events import TurnCompleted, TurnError
from clisup.policy.rate_limit import AccountLimit, fold_limit, with_wait
from clisup.policy.reset_words import reset_in

NOW = datetime(2026, 8, 3, 4, 56, tzinfo=UTC).timestamp()
WORDS = [
    ("You've hit your session limit - resets 11:20am (Europe/Zurich)", "2026-08-03T09:20"),
    ("You've hit your weekly limit · resets Aug 3, 7am (Europe/Zurich)", "2026-08-03T05:00"),
    ("You've hit your weekly limit · resets 7am (Europe/Zurich)", "2026-08-03T05:00"),
    ("Weekly limit reached · resets 10am (Asia/Seoul) · /upgrade to Max", "2026-08-04T01:00"),
    ("Claude AI usage limit reached|1785750000", "2026-08-03T09:40"),
    ("Claude AI usage limit reached|1785750000123", "2026-08-03T09:40"),
    ("Claude usage limit reached. Your limit will reset at 1pm (Etc/GMT+5)", "2026-08-03T18:00"),
    ("5-hour limit reached ∙ resets 3am", "2026-08-04T03:00"),
    ("Opus weekly limit reached ∙ resets Aug 9 at 10am", "2026-08-09T10:00"),
    ("You're out of extra usage · resets 4:20am (Europe/Warsaw)", "2026-08-04T02:20"),
    ("You've hit your usage limit. Upgrade or try again in 5 days 22 hours 11 minutes.", "2026-08-09T03:07"),
    ("or try again at Aug 5th, 2026 8:19 PM.", "2026-08-05T20:19"),
    ("or try again at Aug 20, 2026, 7:38 AM", "2026-08-20T07:38"),
    ("or try again at 15:45.", "2026-08-03T15:45"),
    ("You have exhausted your capacity on this model. Your quota will reset after 8h44m7s..", "2026-08-03T13:40"),
    ("Monthly usage limit reached. Resets in 12 days", "2026-08-15T04:56"),
    ('{"type":"usage_limit_reached","resets_at":1785750000}', "2026-08-03T09:40"),
    ("limit reached, resets 4:50am", "2026-08-03T04:50"),  # it has just passed
    ("limit reached, resets 12am (UTC)", "2026-08-04T00:00"),
    ("limit reached, resets 12pm (UTC)", "2026-08-03T12:00"),
]


@pytest.mark.fault(95)
@pytest.mark.parametrize(("words", "end"), WORDS)
def test_the_end_of_a_limit_is_read_from_its_words(words: str, end: str) -> None:
    at = reset_in(words, NOW, UTC)
    assert at is not None and datetime.fromtimestamp(at, UTC).isoformat(timespec="minutes")[:16] == end


@pytest.mark.parametrize(
    "words",
    [
        "usage limit reached. Please try again later.", "try again in 3 attempts", "resets 25:00", "resets at 13pm",
        "resets Foo 3, 7am", "resets Feb 31, 7am", "resets 7am (Mars/Olympus)",
        "limit resets in 300 days", "Claude AI usage limit reached|9999999999", "resets Jan 3, 7am (UTC)", "resets 7",
        "try again at 10 de jul. de 2026, 11:52.", "",
    ],
)  # fmt: skip
def test_words_that_tell_no_end_or_an_absurd_one_tell_none(words: str) -> None:
    assert reset_in(words, NOW, UTC) is None


def test_a_date_in_december_may_be_one_of_the_next_year() -> None:
    december = datetime(2026, 12, 30, 12, tzinfo=UTC).timestamp()
    assert reset_in("resets Jan 3, 7am (UTC)", december) == datetime(2027, 1, 3, 7, tzinfo=UTC).timestamp()


def test_a_clock_is_set_between_now_and_the_end() -> None:
    zone = ZoneInfo("Europe/Zurich")
    saturday = datetime(2026, 10, 24, 12, tzinfo=zone).timestamp()  # summer time ends in the night
    end = datetime(2026, 10, 25, 7, tzinfo=zone).timestamp()
    assert reset_in("resets 7am (Europe/Zurich)", saturday) == reset_in("resets 7am", saturday, zone) == end
    assert end - saturday == 20 * 3600


@given(st.text(max_size=200))
def test_no_words_break_the_reader(words: str) -> None:
    for text in (words, f"resets {words}", f"try again in {words}", f"resets 7am ({words})"):
        end = reset_in(text, NOW, UTC)
        assert end is None or end <= NOW + 40 * 86400


@pytest.mark.fault(95)
def test_a_turn_and_its_account_know_an_end_that_was_only_said() -> None:
    error = TurnError(kind="quota_exceeded", message="5-hour limit reached ∙ resets 7am (UTC)")
    done = TurnCompleted(outcome="failed", error=error)
    limit = fold_limit(AccountLimit(), done, NOW)
    told = with_wait(done, limit, NOW).error
    assert told is not None and told.retryable
    assert (told.retry_after_s, told.resets_at) == (7440, "2026-08-03T07:00:00Z")
    assert limit.until == NOW + 7440
    other = TurnCompleted(outcome="failed", error=TurnError(kind="server", message=error.message))
    assert with_wait(other, AccountLimit(), NOW) is other
