"""JSON Schemas for models to read, and what is wrong with a value in words: pydantic's own, made plain. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from clisup.errors import UsageError

__all__ = ["MAX_PROBLEMS", "Options", "plain_schema", "problems_of", "schema_of"]

MAX_PROBLEMS = 20
"""So many problems are told of one value: a list of a thousand wrong items is told by its first."""

_BY_NAME = frozenset({"properties", "$defs", "patternProperties", "dependentSchemas"})  # name -> schema
_VALUES = frozenset({"default", "const", "enum", "examples", "required"})  # no schemas in there


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of what `model` takes, by alias."""
    return plain_schema(model.model_json_schema(by_alias=True))


def problems_of(
    error: ValidationError, *, whole: str, missing: str | None = None, at_most: int = MAX_PROBLEMS
) -> list[str]:
    """What is wrong, a line each: where in the value (`whole`: in none of its parts), and what would be right.

    `missing` are the words for a part that is not there, else pydantic's. The value itself is not told.
    """
    return [
        f"{'.'.join(map(str, one['loc'])) or whole}: {missing if missing and one['type'] == 'missing' else one['msg']}"
        for one in error.errors(include_url=False, include_input=False)[:at_most]
    ]


class Options(BaseModel):
    """Options that a program gives by name. Raises `UsageError` for a wrong one, as the rest of the layer does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **options: Any) -> None:
        try:
            super().__init__(**options)
        except ValidationError as error:
            name = type(self).__name__
            wrong = "; ".join(problems_of(error, whole=name))
            raise UsageError(f"cannot make {name}, because {wrong}", kind="usage") from None


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
