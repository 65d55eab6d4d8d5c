"""Which line of a TOML document sets which key, by the same reader that reads the document."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from clisup.config import origin as config_origin
from clisup.config.origin import lines_of

DOCUMENT = '''\
# a comment
top = 1

[daemon]   # another
max_running = 4
retention.days = 3
"quoted key" = """
[not a table]
x = 1
"""
list = [
  "one",   # max_queue = 5
  "two",
]
inline = { A = "x", B = { C = 1 } }

[[rules]]
tool = "a"
[[rules]]
decision = "b"
tool = "c"
[backends . "my.name"]
kind = 'demo'
'''


def test_every_key_has_the_line_of_its_statement() -> None:
    found = lines_of(DOCUMENT)
    assert found == {
        ("top",): 2, ("daemon",): 4, ("daemon", "max_running"): 5, ("daemon", "retention"): 6,
        ("daemon", "retention", "days"): 6, ("daemon", "quoted key"): 7,
        ("daemon", "list"): 11, ("daemon", "list", 0): 11, ("daemon", "list", 1): 11,
        ("daemon", "inline"): 15, ("daemon", "inline", "A"): 15, ("daemon", "inline", "B"): 15,
        ("daemon", "inline", "B", "C"): 15,
        ("rules",): 17, ("rules", 0): 17, ("rules", 0, "tool"): 18,
        ("rules", 1): 19, ("rules", 1, "decision"): 20, ("rules", 1, "tool"): 21,
        ("backends",): 22, ("backends", "my.name"): 22, ("backends", "my.name", "kind"): 23,
    }  # fmt: skip


def paths(value: Any, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return ({path} if path else set()).union(*(paths(one, (*path, name)) for name, one in below))


@pytest.mark.parametrize("text", [DOCUMENT, DOCUMENT.replace("\n", "\r\n"), "", "\n\n", "a = [{b = 1}, {b = 2}]"])
def test_the_keys_are_those_of_the_whole_document(text: str) -> None:
    assert set(lines_of(text)) == paths(tomllib.loads(text))


@pytest.mark.parametrize("text", ["= 1", "a = [\n1,", "[", 'x = """', "\x00", "a = 1\na.b = 2"])
def test_a_document_that_cannot_be_read_raises_nothing(text: str) -> None:
    lines_of(text)


def test_a_very_long_statement_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_origin, "MAX_STATEMENT_LINES", 3)
    assert lines_of("a = 1\nb = [\n1,\n2,\n3,\n4]\nc = 1\n") == {("a",): 1}
