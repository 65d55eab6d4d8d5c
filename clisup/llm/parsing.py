"""Where in a model's text is the JSON: fences stripped, prose around it passed over. Pure rules, shared by all that reads answers.

    strip_fences("```json\\n[1, 2]\\n```")                        # "[1, 2]"
    find_json('Sure! Here it is: {"a": 1}. Anything else?')   # {'a': 1}

Only strict JSON is taken, but for a comma before a closing bracket, which models write often and which can mean nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["MAX_STARTS", "Fence", "NoJSON", "fences", "find_json", "json_values", "strip_fences"]

MAX_STARTS = 1000
"""At so many brackets of a text is a value looked for, at most: prose with more of them holds its answer elsewhere."""

_FENCE = re.compile(r"^ {0,3}(?P<marks>`{3,}|~{3,})[ \t]*(?P<language>[^\s`]*)[^\n`]*$", re.MULTILINE)


class NoJSON(ValueError):
    """There is no JSON of this kind in the text."""


class Fence(NamedTuple):
    """A fenced block: its language in lower case ("" where it has none), its text without the fences, and where it is."""

    language: str
    body: str
    start: int
    end: int


def fences(text: str) -> list[Fence]:
    """The fenced blocks of a text, in order. One that is never closed ends with the text: an answer may have been cut."""
    found: list[Fence] = []
    place = 0
    while opening := _FENCE.search(text, place):
        marks = opening["marks"]
        close = re.compile(rf"^ {{0,3}}{marks[0]}{{{len(marks)},}}[ \t]*$", re.MULTILINE)
        closing = close.search(text, opening.end())
        body_end, place = (closing.start(), closing.end()) if closing else (len(text), len(text))
        body = text[opening.end() : body_end].strip("\r\n")
        found.append(Fence(opening["language"].lower(), body, opening.start(), place))
    return found


def strip_fences(text: str) -> str:
    """What is within the one fenced block that makes up the whole text, else the text; without white space around it."""
    text = text.strip()
    found = fences(text)
    if len(found) == 1 and found[0].start == 0 and found[0].end == len(text):
        return found[0].body.strip()
    return text


def find_json(text: str, *kinds: type) -> Any:
    """The JSON value that a text most likely means, of one of these Python types (`dict`, `list` ...) where some are named.

    Raises `NoJSON`.
    """
    for value in json_values(text):
        if not kinds or isinstance(value, kinds):
            return value
    wanted = {dict: "object", list: "array", str: "string", bool: "boolean"}
    raise NoJSON(f"there is no JSON {' or '.join(wanted.get(kind, kind.__name__) for kind in kinds)}".rstrip())


def json_values(text: str) -> Iterator[Any]:
    """All JSON values of a text, the likeliest first: the text itself, its blocks fenced as JSON, its other fenced blocks, then the
    objects and arrays in its prose, the longest first (of two alike, the later). Who knows what is wanted takes the first that fits.
    """
    yield from _whole(text.strip())
    blocks = fences(text)
    for block in sorted(blocks, key=lambda block: not block.language.startswith("json")):
        if block.body.strip() != text.strip():
            yield from _whole(block.body)
    yield from _within(text)


def _whole(text: str) -> Iterator[Any]:
    try:
        yield _loads(text)
    except (ValueError, RecursionError):
        return


def _within(text: str) -> Iterator[Any]:
    """The outermost objects and arrays that begin somewhere in a text, the longest first."""
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
    """The value that begins here and where it ends; 0 where there is none."""
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
    """Where the brackets that open here are closed, those in strings not counted; 0 where they are not."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
        if depth == 0:
            return token.end()
    return 0


def _loads(text: str) -> Any:
    """Strict JSON; a comma before a closing bracket is forgiven."""
    try:
        return _DECODER.decode(text)
    except ValueError:
        mended = _TRAILING.sub(lambda match: match["kept"] or "", text)
        if mended == text:
            raise
        return _DECODER.decode(mended)


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refused)
_STRING = r'"(?:[^"\\]|\\.)*"'
_BRACKET = re.compile(r"[{\[]")
_TOKEN = re.compile(rf"{_STRING}|[{{}}\[\]]", re.DOTALL)
_TRAILING = re.compile(rf"(?P<kept>{_STRING})|,(?=\s*[}}\]])", re.DOTALL)
