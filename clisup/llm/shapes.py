"""What an answer has to look like: a pydantic model, any type that pydantic knows, or a JSON Schema. Pure.

A `Shape` has the schema that a backend is asked with, which is always that of an object, and checks what comes back: leniently, as
models write. Numbers in strings become numbers; a value that was asked for in an envelope may come without it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from clisup.errors import UsageError
from clisup.llm.parsing import json_values
from clisup.llm.schemas import plain_schema, problems_of

__all__ = ["Misfit", "Shape"]

T = TypeVar("T")
_MAX_PROBLEMS = 8
"""More than these do not help a model to do it better."""
_WHOLE = "the answer"


class Misfit(ValueError):
    """The answer does not fit. `problems` say where and why, in words for the model."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Shape(Generic[T]):
    """Made by `of`. With `wrapped`, what is wanted is no object, and `schema` is that of an object with it as `value`."""

    schema: dict[str, Any]
    wrapped: bool
    _check: Callable[[Any], T]

    @classmethod
    def of(cls, schema: type[T] | Mapping[str, Any]) -> Shape[T]:
        """Of a type that pydantic knows, or of a JSON Schema. Raises `UsageError` where it is neither."""
        if isinstance(schema, Mapping):
            return cast("Shape[T]", _of_schema(dict(schema)))
        try:
            adapter: TypeAdapter[T] = TypeAdapter(schema)
            plain = plain_schema(adapter.json_schema(by_alias=True))
        except PydanticUserError as error:
            raise UsageError(
                f"cannot ask for {schema!r}, because pydantic makes no JSON Schema of it: {error.message.splitlines()[0]}"
            ) from None
        return _shape(plain, lambda value: _validated(adapter, value))

    def value_of(self, value: Any) -> T:
        """A JSON value as what was asked for. Raises `Misfit`."""
        if self.wrapped and isinstance(value, dict) and set(value) == {"value"}:
            value = value["value"]
        return self._check(value)

    def value_in(self, text: str) -> T:
        """The value that a text holds: of all the JSON in it, the first that fits. Raises `Misfit`, of the likeliest."""
        misfit: Misfit | None = None
        for value in json_values(text):
            try:
                return self.value_of(value)
            except Misfit as error:
                misfit = misfit or error
        raise misfit or Misfit(("there is no JSON in the answer",))

    @property
    def instruction(self) -> str:
        """Words that ask a model for it."""
        schema = json.dumps(self.schema, ensure_ascii=False)
        return (
            "Answer with one JSON object and nothing else: no other words, no Markdown. It has to fit this JSON Schema:\n"
            f"{schema}"
        )


def _shape(schema: dict[str, Any], check: Callable[[Any], Any]) -> Shape[Any]:
    if schema.get("type") == "object":
        return Shape(schema, False, check)
    definitions: dict[str, Any] = {
        name: schema.pop(name) for name in ("$defs", "definitions", "$schema") if name in schema
    }
    envelope = {"type": "object", "properties": {"value": schema}, "required": ["value"], "additionalProperties": False}
    return Shape({**envelope, **definitions}, True, check)


# -- pydantic


def _validated(adapter: TypeAdapter[T], value: Any) -> T:
    try:
        return adapter.validate_json(json.dumps(value))
    except ValidationError as error:
        raise Misfit(tuple(problems_of(error, whole=_WHOLE, at_most=_MAX_PROBLEMS))) from None


def _place(path: Any) -> str:
    return ".".join(str(part) for part in path) or _WHOLE


# -- JSON Schema


def _of_schema(schema: dict[str, Any]) -> Shape[Any]:
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for

    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise UsageError(
            f"cannot ask for an answer by this JSON Schema, because it is none: {error.message} (at {_place(error.absolute_path)})"
        ) from None
    validator = kind(schema)

    def check(value: Any) -> Any:
        value = _coerced(value, schema)
        errors = sorted(validator.iter_errors(value), key=lambda error: list(map(str, error.absolute_path)))
        if errors:
            told = [f"{_place(error.absolute_path)}: {error.message[:500]}" for error in errors]
            raise Misfit(tuple(told[:_MAX_PROBLEMS]))
        return value

    return _shape(dict(schema), check)


def _coerced(value: Any, schema: Any) -> Any:
    """Strings that spell the number or boolean that the schema wants, as those; also in properties and items."""
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
