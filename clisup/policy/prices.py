"""Prices of tokens by the model's name, for turns whose CLI reports tokens and no cost. Pure.

The list itself is data (`prices.toml`, read by `clisup.host.config_file`). The configuration's `[prices."PATTERN"]`
tables take precedence. A model without a matching pattern has no price, and its turns have no cost: unknown is not
zero.
"""

# Not `from __future__ import annotations`: pydantic would compile and evaluate each annotation at every start.

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from clisup.model.usage import Usage

_PER = 1_000_000
_VENDOR = re.compile(r"^(?:[a-z0-9-]+\.)*anthropic\.(?=claude)|^.*/")
_SNAPSHOT = re.compile(r"(?:\[1m\])$|[-@](?:20\d{6}|20\d\d-\d\d-\d\d|latest)$|-v\d+(?::\d+)?$")

_Rows = list[tuple[str, "Price"]]
Usd = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class Price(BaseModel):
    """US dollars per million tokens.

    Without their own price, tokens read from or written to the cache cost as other input.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    input: Usd
    output: Usd
    cache_read: Usd | None = None
    cache_write: Usd | None = None

    def of(self, usage: Usage) -> float | None:
        """Return the cost of this usage, or None without input and output."""
        if usage.total_tokens is None:
            return None
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        parts = (
            (usage.input_tokens, self.input),
            (usage.cache_read_input_tokens, read),
            (usage.cache_creation_input_tokens, write),
            (usage.output_tokens, self.output),
        )
        return sum((tokens or 0) * price for tokens, price in parts) / _PER


class PriceTable:
    """Patterns (`*`, `?`, `[...]`) of model names and their prices.

    The user's own prices come before the built-in prices. Among matching patterns the longest wins. The table looks up a
    name unchanged and as `plain_name`, in lower case.
    """

    def __init__(self, own: Mapping[str, Price], built_in: Mapping[str, Price]) -> None:
        self._groups = [sorted(prices.items(), key=lambda row: -len(row[0])) for prices in (own, built_in)]
        self._known: dict[str, Price | None] = {}

    def of(self, model: str | None, *, own: bool = False) -> Price | None:
        """Return the price of a model, or None for an unknown price. With `own`, look only at the configuration."""
        if not model:
            return None
        if own:
            return self._find(model, self._groups[:1])
        if model not in self._known:
            if len(self._known) >= 256:  # the names come from CLIs, so their number has no limit
                self._known.clear()
            self._known[model] = self._find(model, self._groups)
        return self._known[model]

    def _find(self, model: str, groups: Iterable[_Rows]) -> Price | None:
        names = {model.lower(), plain_name(model)}
        for rows in groups:
            for pattern, price in rows:
                if any(fnmatchcase(name, pattern.lower()) for name in names):
                    return price
        return None

    def cost(self, spent: Mapping[str, Usage], *, own: bool = False) -> float | None:
        """Return the cost of usage by model, with `own` as in `of`.

        Return None without usage, or if a price is unknown.
        """
        total = None
        for model, usage in spent.items():
            price = self.of(model, own=own)
            cost = price.of(usage) if price is not None else None
            if cost is None and usage.total_tokens:
                return None
            total = (total or 0.0) + (cost or 0.0)
        return total


def plain_name(model: str) -> str:
    """Return the name without vendor, date and window: `us.anthropic.claude-opus-5-5-20260922-v1:0` ->
    `claude-opus-5-5`.
    """
    name = _VENDOR.sub("", model.lower())
    while (shorter := _SNAPSHOT.sub("", name)) != name:
        name = shorter
    return name
