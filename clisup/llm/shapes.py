"""Values in answers: shapes that check them, and JSON in a text, without fences and the prose around it. Pure.

A `Shape` has the schema for the backend, always of an object, and checks answers as leniently as models write them. Numbers in
strings become numbers. A value that was asked for within an object may come without that object.

Only strict JSON counts, except for a comma before a closing bracket. Models often write such commas, and their meaning is clear.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from clisup.client.raw import JsonObject
from clisup.errors import UsageError
from clisup.llm.failures import usage_error
from clisup.stream_json.json_texts import json_values

MAX_PROBLEMS = 20
"""Most problems to report of one value, such as a list of a thousand wrong items."""

_BY_NAME = frozenset({"properties", "$defs", "patternProperties", "dependentSchemas"})  # name -> schema
_VALUES = frozenset({"default", "const", "enum", "examples", "required"})  # no schemas in there


def schema_of(model: type[BaseModel]) -> JsonObject:
    """Return the JSON Schema of a model's input, by alias."""
    return plain_schema(model.model_json_schema(by_alias=True))


def problems_of(
    error: ValidationError, *, whole: str, missing: str | None = None, at_most: int = MAX_PROBLEMS
) -> list[str]:
    """Return one line for each problem: the place in the value, and the expectation. The value itself is left out.

    `whole` names the value itself. `missing` replaces pydantic's words for a missing part.
    """
    return [
        f"{'.'.join(map(str, one['loc'])) or whole}: {missing if missing and one['type'] == 'missing' else one['msg']}"
        for one in error.errors(include_url=False, include_input=False)[:at_most]
    ]


class NamedOptions(BaseModel):
    """Base of options that a program gives by name. Raises `UsageError` for wrong ones."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **options: Any) -> None:
        try:
            super().__init__(**options)
        except ValidationError as error:
            name = type(self).__name__
            wrong = "; ".join(problems_of(error, whole=name))
            raise usage_error(f"wrong options of {name}: {wrong}") from None


def plain_schema(schema: JsonObject) -> JsonObject:
    """Return the schema without `title`s. A property named title stays."""
    plain: JsonObject = {}
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


C = TypeVar("C")
T = TypeVar("T")
_MAX_PROBLEMS = 8
"""Most problems to send back to a model. More of them do not help."""
_WHOLE = "the answer"


class Misfit(ValueError):
    """An answer does not fit. `problems` lists the places and reasons, for the model."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def first_fit(candidates: Iterable[C], read: Callable[[C], T], nothing: str) -> T:
    """Return the first candidate that `read` takes. Raises the first candidate's `Misfit`, or `nothing` without candidates."""
    first: Misfit | None = None
    for candidate in candidates:
        try:
            return read(candidate)
        except Misfit as misfit:
            first = first or misfit
    raise first or Misfit([nothing])


@dataclass(frozen=True, slots=True)
class Shape(Generic[T]):
    """Made by `of`. A `wrapped` value is no object itself: `schema` describes an object with the value as `value`."""

    schema: JsonObject
    wrapped: bool
    _check: Callable[[Any], T]

    @classmethod
    def of(cls, schema: type[T] | Mapping[str, Any]) -> Shape[T]:
        """Return the shape of a type that pydantic knows, or of a JSON Schema. Raises `UsageError` for others."""
        if isinstance(schema, Mapping):
            return cast("Shape[T]", _of_schema(dict(schema)))
        try:
            adapter: TypeAdapter[T] = TypeAdapter(schema)
            plain = plain_schema(adapter.json_schema(by_alias=True))
        except PydanticUserError as error:
            raise UsageError(f"pydantic has no JSON Schema for {schema!r}: {error.message.splitlines()[0]}") from None
        return _shape(plain, lambda value: _validated(adapter, value))

    def value_of(self, value: Any) -> T:
        """Return the value of a JSON value. Raises `Misfit`."""
        if self.wrapped and isinstance(value, dict) and set(value) == {"value"}:
            value = value["value"]
        return self._check(value)

    def value_in(self, text: str) -> T:
        """Return the first fitting value among the JSON of a text. Raises the likeliest value's `Misfit`."""
        return first_fit(json_values(text), self.value_of, "there is no JSON in the answer")


def _shape(schema: JsonObject, check: Callable[[Any], Any]) -> Shape[Any]:
    if schema.get("type") == "object":
        return Shape(schema, False, check)
    definitions: JsonObject = {name: schema.pop(name) for name in ("$defs", "definitions", "$schema") if name in schema}
    envelope = {"type": "object", "properties": {"value": schema}, "required": ["value"], "additionalProperties": False}
    return Shape({**envelope, **definitions}, True, check)


# -- pydantic


def _validated(adapter: TypeAdapter[T], value: Any) -> T:
    try:
        return adapter.validate_json(json.dumps(value))
    except ValidationError as error:
        raise Misfit(problems_of(error, whole=_WHOLE, at_most=_MAX_PROBLEMS)) from None


def _place(path: Any) -> str:
    return ".".join(str(part) for part in path) or _WHOLE


# -- JSON Schema


def _of_schema(schema: JsonObject) -> Shape[Any]:
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for

    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise UsageError(f"not a JSON Schema: {error.message} (at {_place(error.absolute_path)})") from None
    validator = kind(schema)

    def check(value: Any) -> Any:
        value = _coerced(value, schema)
        errors = sorted(validator.iter_errors(value), key=lambda error: list(map(str, error.absolute_path)))
        if errors:
            told = [f"{_place(error.absolute_path)}: {error.message[:500]}" for error in errors]
            raise Misfit(told[:_MAX_PROBLEMS])
        return value

    return _shape(dict(schema), check)


def _coerced(value: Any, schema: Any) -> Any:
    """Turn strings into the numbers and booleans of the schema, also in properties and items."""
    if not isinstance(schema, Mapping):
        return value
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        return {name: _coerced(part, properties.get(name)) for name, part in value.items()}
    if isinstance(value, list):
        return [_coerced(part, schema.get("items")) for part in value]
    if isinstance(value, str) and (spelled := _SPELLED.get(str(schema.get("type")))):
        try:
            found = json.loads(value.strip().lower())
        except ValueError:
            return value
        if isinstance(found, spelled) and (bool in spelled or not isinstance(found, bool)):
            return found
    return value


_SPELLED: dict[str, tuple[type, ...]] = {"integer": (int,), "number": (int, float), "boolean": (bool,)}
