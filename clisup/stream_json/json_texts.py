"""JSON in a text of a model: the text itself, fenced blocks, and objects in prose. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["MAX_STARTS", "fences", "json_values"]

MAX_STARTS = 1000
"""Most brackets of a text to try. Prose with more brackets has its answer elsewhere."""

_FENCE = re.compile(r"^ {0,3}(?P<marks>`{3,}|~{3,})[ \t]*(?P<language>[^\s`]*)[^\n`]*$", re.MULTILINE)


def fences(text: str) -> Iterator[tuple[str, str]]:
    """Return language (lower case or "") and content of each fenced block, in order.

    An open block ends with the text, because an answer may be cut.
    """
    place = 0
    while opening := _FENCE.search(text, place):
        marks = opening["marks"]
        close = re.compile(rf"^ {{0,3}}{marks[0]}{{{len(marks)},}}[ \t]*$", re.MULTILINE)
        closing = close.search(text, opening.end())
        end, place = (closing.start(), closing.end()) if closing else (len(text), len(text))
        yield opening["language"].lower(), text[opening.end() : end].strip("\r\n")


def json_values(text: str) -> Iterator[Any]:
    """Return all JSON values of a text, the likeliest first.

    The order is: the text itself, blocks fenced as JSON, other fenced blocks, then objects and arrays in the prose, the longest
    first, and of two alike the later first.
    """
    yield from _whole(text.strip())
    for _, body in sorted(fences(text), key=lambda block: not block[0].startswith("json")):
        yield from _whole(body)
    yield from _within(text)


def _whole(text: str) -> Iterator[Any]:
    try:
        yield _loads(text)
    except (ValueError, RecursionError):
        return


def _within(text: str) -> Iterator[Any]:
    """Return the outermost objects and arrays in a text, the longest first."""
    found: list[tuple[int, Any]] = []
    place = 0
    for _ in range(MAX_STARTS):
        opening = _BRACKET.search(text, place)
        if opening is None:
            break
        start = opening.start()
        value, end = _value_at(text, start)
        if end:
            found.append((end - start, value))
        place = end or start + 1
    found.reverse()
    found.sort(key=lambda item: -item[0])
    yield from (value for _, value in found)


def _value_at(text: str, start: int) -> tuple[Any, int]:
    """Return the value at this place and its end. The end is 0 if there is no value."""
    try:
        return _DECODER.raw_decode(text, start)
    except RecursionError:
        return None, 0
    except ValueError:
        end = _end_of(text, start)
    try:
        return (_loads(text[start:end]), end) if end else (None, 0)
    except (ValueError, RecursionError):
        return None, 0


def _end_of(text: str, start: int) -> int:
    """Return the place of the closing bracket, or 0. Brackets in strings do not count."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
        if depth == 0:
            return token.end()
    return 0


def _loads(text: str) -> Any:
    """Parse strict JSON, and ignore commas before closing brackets."""
    try:
        return _DECODER.decode(text)
    except ValueError:
        mended = _TRAILING.sub(lambda match: match["kept"] or "", text)
        if mended == text:
            raise
        return _DECODER.decode(mended)


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refused)
_STRING = r'"(?:[^"\\]|\\.)*"'
_BRACKET = re.compile(r"[{\[]")
_TOKEN = re.compile(rf"{_STRING}|[{{}}\[\]]", re.DOTALL)
_TRAILING = re.compile(rf"(?P<kept>{_STRING})|,(?=\s*[}}\]])", re.DOTALL)
