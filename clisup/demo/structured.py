"""Answers by a schema (`--json-schema`): the demo makes up the plainest value that fits, for it understands no prompt."""

from __future__ import annotations

import json
from typing import Any

from clisup.demo.args import BadArguments
from clisup.demo.script import ECHO, Step
from clisup.demo.turn import Turn

__all__ = ["answer", "plainest", "read_schema"]

_DEPTH = 32
_LONGEST = 10_000  # characters of a string, items of a list, whatever a schema asks for
Json = dict[str, Any]


def read_schema(text: str | None) -> Json | None:
    """The value of the flag. Raises `BadArguments` in claude's words (2.1.329)."""
    if text is None:
        return None
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise BadArguments(f"Error: --json-schema is not valid JSON: {error}") from None
    if not isinstance(schema, dict):
        raise BadArguments("Error: --json-schema must be a JSON object")
    return schema


def answer(turn: Turn, steps: list[Step]) -> bool:
    """End the turn with a value; false where the script has the model give none, as a real one may."""
    if turn.schema is None or any(step.name == "unstructured" for step in steps):
        return False
    value = turn.structured
    if value is None:
        value = _given(steps) or plainest(turn.schema)
    turn.answer_by_schema(value)
    return True


def _given(steps: list[Step]) -> Json | None:
    """A prompt that is a JSON object is its own answer."""
    if len(steps) != 1 or steps[0].name != ECHO:
        return None
    try:
        value = json.loads(steps[0].args[0])
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def plainest(schema: Json) -> Any:
    """A value that fits the schema, as far as types, `$ref`, alternatives, bounds of numbers and lengths go; patterns are not heeded."""
    return _value(schema, schema, _DEPTH)


def _value(schema: Any, root: Json, depth: int) -> Any:
    if not isinstance(schema, dict) or depth <= 0:
        return None
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    for name in ("enum", "examples"):
        if isinstance(schema.get(name), list) and schema[name]:
            return schema[name][0]
    if isinstance(ref := schema.get("$ref"), str):
        return _value(_referred(ref, root), root, depth - 1)
    for name in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(name), list) and schema[name]:
            return _value(schema[name][0], root, depth - 1)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object" or (kind is None and "properties" in schema):
        fields = schema.get("properties") or {}
        return {name: _value(field, root, depth - 1) for name, field in fields.items()}
    if kind == "array":
        count = min(int(schema.get("minItems", 1)), _LONGEST)
        return [_value(schema.get("items", {}), root, depth - 1) for _ in range(count)]
    if kind == "string":
        text = "demo".ljust(min(int(schema.get("minLength", 0)), _LONGEST), ".")
        return text[: schema.get("maxLength", len(text))]
    return _number(schema) if kind in ("integer", "number") else False if kind == "boolean" else None


def _number(schema: Json) -> Any:
    if "exclusiveMinimum" in schema:
        return schema["exclusiveMinimum"] + 1
    least = schema.get("minimum", 0)
    return min(least, schema["maximum"]) if "maximum" in schema else least


def _referred(ref: str, root: Json) -> Any:
    """What `#/$defs/Name` names; an empty schema where it names nothing."""
    found: Any = root
    for part in ref.removeprefix("#").strip("/").split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~"), {}) if isinstance(found, dict) else {}
    return found
