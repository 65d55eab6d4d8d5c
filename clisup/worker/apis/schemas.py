"""Answers by a JSON Schema: the tool for APIs without a field for schemas, and the limits of strict mode. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clisup.worker import JsonObject

STRUCTURED_TOOL = "StructuredOutput"
"""Name of the tool whose call is the answer, as in claude 2.1.330."""


def schema_tool(schema: Mapping[str, Any]) -> JsonObject:
    """Return the tool that takes the answer."""
    return {
        "name": STRUCTURED_TOOL,
        "description": "Give the final answer. Call this once, when the answer is complete.",
        "input_schema": dict(schema),
    }


def is_strict(schema: Any) -> bool:
    """Return whether OpenAI's strict mode accepts a schema: objects require all their fields and allow no others."""
    if isinstance(schema, list):
        return all(is_strict(part) for part in schema)
    if not isinstance(schema, Mapping):
        return True
    if "properties" in schema or schema.get("type") == "object":
        names = set(schema.get("properties") or {})
        if schema.get("additionalProperties") is not False or set(schema.get("required") or ()) != names:
            return False
    return all(is_strict(part) for part in schema.values())
