"""String literals of a JSON line, each with its place and its path. Broken lines are read as well. Pure.

Only literals are ever rewritten, so numbers, the order of keys and all else in a line stay byte for byte as they were.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

Path = tuple[str, ...]

# A literal without its closing quote counts too: the line may have been cut there.
_TOKEN = re.compile(r'"(?P<body>[^"\\]*(?:\\.[^"\\]*)*)(?P<close>"|\\?\Z)|[{}\[\]]', re.DOTALL)
_COLON = re.compile(r"\s*:")
_ITEM = "[]"
_DEEPEST = 16  # levels that a path names, from the lowest up: a line may be nested a million deep
_SURROGATE = re.compile("[\ud800-\udfff]")


class Literal(NamedTuple):
    """String literal.

    `start` and `end` are its place in the line, quotes included. `path` names the keys above a value; None for a key.
    """

    start: int
    end: int
    text: str
    path: Path | None
    whole: bool = True
    spoilt: bool = False

    def holding(self, text: str) -> str:
        """Return the literal with another text, as its replacement in the line."""
        body = text
        if not self.spoilt:
            # Bytes that were no UTF-8 (surrogateescape) keep their values, unless halves of other surrogate pairs are
            # in the text.
            halves = any(not "\udc80" <= char <= "\udcff" for char in _SURROGATE.findall(text))
            body = json.dumps(text, ensure_ascii=halves)[1:-1]
        return f'"{body}"' if self.whole else f'"{body}'


def literals(line: str) -> list[Literal]:
    """Return all literals, in order.

    A literal with wrong escapes is `spoilt` and unchanged; a cut one is not `whole`.
    """
    found: list[Literal] = []
    levels: list[str] = []  # the key, or `[]`, of each open level
    for match in _TOKEN.finditer(line):
        token = match[0]
        if token in "{[":
            levels.append("" if token == "{" else _ITEM)
        elif token in "}]":
            del levels[-1:]
        else:
            text, spoilt = _decoded(match["body"])
            is_key = bool(levels) and levels[-1] != _ITEM and _COLON.match(line, match.end()) is not None
            if is_key:
                levels[-1] = text
            path = None if is_key else tuple(levels[-_DEEPEST:])
            found.append(Literal(*match.span(), text, path, match["close"] == '"', spoilt))
    return found


def _decoded(body: str) -> tuple[str, bool]:
    if "\\" not in body:
        return body, False
    try:
        return str(json.loads(f'"{body}"', strict=False)), False
    except ValueError:
        return body, True


def is_json(line: str | bytes) -> bool:
    """Tell whether the line is one whole JSON value."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
