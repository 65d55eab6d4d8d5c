"""JSON Schemas for models to read: pydantic's own, without the titles that say the name once more. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

__all__ = ["plain_schema", "schema_of"]

_BY_NAME = frozenset({"properties", "$defs", "patternProperties", "dependentSchemas"})  # name -> schema
_VALUES = frozenset({"default", "const", "enum", "examples", "required"})  # no schemas in there


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of what `model` takes, by alias."""
    return plain_schema(model.model_json_schema(by_alias=True))


def plain_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema without `title`s. A property that is called title stays."""
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "title" and isinstance(value, str):
            continue
        if key in _BY_NAME and isinstance(value, dict):
            plain[key] = {name: _plain(part) for name, part in value.items()}
        else:
            plain[key] = value if key in _VALUES else _plain(value)
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return plain_schema(value)
    return [_plain(part) for part in value] if isinstance(value, list) else value
