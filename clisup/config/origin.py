"""Origin of a value of the configuration: flag, variable, file and line, or default. Pure.

The TOML reader of the standard library reports no lines. But a statement of TOML is complete only at the end of a line.
So this module reads each statement separately, below the header of its table, and the reader returns the keys that the
statement sets.
"""

from __future__ import annotations

import tomllib
from typing import Any, Literal, NamedTuple

from clisup.model.structs import JsonObject

Path = tuple[str | int, ...]
"""Path of a key in a parsed TOML document. A number is the place in a list of tables."""

MAX_STATEMENT_LINES = 500
"""Limit of a statement, in lines. A longer statement and everything after it get no lines, because each line costs
another try to read the statement."""


class Origin(NamedTuple):
    """Origin of a value. `name` is the name of the flag or variable; `line` is the line of the key in the file."""

    kind: Literal["default", "file", "environment", "flag"]
    name: str | None = None
    line: int | None = None


def lines_of(text: str) -> dict[Path, int]:
    """Return the line, from 1, of every key and table of a readable TOML document.

    Raises nothing for an unreadable one.
    """
    found: dict[Path, int] = {}
    tables: dict[Path, int] = {}  # number of `[[x]]` headers so far
    header, lines = "", text.replace("\r\n", "\n").split("\n")
    at = 0
    while at < len(lines):
        end, chunk = _statement(lines, at)
        if chunk is None:
            return found
        stripped = chunk.lstrip()
        if stripped.startswith("["):
            header = chunk
            parsed = _parsed(header)
            if stripped.startswith("[["):
                path = _deepest(parsed)
                tables[path] = tables.get(path, -1) + 1
        else:
            parsed = _parsed(f"{header}\n{chunk}")
        for path in _paths(parsed, (), tables):
            found.setdefault(path, at + 1)
        at = end
    return found


def _statement(lines: list[str], at: int) -> tuple[int, str | None]:
    """Return the line after the statement that begins at `at`, and its text.

    The text is None if the statement never ends.
    """
    if not lines[at].strip() or lines[at].lstrip().startswith("#"):
        return at + 1, ""
    for end in range(at + 1, min(len(lines), at + MAX_STATEMENT_LINES) + 1):
        chunk = "\n".join(lines[at:end])
        if _parsed(chunk) is not _BROKEN:
            return end, chunk
    return len(lines), None


_BROKEN: JsonObject = {}


def _parsed(text: str) -> JsonObject:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):  # TOMLDecodeError is a ValueError
        return _BROKEN


def _deepest(parsed: Any) -> Path:
    """Return the path of a header's own table, without the places in lists."""
    path: Path = ()
    while isinstance(parsed, dict | list) and parsed:
        if isinstance(parsed, list):
            parsed = parsed[0]
        else:
            name, parsed = next(iter(parsed.items()))
            path = (*path, name)
    return path


def _paths(parsed: Any, path: Path, tables: dict[Path, int]) -> list[Path]:
    found = [path] if path else []
    if isinstance(parsed, dict):
        for name, value in parsed.items():
            found += _paths(value, (*path, name), tables)
    elif isinstance(parsed, list):
        plain = tuple(part for part in path if isinstance(part, str))
        first = (
            tables.get(plain, 0) if len(parsed) == 1 else 0
        )  # a `[[x]]` header parses as a list of one table, whatever its place
        for number, value in enumerate(parsed, first):
            found += _paths(value, (*path, number), tables)
    return found
