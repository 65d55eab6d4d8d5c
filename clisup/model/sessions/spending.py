"""What a running turn has used so far, by model, from the events that tell it. Pure.

Of turns that are over only the sums count, which the ledger folds from their ends: so at a start these events, of which there
are two for each message, are read of the running turn alone.

A message says its model when it begins and its usage at its end (claude); others tell the usage of each model call by itself
(codex), and then it was the session's model.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from clisup.model.usage import COUNTS, Usage

__all__ = ["MODELS_A_TURN", "SPENDING", "Spending"]

SPENDING = frozenset({"message_start", "message_stop", "usage"})
"""The events that tell it."""

MODELS_A_TURN = 64
"""Whose usage is kept apart; that of further ones is of an unknown model."""


class Spending(Struct):
    """Of one turn. `spent` is usage by model (empty: not known which); `speaking` the model of each open message, by its parent."""

    spent: dict[str, dict[str, int]] = field(default_factory=dict)
    speaking: dict[str, str] = field(default_factory=dict)

    @property
    def by_model(self) -> dict[str, Usage]:
        """The usage of each model. What no call has told stays unknown."""
        return {model: Usage(**counts, source="reported") for model, counts in self.spent.items()}

    @property
    def usage(self) -> Usage:
        """That of all models together."""
        return sum(self.by_model.values(), Usage())

    def see(self, event: dict[str, Any], model: str | None) -> None:
        """Fold an event of `SPENDING`; `model` is the session's."""
        parent = event.get("parent_tool_use_id") or ""
        if event["type"] == "message_start":
            if event.get("model") and len(self.speaking) < MODELS_A_TURN:
                self.speaking[parent] = event["model"]
            return
        model = self.speaking.pop(parent, None) or model or ""
        if not (told := event.get("usage")):
            return
        if model not in self.spent and len(self.spent) >= MODELS_A_TURN:
            model = ""
        counts = self.spent.setdefault(model, {})
        for name in COUNTS:
            if (count := told.get(name)) is not None:
                counts[name] = counts.get(name, 0) + count
