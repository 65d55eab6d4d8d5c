"""Usage of a running turn so far, by model, from the events that report it. Pure.

For finished turns only the sums count, and the ledger folds them from the turns' ends. There are two of these events
for each message, so a start reads them only for the running turn. A message names its model when it begins and its
usage at its end (claude). Other CLIs report the usage of each model call separately (codex), and it counts for the
session's model.
"""

from __future__ import annotations

from msgspec import Struct, field

from clisup.model.structs import JsonObject
from clisup.model.usage import COUNTS, Usage

SPENDING = frozenset({"message_start", "message_stop", "usage"})
"""Types of events that report usage."""

MODELS_A_TURN = 64
"""Limit of models with separate usage. The usage of further models counts for an unknown model."""


class Spending(Struct):
    """Spending of one turn.

    `spent` is usage by model (empty: unknown); `speaking` the model of each open message, by its parent.
    """

    spent: dict[str, dict[str, int]] = field(default_factory=dict)
    speaking: dict[str, str] = field(default_factory=dict)

    @property
    def by_model(self) -> dict[str, Usage]:
        """Return the usage of each model. A count that no call has reported stays unknown."""
        return {model: Usage(**counts, source="reported") for model, counts in self.spent.items()}

    @property
    def usage(self) -> Usage:
        """Return the usage of all models together."""
        return sum(self.by_model.values(), Usage())

    def add(self, event: JsonObject, model: str | None) -> None:
        """Fold an event of `SPENDING`; `model` is the session's."""
        parent = event.get("parent_tool_use_id") or ""
        if event["type"] == "message_start":
            if event.get("model") and len(self.speaking) < MODELS_A_TURN:
                self.speaking[parent] = event["model"]
            return
        model = self.speaking.pop(parent, None) or model or ""
        if not (usage := event.get("usage")):
            return
        if model not in self.spent and len(self.spent) >= MODELS_A_TURN:
            model = ""
        counts = self.spent.setdefault(model, {})
        for name in COUNTS:
            if (count := usage.get(name)) is not None:
                counts[name] = counts.get(name, 0) + count
