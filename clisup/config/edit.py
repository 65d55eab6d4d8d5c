"""Additions to the text of a configuration file that leave every line and comment of its author. Pure."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Iterator
from typing import NamedTuple

from clisup.model.structs import JsonObject

__all__ = ["Addition", "with_addition"]


class Addition(NamedTuple):
    """Text, texts for a list, or named texts for a table, at a key of `[backends.BACKEND]`, or of `[defaults]` without a backend."""

    backend: str | None
    key: str
    value: str | list[str] | dict[str, str]

    @property
    def table(self) -> tuple[str, ...]:
        """Return the names of the table."""
        return ("defaults",) if self.backend is None else ("backends", self.backend)

    def __str__(self) -> str:
        """Return the line of the key."""
        return f"{self.key} = {_toml(self.value)}"


def with_addition(text: str, addition: Addition) -> str | None:
    """Return the text with the addition; unchanged if the text has it already, or has another text at this key.

    Return None if no single line can be added or extended, as in a list of several lines.
    """
    before = tomllib.loads(text)
    expected = copy.deepcopy(before)
    table = expected
    for name in addition.table:
        table = table.setdefault(name, {})
    table[addition.key] = _joined(table.get(addition.key), addition.value)
    if expected == before:
        return text
    return next((changed for changed in _candidates(text, addition) if _means(changed, expected)), None)


def _joined(found: object, value: str | list[str] | dict[str, str]) -> object:
    if isinstance(value, list) and isinstance(found, list):
        return [*found, *(item for item in value if item not in found)]
    if isinstance(value, dict) and isinstance(found, dict):
        return {**found, **{name: item for name, item in value.items() if name not in found}}
    return value if found in (None, "") else found


def _candidates(text: str, addition: Addition) -> Iterator[str]:
    """Yield texts with the addition: in a value on one line, below the header of the table, and at the end of the file."""
    start, end = (r"\[", r"\]") if isinstance(addition.value, list) else (r"\{", r"\}")
    if isinstance(addition.value, str):
        start = end = '"'
    key = re.compile(
        rf"^([ \t]*{addition.key}[ \t]*=[ \t]*{start})([^\n]*?),?[ \t]*({end}[ \t]*(?:#[^\n]*)?)$", re.MULTILINE
    )
    for match in key.finditer(text):
        items = _items(text, addition)
        inner = f"{match[2].rstrip()}, {items}" if match[2].strip() else items
        yield f"{text[: match.start()]}{match[1]}{inner}{match[3]}{text[match.end() :]}"
    names = r"[ \t]*\.[ \t]*".join(rf"\"?{re.escape(name)}\"?" for name in addition.table)
    header = re.compile(rf"^[ \t]*\[[ \t]*{names}[ \t]*\][^\n]*$", re.MULTILINE)
    for match in header.finditer(text):
        yield f"{text[: match.end()]}\n{addition}{text[match.end() :]}"
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    yield f"{text}{gap}[{'.'.join(addition.table)}]\n{addition}\n"


def _items(text: str, addition: Addition) -> str:
    """Return those items of the value that the text lacks, as they stand between brackets."""
    if isinstance(addition.value, str):
        return json.dumps(addition.value)[1:-1]
    found = tomllib.loads(text).get("backends", {}).get(addition.backend or "", {}).get(addition.key, ())
    if isinstance(addition.value, list):
        return ", ".join(json.dumps(item) for item in addition.value if item not in found)
    return ", ".join(f"{name} = {json.dumps(item)}" for name, item in addition.value.items() if name not in found)


def _means(text: str, expected: JsonObject) -> bool:
    try:
        return bool(tomllib.loads(text) == expected)
    except tomllib.TOMLDecodeError:
        return False


def _toml(value: str | list[str] | dict[str, str]) -> str:
    """Return the value in TOML. A text of JSON is one of TOML, too."""
    if isinstance(value, str | list):
        return json.dumps(value)
    return "{ " + ", ".join(f"{name} = {json.dumps(item)}" for name, item in value.items()) + " }"
