"""Prices of answers by the list of genai-prices (0.2.3), for APIs that report no cost.

The worker prices each answer separately, because some models charge more per token for long prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def price_of(model: str, usage: Mapping[str, Any], url: str) -> float | None:
    """Return US dollars for one answer's usage; None for an unknown model, or without the package."""
    try:
        import genai_prices  # 0.2 s
    except ImportError:
        return None
    read, written = (int(usage.get(f"cache_{kind}_input_tokens") or 0) for kind in ("read", "creation"))
    tokens = genai_prices.Usage(
        input_tokens=int(usage.get("input_tokens") or 0) + read + written,
        cache_read_tokens=read,
        cache_write_tokens=written,
        output_tokens=int(usage.get("output_tokens") or 0),
    )
    for place in (url, None):
        try:
            return float(genai_prices.calc_price(tokens, model, provider_api_url=place).total_price)
        except (LookupError, ValueError):
            continue
    return None
