"""JSON in what models write: fenced, in prose, cut, with a comma too many."""

from __future__ import annotations

from typing import Any

import pytest

from clisup.stream_json.json_texts import MAX_STARTS, fences, json_values


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ('```json\n{"a": 1}\n```', ['{"a": 1}']),
        ("\n```\nplain\n```\n", ["plain"]),
        ("~~~text\nx\n~~~", ["x"]),
        ("````md\n```py\nx\n```\n````", ["```py\nx\n```"]),
        ("```json\n[1, 2", ["[1, 2"]),
        ("no fence", []),
        ("Here:\n```\nx\n```", ["x"]),
        ("```\na\n```\n```\nb\n```", ["a", "b"]),
        ("`x`", []),
    ],
)
def test_fenced_blocks_are_found_and_nothing_else(text: str, inside: list[str]) -> None:
    assert [body for _, body in fences(text)] == inside


def test_fenced_blocks_are_told_with_their_language() -> None:
    assert list(fences("a\n```JSON title\n{}\n```\nb\n```\nx\n```")) == [("json", "{}"), ("", "x")]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("  [1, 2]\n", [1, 2]),
        ("42", 42),
        ('"text"', "text"),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('Sure!\n```\n{"a": 1}\n```\nAnything else?', {"a": 1}),
        ('For {x} I say: {"a": {"b": [1]}}. Good?', {"a": {"b": [1]}}),
        ('First {"a": 1}, then at last {"a": 1, "b": 2}.', {"a": 1, "b": 2}),
        ('```py\n{"not": 1}\n```\n```json\n{"this": 1}\n```', {"this": 1}),
        ('{"a": [1, 2,], "b": "x,]",}', {"a": [1, 2], "b": "x,]"}),
        ('It is {"a": "b}",}.', {"a": "b}"}),
        ('```json\n{"a": 1}', {"a": 1}),
    ],
)
def test_the_value_that_is_meant_is_found(text: str, value: Any) -> None:
    assert next(json_values(text)) == value


@pytest.mark.parametrize("text", ["", "no", "{x: 1}", "{'a': 1}", '{"a": NaN}', '{"a": ', "[" * 100_000])
def test_what_is_no_json_is_none(text: str) -> None:
    assert list(json_values(text)) == []


def test_all_candidates_are_given_the_likeliest_first() -> None:
    text = 'Like {"q": 1}:\n```json\n{"a": 1}\n```'
    assert list(json_values(text)) == [{"a": 1}, {"a": 1}, {"q": 1}]


def test_a_text_of_brackets_is_looked_through_up_to_a_bound() -> None:
    assert list(json_values("{ " * MAX_STARTS + '{"a": 1}')) == []
    assert list(json_values("{ " * (MAX_STARTS - 1) + '{"a": 1}')) == [{"a": 1}]
