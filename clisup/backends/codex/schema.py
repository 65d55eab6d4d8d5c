"""JSON Schema in the form of codex's API. Pure.

codex 0.169.0 sends an output schema as `strict`. In strict schemas the API wants every property required, no other properties and
no defaults. A value that fits the new schema also fits the caller's schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["strict_schema"]

_NAMED = ("properties", "$defs", "definitions")  # names to schemas
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "not", "additionalProperties")


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with every property required, no others allowed, and without defaults.

    An object without named properties, or with a rule for others, stays unchanged: the API then accepts or refuses it.
    """
    made = {name: _part(name, value) for name, value in schema.items() if name != "default"}
    properties = made.get("properties")
    if isinstance(properties, dict) and made.get("additionalProperties", True) is True:
        made["additionalProperties"] = False
    if isinstance(properties, dict):
        made["required"] = list(properties)
    return made


def _part(name: str, value: Any) -> Any:
    if name in _NAMED and isinstance(value, dict):
        return {key: _sub(part) for key, part in value.items()}
    if name in _LISTED and isinstance(value, list):
        return [_sub(part) for part in value]
    return _sub(value) if name in _SINGLE else value


def _sub(schema: Any) -> Any:
    return strict_schema(schema) if isinstance(schema, dict) else schema
