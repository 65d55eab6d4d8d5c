"""Which stamps of the wall clock are believed: those since it was last set."""

from __future__ import annotations

import pytest

from clisup.policy.wall_time import ClockLook, age_of, looked_again

HOUR, DAY = 3600.0, 86_400.0
YEAR = 365 * DAY
FIRST = ClockLook(wall=50 * YEAR, boot_id="one", uptime_s=100.0, synchronised=True, since=7.0)


def later(seconds: float, *, clock: float = 0.0, boot: str = "one", synchronised: bool | None = True) -> ClockLook:
    """A look so much later, with the wall clock set by `clock` meanwhile."""
    return looked_again(FIRST, ClockLook(FIRST.wall + seconds + clock, boot, FIRST.uptime_s + seconds, synchronised))


def test_without_an_earlier_look_every_stamp_is_believed() -> None:
    assert looked_again(None, ClockLook(5.0, "one", 1.0)).since == 0


@pytest.mark.parametrize("clock", [0.0, 1800.0, -1800.0])
@pytest.mark.parametrize("boot", ["one", "two"])
def test_a_clock_that_goes_steadily_keeps_its_stamps(clock: float, boot: str) -> None:
    assert later(30 * DAY, clock=clock, boot=boot).since == FIRST.since


@pytest.mark.fault(88)
@pytest.mark.parametrize("clock", [2 * HOUR, -2 * HOUR, 20 * YEAR, -20 * YEAR, 100 * YEAR])
def test_a_clock_that_was_set_while_the_machine_ran_makes_earlier_stamps_worthless(clock: float) -> None:
    look = later(60.0, clock=clock)
    assert look.since == look.wall and age_of(FIRST.wall, look) == 0


@pytest.mark.fault(88)
@pytest.mark.parametrize("clock", [-20 * YEAR, 20 * YEAR])
def test_a_boot_with_an_absurd_clock_makes_earlier_stamps_worthless(clock: float) -> None:
    look = later(60.0, clock=clock, boot="two")
    assert look.since == look.wall


def test_a_boot_that_brings_the_synchronisation_makes_earlier_stamps_worthless() -> None:
    before = ClockLook(10 * YEAR, "one", 100.0, synchronised=False)
    look = looked_again(before, ClockLook(10 * YEAR + 90 * DAY, "two", 100.0, synchronised=True))
    assert look.since == look.wall
    assert looked_again(before, ClockLook(10 * YEAR + 90 * DAY, "two", 100.0, synchronised=False)).since == 0


def test_an_age_counts_from_the_stamp_or_from_the_setting_of_the_clock_and_is_never_negative() -> None:
    look = ClockLook(1000.0, "one", 1.0, since=400.0)
    assert (age_of(900.0, look), age_of(100.0, look), age_of(2000.0, look)) == (100.0, 600.0, 0.0)
