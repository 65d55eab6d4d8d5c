"""How many values a line holds, without reading it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.model.lines.json_values import has_few, has_more_values, is_deeper

# Half a surrogate pair has no bytes to be counted.
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20) | st.text('",[{\\', max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(TEXTS, inner, max_size=8),
    max_leaves=60,
)


def marks(value: Any) -> int:
    """Commas and opening brackets, as `json.dumps` writes them."""
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(0, len(value) - 1) + sum(map(marks, inner))


@given(VALUES, st.booleans())
def test_what_stands_in_strings_is_not_counted(value: Any, ascii_: bool) -> None:
    line = json.dumps(value, ensure_ascii=ascii_).encode()
    exact = marks(value)
    assert not has_more_values(line, exact)
    assert exact == 0 or has_more_values(line, exact - 1)


@given(st.binary(max_size=200) | st.text('",[{\\', max_size=200).map(str.encode), st.integers(0, 20))
def test_a_line_that_is_no_json_is_no_trouble(line: bytes, limit: int) -> None:
    has_more_values(line, limit)


@pytest.mark.parametrize("dense", [b"0,", b"[],", b"{},", b'"",', b'"a":0,', b"[[["])
def test_a_dense_line_is_told_from_a_long_text(dense: bytes) -> None:
    line = b"[" + dense * 200_000
    assert has_more_values(line, 100_000)
    assert not has_more_values(json.dumps(line.decode()).encode(), 100_000)


@given(st.text("[{x", max_size=50).map(str.encode), st.integers(0, 20))
def test_few_is_no_more_than_so_many_in_all(data: bytes, most: int) -> None:
    assert has_few(data, most, b"[", b"{") == (data.count(b"[") + data.count(b"{") <= most)


@pytest.mark.parametrize("ends", [(b"[", b"]"), (b'{"a":', b"}"), (b'[1,{"a":', b"}]")])
@pytest.mark.parametrize("levels", [1, 2, 7, 200])
def test_deeper_is_more_levels_of_lists_and_objects_than_that(ends: tuple[bytes, bytes], levels: int) -> None:
    begin, end = ends
    each = (begin + end).count(b"[") + (begin + end).count(b"{")
    line = b'["[[[",' + begin * levels + b"0" + end * levels + b"]"
    exact = 1 + each * levels
    assert not is_deeper(json.loads(line), line, exact)
    assert is_deeper(json.loads(line), line, exact - 1)
    assert not is_deeper(0, b"0", 1)
