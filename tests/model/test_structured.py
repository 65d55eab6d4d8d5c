"""Answers by a schema: which schemas are taken, and what counts as a value."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from clisup.model.prompts.options import MAX_SCHEMA_BYTES, OutputSchema, object_in, schema_text

SCHEMA: TypeAdapter[dict[str, Any]] = TypeAdapter(OutputSchema)


def test_a_schema_is_one_line_of_ascii_whatever_it_holds() -> None:
    text = schema_text({"type": "object", "title": "\u00fc \u2028 \ud83d\0\n"})
    assert text.isascii() and text.isprintable() and " " not in text.replace("\\u00fc \\u2028 \\ud83d", "")


def test_the_limit_is_that_of_the_text() -> None:
    frame = len(schema_text({"type": "object", "title": ""}))
    fits = {"type": "object", "title": "x" * (MAX_SCHEMA_BYTES - frame)}
    assert SCHEMA.validate_python(fits) == fits
    with pytest.raises(ValidationError, match=f"{MAX_SCHEMA_BYTES + 1}"):
        SCHEMA.validate_python({**fits, "title": fits["title"] + "x"})


@pytest.mark.parametrize("schema", [{}, {"type": "array"}, {"type": ["object"]}, {"properties": {}}, []])
def test_only_schemas_of_objects_are_taken(schema: Any) -> None:
    with pytest.raises(ValidationError):
        SCHEMA.validate_python(schema)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}), (' {"a": {}}\n', {"a": {}}), ("{}", {}), ("[1]", None), ("1", None), ("", None), ("words", None),
        ('```json\n{"a": 1}\n```', None), ('{"a": 1} and', None), ('{"a": 1', None), ("[" * 100_000, None),
    ],
)  # fmt: skip
def test_a_value_is_an_object_and_nothing_beside_it(text: str, value: dict[str, Any] | None) -> None:
    assert object_in(text) == value
