"""What retention takes: the oldest first, by age and by size, and runs only with the segment in which they ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.policy.retention import DAY_S, Part, expired, shares
from clisup.policy.wall_time import ClockLook

NOW = 1_000 * DAY_S


def part(days_ago: float, size: int = 10, session: str = "s", upto: int | None = 1) -> Part:
    return Part(session, upto, (), size, NOW - days_ago * DAY_S)


def gone(parts: list[Part], *, days: float = 0, limit: int = 0, kept: int = 0, since: float = 0) -> list[Part]:
    return expired(parts, clock=ClockLook(NOW, "b", 0.0, since=since), days=days, limit=limit, kept=kept)


def test_what_is_older_than_the_limit_goes_oldest_first() -> None:
    young, old, older = part(29), part(31), part(40)
    assert gone([young, old, older], days=30) == [older, old]


@pytest.mark.fault(88)
def test_ages_count_from_the_moment_at_which_the_clock_was_set() -> None:
    parts = [part(7300), part(40)]
    assert gone(parts, days=30, since=NOW - 29 * DAY_S) == []
    assert gone(parts, days=30, since=NOW - 31 * DAY_S) == parts


def test_above_the_size_the_oldest_go_until_it_fits() -> None:
    parts = [part(n, size=10) for n in (5, 4, 3, 2, 1)]
    assert gone(parts, limit=50) == []
    assert gone(parts, limit=49) == parts[:1]
    assert gone(parts, limit=20) == parts[:3]


def test_what_cannot_be_removed_counts_too() -> None:
    parts = [part(2), part(1)]
    assert gone(parts, limit=100, kept=80) == []
    assert gone(parts, limit=100, kept=81) == parts[:1]
    assert gone(parts, limit=100, kept=500) == parts


def test_without_limits_nothing_goes() -> None:
    assert gone([part(10_000, size=10**12)]) == []


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 100))), st.integers(1, 2000), st.integers(0, 500))
def test_no_more_goes_than_must_and_what_stays_fits(parts: list[tuple[float, int]], limit: int, kept: int) -> None:
    all_parts = [part(days, size=size) for days, size in parts]
    removed = gone(all_parts, limit=limit, kept=kept)
    left = kept + sum(p.size for p in all_parts) - sum(p.size for p in removed)
    assert left <= limit or len(removed) == len(all_parts)
    assert not removed or left + removed[-1].size > limit


def test_a_run_goes_with_the_segment_in_which_it_ended() -> None:
    # Three segments; run 2 was still running at the head of the second, run 4 at the head of the third.
    heads = [(0, None), (2, 2), (4, 4)]
    assert shares([1, 100, 200], heads, [1, 2, 3, 4, 5]) == [(1,), (2, 3), (4, 5)]


def test_runs_that_are_gone_already_are_not_missed() -> None:
    assert shares([100, 200], [(0, None), (4, None)], [4, 5]) == [(4,), (5,)]


def test_a_head_that_cannot_be_read_gives_no_run_away() -> None:
    assert shares([1, 100], [(0, None), (0, None)], [1, 2]) == [(), (1, 2)]
