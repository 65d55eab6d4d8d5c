"""What tokens cost: by the longest pattern, the user's own first, and not at all where the model is not known."""

from __future__ import annotations

from typing import Any

import pytest

from clisup.config.model import parse_config
from clisup.errors import ConfigurationError
from clisup.host.config_file import PRICE_LIST, built_in_prices
from clisup.model.usage import Usage
from clisup.policy.prices import Price, PriceTable, plain_name

A, B, C = (Price(input=price, output=10 * price) for price in (1.0, 2.0, 3.0))


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("claude-opus-5-5", "claude-opus-5-5"),
        ("claude-opus-5-5[1m]", "claude-opus-5-5"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5"),
        ("anthropic.claude-opus-4-5-v1", "claude-opus-4-5"),
        ("anthropic/claude-haiku-4-5", "claude-haiku-4-5"),
        ("openai/GPT-6.1-sol", "gpt-6.1-sol"),
        ("gpt-5.2-2025-12-11", "gpt-5.2"),
        ("claude-3-5-haiku-latest", "claude-3-5-haiku"),
    ],
)
def test_a_name_is_looked_up_without_vendor_date_and_window(name: str, plain: str) -> None:
    assert plain_name(name) == plain


def test_the_longest_pattern_wins_and_the_users_own_go_first() -> None:
    table = PriceTable({"gpt-*": C}, {"gpt-6": A, "gpt-6*": B, "claude-*": B, "claude-opus-*": A})
    assert table.of("gpt-6") is C
    assert table.of("claude-opus-9") is A
    assert table.of("claude-sonnet-9") is B
    assert PriceTable({}, {"gpt-6": A, "gpt-6*": B}).of("gpt-6-2026-01-01") is B  # as it is, before it is made plain
    assert table.of("llama") is table.of("") is table.of(None) is None


def test_the_parts_of_usage_cost_what_each_costs() -> None:
    price = Price(input=4.0, output=20.0, cache_read=0.5, cache_write=5.0)
    counts = {"input_tokens": 1_000_000, "output_tokens": 100_000, "reasoning_tokens": 50_000}
    usage = Usage(**counts, cache_read_input_tokens=2_000_000, cache_creation_input_tokens=1_000_000)
    assert price.of(usage) == pytest.approx(4.0 + 2.0 + 1.0 + 5.0)


def test_cached_tokens_cost_as_others_where_nothing_is_said() -> None:
    usage = Usage(input_tokens=0, cache_read_input_tokens=1_000_000, cache_creation_input_tokens=1_000_000)
    assert A.of(usage) == 2.0


def test_unknown_is_not_zero() -> None:
    table = PriceTable({}, {"known": A})
    some = Usage(input_tokens=5, output_tokens=5)
    assert A.of(Usage()) is None
    assert table.cost({}) is None
    assert table.cost({"unknown": some}) is None
    assert table.cost({"known": some, "unknown": some}) is None
    assert table.cost({"known": some, "unknown": Usage(input_tokens=0)}) == pytest.approx(55e-6)
    assert table.cost({"known": Usage(input_tokens=0)}) == 0.0


# -- the list ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "input_", "output"),
    [
        ("claude-opus-5-5", 4, 20),
        ("claude-opus-5-5[1m]", 4, 20),
        ("claude-sonnet-5-5", 2, 10),
        ("claude-haiku-4-5-20251001", 1, 5),
        ("claude-opus-4-1-20250805", 15, 75),
        ("claude-opus-4-20250514", 15, 75),
        ("claude-sonnet-4-20250514", 3, 15),
        ("gpt-6.1-sol", 2, 10),
        ("gpt-5.2", 1.75, 14),
    ],
)
def test_the_list_has_the_models_that_the_clis_use(model: str, input_: float, output: float) -> None:
    price = PriceTable({}, built_in_prices()).of(model)
    assert price is not None and (price.input, price.output) == (input_, output)


@pytest.mark.parametrize("model", ["claude-opus-6", "claude-opus-5-6", "gpt-6.3-sol", "gpt-60", "demo-1", "fake-coder"])
def test_a_model_that_is_not_in_the_list_is_not_taken_for_one_that_is(model: str) -> None:
    assert PriceTable({}, built_in_prices()).of(model) is None


def test_every_price_of_the_list_is_one_and_its_sources_are_named() -> None:
    for pattern, price in built_in_prices().items():
        assert 0 < price.input < price.output, pattern
        assert price.cache_read is not None and price.cache_read < price.input, pattern
        assert price.cache_write is None or price.cache_write >= price.input, pattern
    text = PRICE_LIST.read_text()
    assert "https://platform.claude.com/" in text and "https://developers.openai.com/" in text
    assert "Looked up 20" in text


# -- the configuration ------------------------------------------------------------------------------------------------


def test_the_configuration_sets_prices_by_pattern() -> None:
    config = parse_config({"prices": {"gpt-6.1-*": {"input": 1, "output": 2.5, "cache_read": 0.0}}})
    assert config.prices["gpt-6.1-*"] == Price(input=1.0, output=2.5, cache_read=0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"m": {"input": 1}},
        {"m": {"input": -1, "output": 1}},
        {"m": {"input": 1, "output": 1, "cached": 1}},
        {"a\nb": {"input": 1, "output": 1}},
        {'a"b': {"input": 1, "output": 1}},
    ],
)
def test_a_price_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError):
        parse_config({"prices": wrong})


def test_a_misspelt_key_of_a_price_names_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match="cache_read"):
        parse_config({"prices": {"m": {"input": 1, "output": 1, "cache_reads": 1}}})
