"""What a running turn has used so far, by model, from the events that tell it: part of the ledger's fold. Pure.

A message says its model when it begins and its usage at its end (claude); others tell the usage of each model call by itself
(codex), and then it was the session's model.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from clisup.core.usage import Usage

__all__ = ["MODELS_A_TURN", "Spending"]

MODELS_A_TURN = 64
"""Whose usage is kept apart; that of further ones is of an unknown model."""


class Spending(Struct):
    """Of one turn. `spent` is usage by model (empty: not known which); `speaking` the model of each open message, by its parent."""

    spent: dict[str, dict[str, Any]] = field(default_factory=dict)
    speaking: dict[str, str] = field(default_factory=dict)

    @property
    def by_model(self) -> dict[str, Usage]:
        """The usage of each model."""
        return {model: Usage.model_validate(counts) for model, counts in self.spent.items()}

    @property
    def usage(self) -> Usage:
        """That of all models together."""
        return sum(self.by_model.values(), Usage())

    def message_begins(self, event: dict[str, Any]) -> None:
        """Fold a `message_start`."""
        if event.get("model") and len(self.speaking) < MODELS_A_TURN:
            self.speaking[event.get("parent_tool_use_id") or ""] = event["model"]

    def usage_told(self, event: dict[str, Any], model: str | None) -> None:
        """Fold a `message_stop` or `usage`; `model` is the session's."""
        model = self.speaking.pop(event.get("parent_tool_use_id") or "", None) or model or ""
        if not (told := event.get("usage")):
            return
        if model not in self.spent and len(self.spent) >= MODELS_A_TURN:
            model = ""
        whole = Usage.model_validate(self.spent.get(model, {})) + Usage.model_validate(told)
        self.spent[model] = whole.model_dump(exclude_none=True)
