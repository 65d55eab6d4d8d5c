"""What a turn has used: tokens of all its answers, and their cost. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Spending"]

_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


class Spending:
    """Counts of one turn. `price` gives an answer's cost where the API tells none, or None."""

    def __init__(self, price: Callable[[str, Mapping[str, Any]], float | None]) -> None:
        self._price = price
        self._models: dict[str, dict[str, Any]] = {}
        self.answers = 0
        self.estimated = False
        """Whether a cost is by a list of prices, and not by the provider's own words."""

    def add(self, model: str, usage: Mapping[str, Any], cost_usd: float | None) -> None:
        """Count one answer, also one that was cut: the provider bills what it has sent."""
        if not any(usage.get(name) for name in _COUNTS):
            return
        counts = self._models.setdefault(model, {**dict.fromkeys(_COUNTS, 0), "thinking": 0, "cost": 0.0})
        for name in _COUNTS:
            counts[name] += int(usage.get(name) or 0)
        counts["thinking"] += int((usage.get("output_tokens_details") or {}).get("thinking_tokens") or 0)
        if cost_usd is None:
            cost_usd, self.estimated = self._price(model, usage), True
        counts["cost"] = None if cost_usd is None or counts["cost"] is None else counts["cost"] + cost_usd

    def usage(self) -> dict[str, int]:
        """Return the tokens of all answers."""
        return {name: sum(counts[name] for counts in self._models.values()) for name in _COUNTS}

    def fields(self) -> dict[str, Any]:
        """Return what claude's result says of it by model; no cost where it is not known."""
        since = {model: _told(counts) for model, counts in self._models.items()}
        source = {"cost_source": "estimated"} if self.estimated else {}
        return {"usage": self.usage(), "model_usage_since_last_result": since, **source}


def _told(counts: Mapping[str, Any]) -> dict[str, Any]:
    told = {
        "inputTokens": counts["input_tokens"], "outputTokens": counts["output_tokens"],
        "cacheReadInputTokens": counts["cache_read_input_tokens"],
        "cacheCreationInputTokens": counts["cache_creation_input_tokens"],
    }  # fmt: skip
    if counts["thinking"]:
        told["thinkingTokens"] = counts["thinking"]
    return told if counts["cost"] is None else {**told, "costUSD": round(counts["cost"], 9)}
