"""Answers by a JSON Schema: as a tool where an API has no field for it, and what its strict mode takes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["STRUCTURED_TOOL", "is_strict", "tool_of"]

STRUCTURED_TOOL = "StructuredOutput"
"""The tool whose call is the answer. claude 2.1.330 has one of the same name."""


def tool_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tool that takes the answer."""
    return {
        "name": STRUCTURED_TOOL,
        "description": "Give the final answer. Call this once, when the answer is complete.",
        "input_schema": dict(schema),
    }


def is_strict(schema: Any) -> bool:
    """Tell whether OpenAI's strict mode takes a schema: each object names all its fields as required and allows no others."""
    if isinstance(schema, list):
        return all(is_strict(part) for part in schema)
    if not isinstance(schema, Mapping):
        return True
    if "properties" in schema or schema.get("type") == "object":
        names = set(schema.get("properties") or {})
        if schema.get("additionalProperties") is not False or set(schema.get("required") or ()) != names:
            return False
    return all(is_strict(part) for part in schema.values())
