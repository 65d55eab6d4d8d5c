"""Check of what an adapter class declares, before its first use: a plug-in's author gets all faults at once. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from clisup.backends.base import TOKENS, Adapter, Capabilities
from clisup.backends.errors import ErrorRule
from clisup.errors import ConfigurationError
from clisup.model.events import EVENT_TYPES
from clisup.policy.versions import in_range

__all__ = ["REQUIRED_ATTRIBUTES", "REQUIRED_METHODS", "declaration_faults"]

REQUIRED_ATTRIBUTES: Mapping[str, Any] = {
    "kind": str,
    "lists": str,
    "default_command": tuple[str, ...],
    "default_versions": str,
    "version_args": tuple[str, ...],
    "capabilities": Capabilities,
    "errors": tuple[ErrorRule, ...],
}
"""Attributes of `Adapter` without a default, with their types."""
REQUIRED_METHODS = tuple(sorted(Adapter.__abstractmethods__))


def declaration_faults(adapter: type[Adapter]) -> list[str]:
    """Return what is missing or wrong in the declarations of an adapter class, or nothing."""
    missing = [name for name in REQUIRED_ATTRIBUTES if not hasattr(adapter, name)]
    missing += [f"{name}()" for name in REQUIRED_METHODS if name in adapter.__abstractmethods__]
    found = [f"{name} is missing" for name in missing]
    for name, wanted in REQUIRED_ATTRIBUTES.items():
        if name not in missing and (why := _misfit(getattr(adapter, name), wanted)):
            found += [f"{name} is wrong: {why}"]
    return found or [*_wrong_names(adapter.capabilities), *_wrong_patterns(adapter)]


def _misfit(value: object, wanted: object) -> str | None:
    """Return why a value is not of the wanted type, or None."""
    try:
        if wanted is Capabilities and not isinstance(value, Capabilities):
            return "it is no Capabilities"
        msgspec.convert(msgspec.to_builtins(value), wanted)
    except (TypeError, msgspec.ValidationError) as error:
        return str(error)
    return None


def _wrong_names(can: Capabilities) -> list[str]:
    unknown = {"events": set(can.events) - set(EVENT_TYPES), "tokens": set(can.tokens) - set(TOKENS)}
    return [
        f"capabilities.{field} has unknown names: {', '.join(sorted(names))}"
        for field, names in unknown.items()
        if names
    ]


def _wrong_patterns(adapter: type[Adapter]) -> list[str]:
    patterns = [("version_pattern", adapter.version_pattern)]
    patterns += [("errors", rule.says) for rule in adapter.errors if rule.where in ("text", "stderr")]
    found = []
    for name, pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            found.append(f"{name} has the pattern {pattern!r}, which is wrong: {error}")
    try:
        in_range("1", adapter.default_versions)
    except ConfigurationError as error:
        found.append(f"default_versions is wrong: {error}")
    return found
