"""Verdict and plan of `make fleet`: what counts as a miss, and how often each kind of fault comes."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.fleet_chaos.faults import SHARES, plan
from tests.fleet_chaos.figures import Figure, figure_table, last_line, misses, quantile


@pytest.mark.parametrize(
    ("value", "limit", "missed"),
    [(5.0, 5, False), (5.1, 5, True), (None, 5, True), (None, None, False), (99.0, None, False), (1, 0, True)],
)
def test_a_figure_misses_its_target(value: float | None, limit: float | None, missed: bool) -> None:
    figure = Figure("lag", value, limit, "ms")
    assert misses([figure]) == ([figure] if missed else [])
    assert ("MISSED" in figure_table([figure])) is missed


@pytest.mark.parametrize(
    ("value", "limit", "fault"), [(1, 0, True), (0, 0, False), (None, 5, True), (9.0, 5, False), (9.0, None, False)]
)
def test_only_a_lost_thing_or_a_missing_figure_fails_the_run(
    value: float | None, limit: float | None, fault: bool
) -> None:
    assert Figure("lag", value, limit).is_fault is fault


def test_the_last_line_says_what_was_lost() -> None:
    figures = [Figure("lost", 1, 0), Figure("doubled", 0, 0), Figure("differing", 0, 0), Figure("jobs run twice", 2, 0)]
    assert last_line(200, figures) == "kills 200 lost 1 doubled 0 differing 0 jobs run twice 2 missed 2"


def test_quantiles_are_values_that_were_measured() -> None:
    assert quantile([], 0.5) is None
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile(range(100), 0.99) == 99


@pytest.mark.parametrize("kills", [1, 7, 200])
def test_a_plan_has_as_many_faults_as_asked_for_and_each_kind_its_share(kills: int) -> None:
    faults = plan(kills, random.Random(1))
    assert len(faults) == kills
    assert kills < 200 or Counter(faults) == {kind: 2 * share for kind, share in SHARES.items()}
