"""The plan comes to every failpoint, however rarely one is met."""

from __future__ import annotations

import random
from collections.abc import Callable

from clisup.host.failpoints import FAILPOINTS, arm
from tests.chaos.plan import NOT_MET_HERE, Plan, Strike, placed


def played(names: list[str], lives: int, meets: Callable[[str], int]) -> Plan:
    plan = Plan(names, random.Random(1))
    for _ in range(lives):
        strike = plan.next()
        plan.result(strike, hit=bool(strike.failpoint) and strike.nth <= meets(strike.failpoint or ""))
    return plan


def test_all_failpoints_that_stand_in_the_code_are_on_the_plan() -> None:
    names = placed()
    assert set(names) <= set(FAILPOINTS) and {"intent.before", "journal.torn", "dead.before"} <= set(names)
    left_out = set(FAILPOINTS) - set(names)
    assert all(name.startswith(tuple(NOT_MET_HERE)) for name in left_out), left_out


def test_two_hundred_kills_strike_at_each_failpoint_and_at_random_moments() -> None:
    plan = played(placed(), 200, lambda _: 1000)
    assert plan.unstruck == [] and 50 <= 200 - sum(plan.struck.values()) <= 90


def test_a_failpoint_that_is_met_once_in_a_life_is_struck_all_the_same() -> None:
    plan = played(placed(), 300, lambda _: 1)
    assert plan.unstruck == []


def test_one_that_is_never_met_takes_no_more_lives_than_its_share() -> None:
    plan = played(["journal.before", "dead.before"], 300, lambda name: 9 * (name == "journal.before"))
    assert plan.unstruck == ["dead.before"] and plan.struck["journal.before"] > 50


def test_a_strike_is_something_that_a_daemon_can_be_armed_with() -> None:
    try:
        assert arm(Strike("journal.torn", nth=7).spec) == ["journal.torn"]
        assert arm(Strike(delay_s=1.0).spec) == []
        assert arm(Strike("segment.mend", nth=1).spec) == ["segment.after", "segment.mend"]
    finally:
        arm("")


def test_the_same_seed_gives_the_same_strikes() -> None:
    one, other = (Plan(placed(), random.Random(5)) for _ in range(2))
    assert [one.next() for _ in range(50)] == [other.next() for _ in range(50)]
