"""A JSON Schema as codex's API takes it. Pure.

codex 0.169.0 sends an output schema as `strict`, and there the API takes objects only that name each of their properties as
required and allow no others, without defaults. What fits the form that is made here fits the caller's schema, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["strict_schema"]

_NAMED = ("properties", "$defs", "definitions")  # names to schemas
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "not", "additionalProperties")


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with every property required, no others allowed, and without defaults.

    An object that names no properties, or says of itself which others it takes, stays as it is: the API says what it thinks of it.
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
