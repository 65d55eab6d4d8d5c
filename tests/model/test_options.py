"""The tools of `session/new`: what is one, and how many and how large they may be."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from clisup.model.prompts.options import (
    MAX_SCHEMA_BYTES,
    MAX_TOOLS,
    MAX_TOOLS_BYTES,
    OutputSchema,
    object_in,
    schema_text,
)
from clisup.wire.params import SessionNewParams

ADD = {
    "name": "add",
    "description": "Adds.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "number"}}},
}


def params(*tools: Any) -> SessionNewParams:
    return SessionNewParams.model_validate({"backend": "demo", "cwd": "/", "tools": list(tools)})


def why(*tools: Any) -> str:
    with pytest.raises(ValidationError) as refused:
        params(*tools)
    return refused.value.errors(include_input=False)[0]["msg"]


def test_tools_keep_their_order_and_what_was_said_of_them() -> None:
    given = params(ADD, ADD | {"name": "sub-2_X", "timeout_s": 1.5}).tools or []
    assert [(tool.name, tool.timeout_s) for tool in given] == [("add", None), ("sub-2_X", 1.5)]
    assert given[0].model_dump(exclude_none=True) == ADD


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ü", "a" * 65, "a\n", "mcp/add"])
def test_a_name_that_no_api_takes_is_refused(name: str) -> None:
    assert "match pattern" in why(ADD | {"name": name})


@pytest.mark.parametrize("schema", [{}, {"type": "string"}, {"type": ["object"]}])
def test_a_schema_is_one_of_an_object(schema: dict[str, Any]) -> None:
    assert 'must be "object"' in why(ADD | {"input_schema": schema})


@pytest.mark.parametrize("limit", [0, -1, float("inf"), float("nan"), 1e9])
def test_a_limit_of_time_is_one_that_can_pass(limit: float) -> None:
    assert why(ADD | {"timeout_s": limit})


def test_a_name_stands_once() -> None:
    assert "the name 'add' stands twice" in why(ADD, ADD)


def test_no_tools_at_all_are_said_by_leaving_them_out() -> None:
    assert "at least 1" in why()


def test_how_many_and_how_large_is_limited() -> None:
    assert f"at most {MAX_TOOLS} items" in why(*({**ADD, "name": f"t{n}"} for n in range(MAX_TOOLS + 1)))
    large = [{**ADD, "name": f"t{n}", "description": "x" * 65_000} for n in range(17)]
    assert f"at most {MAX_TOOLS_BYTES} are taken" in why(*large)


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
