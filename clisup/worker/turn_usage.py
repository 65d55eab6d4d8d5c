"""Tokens and cost of one turn. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from clisup.worker import JsonObject

_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


class TurnUsage:
    """Counters of one turn. `price` returns an answer's cost if the API reports none, or None."""

    def __init__(self, price: Callable[[str, Mapping[str, Any]], float | None]) -> None:
        self._price = price
        self._models: dict[str, JsonObject] = {}
        self._unreported: set[str] = set()  # models with an answer without usage
        self._estimated = False
        self.answers = 0

    def add(self, model: str, usage: Mapping[str, Any], cost_usd: float | None, *, answered: bool) -> None:
        """Count one request. The provider also bills an answer that was cut."""
        self.answers += answered
        if not any(usage.get(name) for name in _COUNTS):
            if answered:
                self._unreported.add(model)
            return
        counts = self._models.setdefault(model, {**dict.fromkeys(_COUNTS, 0), "thinking": 0, "cost": 0.0})
        for name in _COUNTS:
            counts[name] += int(usage.get(name) or 0)
        counts["thinking"] += int((usage.get("output_tokens_details") or {}).get("thinking_tokens") or 0)
        if cost_usd is None:
            cost_usd = self._price(model, usage)
            self._estimated = self._estimated or cost_usd is not None
        counts["cost"] = None if cost_usd is None or counts["cost"] is None else counts["cost"] + cost_usd

    def fields(self) -> JsonObject:
        """Return the usage fields of claude's result frame. An unknown count or cost is left out."""
        totals = {name: sum(counts[name] for counts in self._models.values()) for name in _COUNTS}
        by_model: JsonObject = {model: {} for model in self._unreported}
        for model, counts in self._models.items():
            by_model[model] = _model_usage(counts, with_cost=model not in self._unreported)
        source = {"cost_source": "estimated"} if self._estimated else {}
        return {"usage": totals, "model_usage_since_last_result": by_model, **source}


def _model_usage(counts: Mapping[str, Any], *, with_cost: bool) -> JsonObject:
    usage = {
        "inputTokens": counts["input_tokens"], "outputTokens": counts["output_tokens"],
        "cacheReadInputTokens": counts["cache_read_input_tokens"],
        "cacheCreationInputTokens": counts["cache_creation_input_tokens"],
    }  # fmt: skip
    if counts["thinking"]:
        usage["thinkingTokens"] = counts["thinking"]
    return {**usage, "costUSD": round(counts["cost"], 9)} if with_cost and counts["cost"] is not None else usage
