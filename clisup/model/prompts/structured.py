"""Answers as a JSON value by a schema: the schema that a client may ask for, and the reader of an answer in text.

Pure.
"""

# Not `from __future__ import annotations`: pydantic would compile and evaluate each annotation at every start.

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator

MAX_SCHEMA_BYTES = 96 * 1024  # as `schema_text` writes it: one word of a command line holds 128 KiB


def schema_text(schema: Mapping[str, Any]) -> str:
    """Return the schema as compact JSON of ASCII alone."""
    return json.dumps(schema, separators=(",", ":"))


def object_in(text: str) -> dict[str, Any] | None:
    """Return the JSON object that is the whole answer, or None for any other answer."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _check_schema(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type") != "object":
        raise ValueError('an output_schema is the JSON Schema of an object: its "type" is "object"')
    if (size := len(schema_text(schema))) > MAX_SCHEMA_BYTES:
        raise ValueError(f"an output_schema has at most {MAX_SCHEMA_BYTES} bytes, and this one {size}")
    return schema


OutputSchema = Annotated[dict[str, Any], AfterValidator(_check_schema)]
