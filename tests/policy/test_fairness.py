"""Who goes next: those who asked for little first, the others in equal parts, and nobody twice at once."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.policy.fair_queue import MAX_QUOTA, SLOW_ROUND_S, FairQueue, Share, TokenBucket

SHARE = Share(burst=10, rate=5)


def greedy(now: float = 0.0) -> TokenBucket:
    """Over its share."""
    return TokenBucket(SHARE.burst, now)


def waiting(line: FairQueue[str], names: str, now: float = 0.0) -> dict[str, TokenBucket]:
    accounts = {name: greedy(now) for name in names}
    for name, account in accounts.items():
        line.join(account, 1, name, now)
    return accounts


def rounds(line: FairQueue[str], accounts: dict[str, TokenBucket], count: int, units: dict[str, float]) -> Counter[str]:
    """Everybody stands in line again as soon as it was let in: how often was that?"""
    served: Counter[str] = Counter()
    for _ in range(count):
        line.begin_round(1.0)
        for name in line.admit(0):
            served[name] += 1
            line.join(accounts[name], units[name], name, 0)
    return served


def test_within_its_share_a_lone_connection_passes_at_once() -> None:
    line, account = FairQueue[str](SHARE), TokenBucket()
    assert all(line.pass_by(account, 1, 0) for _ in range(int(SHARE.burst)))
    assert account.debt == SHARE.burst


def test_a_lone_connection_over_its_share_has_all_of_each_round() -> None:
    line, account = FairQueue[str](SHARE), greedy()
    for _ in range(5):
        line.begin_round(0)
        taken = 0
        while line.pass_by(account, 1, 0):
            taken += 1
        assert taken == MAX_QUOTA


@pytest.mark.fault(47)
def test_who_asked_for_less_goes_before_all_who_are_over_their_share() -> None:
    line = FairQueue[str](SHARE)
    waiting(line, "abcdefghijklmnopqrstuvwxyz")
    line.join(TokenBucket(3), 1, "good", 0)
    line.join(TokenBucket(1), 1, "better", 0)
    line.begin_round(0)
    assert line.admit(0)[:3] == ["better", "good", "a"]


@pytest.mark.fault(47)
def test_who_is_within_its_share_need_not_stand_in_line_at_all() -> None:
    line = FairQueue[str](SHARE)
    waiting(line, "abcdefghijklmnopqrstuvwxyz")
    line.begin_round(0)
    line.admit(0)
    assert line.pass_by(TokenBucket(2), 1, 0)
    assert not line.pass_by(greedy(), 1, 0)


def test_a_round_takes_up_a_bounded_amount_of_work_whoever_asks() -> None:
    line = FairQueue[str](SHARE)
    line.begin_round(0)
    fresh = [TokenBucket() for _ in range(1000)]
    assert sum(line.pass_by(account, 1, 0) for account in fresh) == 2 * MAX_QUOTA
    for number, account in enumerate(fresh):
        line.join(account, 1, str(number), 0)
    for _ in range(10):
        line.begin_round(0)
        assert len(line.admit(0)) == 2 * MAX_QUOTA


@pytest.mark.fault(47)
def test_slow_rounds_and_dear_work_leave_room_for_those_within_their_share() -> None:
    line = FairQueue[str](SHARE)
    for _ in range(10):
        line.begin_round(1.0)
    waiting(line, "abc")
    line.join(greedy(), 8, "dear", 0)
    for _ in range(50):
        line.begin_round(1.0)
        line.admit(0)
        assert line.pass_by(TokenBucket(1), 1, 0)


@pytest.mark.fault(47)
def test_those_over_their_share_are_served_round_robin() -> None:
    line, names = FairQueue[str](SHARE), "abcdefghijklmnopqrstuvwxyz"
    accounts = waiting(line, names)
    served = rounds(line, accounts, 500, dict.fromkeys(names, 1))
    assert max(served.values()) - min(served.values()) <= 1
    assert set(served) == set(names)


def test_dear_work_is_served_as_much_less_often_as_it_costs_more() -> None:
    line, names = FairQueue[str](SHARE), "abcd"
    accounts = waiting(line, names)
    served = rounds(line, accounts, 4000, {"a": 1, "b": 1, "c": 4, "d": 4})
    assert served["a"] == pytest.approx(4 * served["c"], rel=0.05)
    assert served["b"] == pytest.approx(4 * served["d"], rel=0.05)


def test_a_debt_shrinks_with_time_but_not_while_standing_in_line() -> None:
    line, account = FairQueue[str](SHARE), TokenBucket(8, 100.0)
    assert line.reckon(account, 101.0) == 3
    line.join(account, 1, "x", 101.0)
    assert line.reckon(account, 1000.0) == 3
    line.begin_round(0)
    assert line.admit(1000.0) == ["x"]
    assert line.reckon(account, 1000.4) == pytest.approx(2)
    assert line.reckon(account, 9999.0) == 0


def test_a_debt_shrinks_only_while_the_daemon_waits_for_the_client() -> None:
    line, account = FairQueue[str](SHARE), TokenBucket(8, 0.0)
    line.rest(account, False, 1.0)
    assert line.reckon(account, 50.0) == 3
    line.rest(account, True, 50.0)
    assert line.reckon(account, 50.4) == pytest.approx(1)


def test_a_flood_that_never_pauses_never_gets_below_its_share() -> None:
    line, flood = FairQueue[str](SHARE), greedy(1)
    for second in range(1, 50):
        line.join(flood, 1, "x", second)  # it waits a second each time, and asks again at once
        line.begin_round(0)
        assert line.admit(second + 1) == ["x"]
        assert flood.debt > SHARE.burst


def test_who_leaves_the_line_is_not_served_and_may_come_again() -> None:
    line = FairQueue[str](SHARE)
    accounts = waiting(line, "abc")
    line.leave("b", 0)
    line.leave("nobody", 0)
    line.begin_round(0)
    assert line.admit(0) == ["a", "c"]
    assert not accounts["b"].standing
    assert line.empty


@pytest.mark.fault(47)
def test_to_connect_again_and_again_brings_no_fresh_share() -> None:
    line, process = FairQueue[str](SHARE), TokenBucket()
    assert line.newcomer(process, 0) == 0
    assert [line.newcomer(process, 0) for _ in range(5)] == [SHARE.burst] * 5
    assert line.newcomer(process, 1) == SHARE.burst - SHARE.rate
    assert line.newcomer(process, 100) == 0


def test_slow_rounds_make_the_next_ones_small_and_quick_ones_bring_them_back() -> None:
    line = FairQueue[str](SHARE)
    for _ in range(20):
        line.begin_round(SLOW_ROUND_S * 2)
    assert line.quota == 1
    for _ in range(20):
        line.begin_round(SLOW_ROUND_S / 2)
    assert line.quota == MAX_QUOTA


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from([0.05, 1.0, 4.0, 8.0])), max_size=200))
def test_everybody_in_line_is_served_in_the_end(asked: list[tuple[str, float]]) -> None:
    line, now = FairQueue[str](SHARE), 0.0
    accounts: dict[str, TokenBucket] = {}
    standing: set[str] = set()
    for name, units in asked:
        account = accounts.setdefault(name, TokenBucket())
        now += 0.01
        if name not in standing and not line.pass_by(account, units, now):
            line.join(account, units, name, now)
            standing.add(name)
    for _ in range(200):
        line.begin_round(1.0)
        standing -= set(line.admit(now))
    assert not standing
    assert line.empty
