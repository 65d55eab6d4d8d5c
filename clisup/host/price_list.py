"""Built-in list of prices: `prices.toml` beside `clisup.policy.prices`, read when a cost is first estimated."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path

from clisup.policy import prices
from clisup.policy.prices import Price

__all__ = ["PRICE_LIST", "built_in_prices"]

PRICE_LIST = Path(prices.__file__).with_name("prices.toml")


@functools.cache
def built_in_prices() -> Mapping[str, Price]:
    """Return the prices by pattern.

    The file is part of the package. An error in it is a fault of clisup itself and is raised unchanged.
    """
    raw = tomllib.loads(PRICE_LIST.read_text(encoding="utf-8"))
    return {pattern: Price.model_validate(price) for pattern, price in raw.items()}
