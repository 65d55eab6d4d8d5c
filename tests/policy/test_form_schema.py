"""The fields of a schema, and the values that fit them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.policy.form_schema import MOST_CHOICES, MOST_FIELDS, FormField, fields_of, problem_of


def form(*required: str, **properties: Any) -> tuple[FormField, ...]:
    fields = fields_of({"type": "object", "properties": properties, "required": list(required)})
    assert fields is not None
    return fields


def problem(given: dict[str, Any], value: Any) -> str | None:
    return problem_of(form(f=given), {"f": value})


COLOURS = {"type": "string", "enum": ["red", "blue"], "enumNames": ["Red", "Blue"]}
TITLED = {"type": "string", "oneOf": [{"const": "red", "title": "Red"}, {"const": "blue"}]}
SEVERAL = {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string", "enum": ["a", "b", "c"]}}
SEVERAL_TITLED = {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}


def test_the_fields_of_a_schema_keep_their_order_titles_and_defaults() -> None:
    name, count, sure = form(
        "name",
        name={"type": "string", "title": "Name", "description": "Of the branch.", "minLength": 1, "default": "x"},
        count={"type": "integer", "minimum": 0, "maximum": 9},
        sure={"type": "boolean"},
    )
    assert name == FormField("name", "text", "Name", "Of the branch.", True, least=1, default="x")
    assert count == FormField("count", "integer", least=0, most=9)
    assert sure == FormField("sure", "boolean")


@pytest.mark.parametrize(
    ("given", "kind", "choices"),
    [
        (COLOURS, "choice", (("red", "Red"), ("blue", "Blue"))),
        (TITLED, "choice", (("red", "Red"), ("blue", "blue"))),
        ({"enum": ["x"]}, "choice", (("x", "x"),)),
        (SEVERAL, "choices", (("a", "a"), ("b", "b"), ("c", "c"))),
        (SEVERAL_TITLED, "choices", (("a", "A"),)),
    ],
)
def test_enums_are_choices_with_their_titles(given: Any, kind: str, choices: Any) -> None:
    (field,) = form(f=given)
    assert (field.kind, field.choices) == (kind, choices)


@pytest.mark.parametrize("given", [{"type": "string", "format": "password"}, {"type": "string", "writeOnly": True}])
def test_a_password_is_secret(given: Any) -> None:
    assert form(f=given)[0].secret


@pytest.mark.parametrize(
    "schema",
    [
        None, [], "object", {"type": "array"}, {"properties": []}, {"required": "a"},
        {"properties": {"a": {"type": "object"}}},
        {"properties": {"a": {"type": ["string", "null"]}}},
        {"properties": {"a": {"type": "array", "items": {"type": "string"}}}},
        {"properties": {"a": {"type": "array", "items": {"type": "object", "enum": ["x"]}}}},
        {"properties": {"a": {"type": "string", "enum": []}}},
        {"properties": {"a": {"type": "string", "enum": ["x", "x"]}}},
        {"properties": {"a": {"type": "string", "enum": ["x", 1]}}},
        {"properties": {"a": {"type": "string", "enum": [f"{n}" for n in range(MOST_CHOICES + 1)]}}},
        {"properties": {"a": {"type": "string", "oneOf": ["x"]}}},
        {"properties": {"a": {"type": "string", "const": "x"}}},
        {"properties": {"a": {"type": "number", "minimum": "1"}}},
        {"properties": {"a": {"type": "number", "minimum": 2, "maximum": 1}}},
        {"properties": {"a": {"type": "number", "minimum": True}}},
        {"properties": {"a": {"type": "number", "maximum": 10**400}}},
        {"properties": {"a": "string"}},
        {"properties": {"a": {"type": "string"}}, "required": ["b"]},
        {"properties": {"a": {"type": "string"}}, "required": [{}]},
        {"properties": {f"{n}": {"type": "string"} for n in range(MOST_FIELDS + 1)}},
    ],
)  # fmt: skip
def test_a_schema_of_another_form_has_no_fields(schema: Any) -> None:
    assert fields_of(schema) is None


def test_a_schema_without_properties_has_no_fields_to_fill() -> None:
    assert fields_of({"type": "object"}) == fields_of({}) == ()


@pytest.mark.parametrize(
    ("given", "good", "bad", "words"),
    [
        ({"type": "string"}, "", 1, '"f" must be a text'),
        ({"type": "string", "minLength": 1, "maxLength": 3}, "abc", "abcd", '"f" must be a text of 1 to 3 characters'),
        ({"type": "string", "minLength": 2}, "ab", "a", '"f" must be a text of at least 2 characters'),
        ({"type": "string", "maxLength": 2}, "ab", "abc", '"f" must be a text of at most 2 characters'),
        ({"type": "string", "format": "email"}, "a@b", "ab", '"f" must be an email address'),
        ({"type": "string", "format": "uri"}, "https://h/p", "h/p", '"f" must be a URL'),
        ({"type": "string", "format": "date"}, "2026-02-28", "2026-02-30", '"f" must be a date, as 2026-01-31'),
        ({"type": "string", "format": "date-time"}, "2026-02-28T10:00:00Z", "2026-02-28", '"f" must be a date with a'),
        ({"type": "string", "format": "other"}, "x", None, '"f" must be a text'),
        ({"type": "boolean"}, False, 0, '"f" must be true or false'),
        ({"type": "integer"}, 3, 3.5, '"f" must be a whole number'),
        ({"type": "integer"}, 3.0, True, '"f" must be a whole number'),
        ({"type": "integer", "minimum": 0, "maximum": 9}, 9, 10, '"f" must be a whole number, 0 to 9'),
        ({"type": "number", "minimum": 0.5}, 0.5, 0.4, '"f" must be a number, at least 0.5'),
        ({"type": "number"}, 1e99, float("inf"), '"f" must be a number'),
        ({"type": "number"}, 10**400, "1", '"f" must be a number'),
        (COLOURS, "red", "Red", '"f" must be one of "red", "blue"'),
        (SEVERAL, ["a", "c"], ["a", "b", "c"], '"f" must be a list of 1 to 2 different values, each one of "a"'),
        (SEVERAL, ["a"], [], '"f" must be a list'),
        (SEVERAL, ["a"], ["a", "a"], '"f" must be a list'),
        (SEVERAL, ["a"], "a", '"f" must be a list'),
        (SEVERAL, ["a"], [["a"]], '"f" must be a list'),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_its_field(given: Any, good: Any, bad: Any, words: str) -> None:
    assert problem(given, good) is None
    assert (problem(given, bad) or "").startswith(words)


def test_a_missing_or_unknown_field_is_told_by_its_name() -> None:
    fields = form("a", a={"type": "boolean"}, b={"type": "string"})
    assert problem_of(fields, {"a": True}) is None
    assert problem_of(fields, {}) == '"a" is missing; it must be true or false'
    assert problem_of(fields, {"a": True, "c": 1}) == 'the form has no field "c"'


def test_long_names_and_lists_are_cut() -> None:
    name = "n" * 500
    words = problem_of(form(**{name: {"enum": [f"v{n}" for n in range(100)]}}), {name: 1}) or ""
    assert len(words) < 300 and words.endswith(", ...")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
_KEYS = ("type", "enum", "enumNames", "oneOf", "anyOf", "items", "minimum", "maximum", "minLength", "maxItems", "format",
         "const", "default", "title")  # fmt: skip
_TYPES = st.sampled_from(["string", "number", "integer", "boolean", "array"])
_ODD = st.fixed_dictionaries({}, optional=dict.fromkeys(_KEYS, _TYPES | _JSON))


@given(
    st.dictionaries(st.text(max_size=3), _ODD | _JSON, max_size=3), _JSON, st.dictionaries(st.text(max_size=3), _JSON)
)
def test_no_schema_and_no_value_raises(properties: Any, required: Any, content: Any) -> None:
    fields = fields_of({"properties": properties, "required": required})
    if fields is not None:
        problem_of(fields, content)
        assert all(field.wanted for field in fields)
