"""Sums of token counts in which unknown is not zero."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.model.usage import NO_USAGE, UNKNOWN_USAGE, Usage

COUNTS = [name for name in Usage.__struct_fields__ if name != "source"]
counts = st.none() | st.integers(0, 1 << 40)
usages = st.builds(
    Usage,
    **dict.fromkeys(COUNTS, counts),
    source=st.sampled_from(["reported", "estimated", "unknown"]),
)


def counted(usage: Usage) -> dict[str, int]:
    return {name: count for name, count in msgspec.to_builtins(usage).items() if name != "source"}


@settings(max_examples=100)
@given(usages, usages)
def test_the_order_of_a_sum_does_not_matter(a: Usage, b: Usage) -> None:
    assert a + b == b + a


@settings(max_examples=100)
@given(usages, usages, usages)
def test_the_grouping_of_a_sum_does_not_matter_for_the_counts(a: Usage, b: Usage, c: Usage) -> None:
    assert counted((a + b) + c) == counted(a + (b + c))


@settings(max_examples=100)
@given(st.lists(usages | st.just(UNKNOWN_USAGE), max_size=6))
def test_the_total_of_many_is_the_sum_of_them(many: list[Usage]) -> None:
    assert counted(Usage.total(many)) == counted(sum(many, Usage()))
    assert Usage.total(many).source in {usage.source for usage in many} | {"unknown"}


@settings(max_examples=50)
@given(usages)
def test_adding_nothing_changes_no_count(usage: Usage) -> None:
    assert counted(usage + Usage()) == counted(usage)


@settings(max_examples=50)
@given(usages, usages)
def test_a_count_is_unknown_only_where_both_sides_do_not_know_it(a: Usage, b: Usage) -> None:
    for name in COUNTS:
        known = [part for part in (getattr(a, name), getattr(b, name)) if part is not None]
        assert getattr(a + b, name) == (sum(known) if known else None)


def test_a_sum_is_as_sure_as_its_less_sure_part() -> None:
    reported = Usage(input_tokens=1, source="reported")
    estimated = Usage(input_tokens=1, source="estimated")
    assert (reported + reported).source == "reported"
    assert (reported + estimated).source == (estimated + reported).source == "estimated"
    assert (reported + Usage()).source == "reported"
    assert (Usage() + Usage()).source == "unknown"


def test_cached_input_counts_in_the_total_alone() -> None:
    usage = Usage(input_tokens=1, cache_creation_input_tokens=10, cache_read_input_tokens=100, output_tokens=1000)
    assert (usage.input_tokens, usage.total_input_tokens) == (1, 111)
    assert Usage(cache_read_input_tokens=5).total_input_tokens == 5
    assert Usage(output_tokens=5).total_input_tokens is None


def test_the_share_of_a_turn_is_unknown_after_an_unknown_total() -> None:
    total = Usage(input_tokens=30, output_tokens=5, source="reported")
    assert total.since(Usage(input_tokens=10, output_tokens=2, source="reported")).input_tokens == 20
    assert total.since(NO_USAGE) == total
    for unknown in (None, Usage()):
        assert total.since(unknown) == Usage()


def test_a_total_that_has_fallen_was_begun_anew() -> None:
    total = Usage(input_tokens=3, output_tokens=50, source="reported")
    assert total.since(Usage(input_tokens=10, output_tokens=2, source="reported")) == total
