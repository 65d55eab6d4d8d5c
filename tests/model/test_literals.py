"""The string literals of a line: where they stand, what they say, and what takes their place."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.model.lines.literals import literals

JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


def texts_of(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (key, *texts_of(item))]
    return [text for item in value for text in texts_of(item)] if isinstance(value, list) else []


@given(JSON, st.booleans())
def test_every_text_of_a_json_value_is_found_as_it_reads(value: object, escaped: bool) -> None:
    line = json.dumps(value, ensure_ascii=escaped)
    assert [literal.text for literal in literals(line)] == texts_of(value)


@given(JSON)
def test_a_literal_that_is_written_again_reads_the_same(value: object) -> None:
    line = json.dumps(value)
    for literal in reversed(literals(line)):
        line = line[: literal.start] + literal.holding(literal.text) + line[literal.end :]
    assert json.loads(line) == value


def test_a_value_has_the_keys_above_it_for_a_path_and_a_key_has_none() -> None:
    found = literals('{"a": ["x", {"b" : "y"}], "c": "z"}')
    assert [(one.text, one.path) for one in found] == [
        ("a", None), ("x", ("a", "[]")), ("b", None), ("y", ("a", "[]", "b")), ("c", None), ("z", ("c",)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "text", "again"),
    [
        ('{"a": "cut he', "cut he", '"cut he'),
        ('{"a": "cut \\', "cut ", '"cut '),
        ('{"a": "wrong \\x escape"}', "wrong \\x escape", '"wrong \\x escape"'),
        ('{"a": "half \\ud83d pair"}', "half \ud83d pair", '"half \\ud83d pair"'),
        ('{"a": "byte \udcff here"}', "byte \udcff here", '"byte \udcff here"'),
    ],
)
def test_what_is_spoilt_or_cut_is_read_as_far_as_it_goes(line: str, text: str, again: str) -> None:
    last = literals(line)[-1]
    assert (last.text, last.holding(last.text)) == (text, again)


def test_a_line_nested_a_hundred_thousand_deep_is_no_trouble() -> None:
    assert [one.text for one in literals("[" * 100_000 + '"x"' + "]" * 100_000)] == ["x"]
