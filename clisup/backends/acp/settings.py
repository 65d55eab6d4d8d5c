"""Model and mode of an ACP session: the offers of an agent, and the request that chooses one.

Agents use two ways: `configOptions` with session/set_config_option (the schema of SDK 2.4.0), and the older `modes` with
session/set_mode (still in the schema) and `models` with session/set_model (removed; gemini 0.61.0 has only this one).
"""

from __future__ import annotations

from typing import Any, Literal, Self

from msgspec import Struct, field
from msgspec.structs import replace

from clisup.backends.frames import Frame, first_str, get_dict, get_dicts, get_str
from clisup.model.events import TurnError, TurnErrorKind

__all__ = ["Offers", "Setting"]

_LISTED = 20  # names in a message


class Setting(Struct, frozen=True):
    """Choice of one value. The value is set once the agent has answered `method` (empty if already set). Or the error."""

    value: str | None
    method: str = ""
    params: Frame = field(default_factory=dict)
    error: TurnError | None = None


class _Offer(Struct, frozen=True):
    """Values of one setting, each with its display name."""

    current: str | None
    values: dict[str, str]
    method: str
    name: str  # of the parameter that takes the value
    extra: Frame = field(default_factory=dict)


class Offers(Struct, frozen=True):
    """Models and permission modes that an agent offers."""

    models: _Offer | None
    modes: _Offer | None

    @classmethod
    def of(cls, opened: Frame) -> Self:
        """Return the offers in the answer to session/new, load or resume."""
        models = _option(opened, "model") or _listed(
            get_dict(opened, "models"), "currentModelId", "availableModels", "session/set_model", "modelId"
        )
        # session/set_mode goes first: every agent with modes takes it.
        modes = _listed(
            get_dict(opened, "modes"), "currentModeId", "availableModes", "session/set_mode", "modeId"
        ) or _option(opened, "mode")
        return cls(models, modes)

    def model(self, wanted: str | None) -> Setting:
        """Return the choice of the model for the first prompt of a process."""
        return _choose("model", wanted, self.models, "model_not_found")

    def mode(self, wanted: str | None) -> Setting:
        """Return the choice of the permission mode for the first prompt of a process."""
        return _choose("permission mode", wanted, self.modes, "invalid_request")

    def change(self, name: Literal["model", "permission_mode"], value: str) -> Setting:
        """Return a later choice. The value is set in any case, because the agent may have changed its setting meanwhile."""
        if name == "model":
            return _choose("model", value, self.models and replace(self.models, current=None), "model_not_found")
        return _choose("permission mode", value, self.modes and replace(self.modes, current=None), "invalid_request")


def _choose(what: str, wanted: str | None, offer: _Offer | None, kind: TurnErrorKind) -> Setting:
    if wanted is None:
        return Setting(offer.current if offer else None)
    if offer is None:
        message = (
            f"cannot use {what} {wanted!r}, because the agent lets no {what} be chosen; open a session without one"
        )
        return Setting(None, error=TurnError(kind="invalid_request", message=message))
    # By the display name, too: qwen 0.24.4 calls the model `fake` by the value `$runtime|openai|fake(openai)`.
    named = [value for value, name in offer.values.items() if name == wanted]
    value = wanted if wanted in (offer.current, *offer.values) or len(named) != 1 else named[0]
    if value == offer.current:
        return Setting(value)
    if value not in offer.values:
        listed = ", ".join([*offer.values][:_LISTED]) + (", ..." if len(offer.values) > _LISTED else "")
        message = f"cannot use {what} {wanted!r}, because the agent has no such {what}; it has: {listed or 'none'}"
        return Setting(None, error=TurnError(kind=kind, message=message))
    return Setting(value, offer.method, {**offer.extra, offer.name: value})


def _listed(state: Frame, current: str, listed: str, method: str, name: str) -> _Offer | None:
    items = state.get(listed)
    if not isinstance(items, list):
        return None
    return _Offer(get_str(state, current), _named(items, "id" if name == "modeId" else name), method, name)


def _option(opened: Frame, category: str) -> _Offer | None:
    """Return the selector of this category, or of this id if the agent names no category.

    The id decides between selectors of one category: cline 3.0.65 has `provider` and `model` in the category `model`.
    """
    found = [
        option
        for option in get_dicts(opened, "configOptions")
        if option.get("type") == "select" and first_str(option, "category", "id") == category
    ]
    if not found:
        return None
    option = next((option for option in found if option.get("id") == category), found[0])
    return _Offer(
        get_str(option, "currentValue"),
        _values(option.get("options")),
        "session/set_config_option",
        "value",
        {"configId": get_str(option, "id")},
    )


def _values(options: Any) -> dict[str, str]:
    """Return the values of a selector, which may stand in groups, one level deep."""
    values: dict[str, str] = {}
    for option in options if isinstance(options, list) else ():
        inner = option.get("options") if isinstance(option, dict) else None
        values |= _named(inner if isinstance(inner, list) else [option], "value")
    return values


def _named(items: list[Any], key: str) -> dict[str, str]:
    """Return the value and the name of each item."""
    return {
        value: get_str(item, "name") or value
        for item in items
        if isinstance(item, dict) and (value := get_str(item, key))
    }
