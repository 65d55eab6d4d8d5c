"""Bounds on the values in a line of JSON: their number, found without making them, and their depth. Pure.

Each value costs a Python object: 16 MiB of `[],[],[],...` are six million objects, 0.3 GB, and seconds in which no
other client is served. A text of the same size is one object, and takes a hundredth of the time to read. So readers of
foreign lines bound both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_MARKS = (b",", b"[", b"{")
_SLICE = 256 * 1024
_FEW = 200  # an image has none of these bytes, a short text few


def has_few(data: bytes, most: int, *marks: bytes) -> bool:
    """Tell whether the data holds no more than `most` of these marks in total.

    Meant for a small `most`: `bytes.count` takes 7 ms for 5 MB, `find` 0.2 ms.
    """
    left = most
    for mark in marks:
        at = data.find(mark)
        while at >= 0:
            left -= 1
            if left < 0:
                return False
            at = data.find(mark, at + 1)
    return True


def has_more_values(line: bytes, limit: int) -> bool:
    """Tell whether more than `limit` commas and opening brackets are outside of strings.

    An item or member has one of these marks, a list or object has another. So there are at most as many values as
    marks, and one more. The function also works on a line that is no JSON, and costs no more: a few passes over the
    bytes.
    """
    if len(line) <= limit or has_few(line, min(limit, _FEW), *_MARKS) or not _more_marks(line, limit):
        return False  # the common case: marks in strings do not matter
    bare = line
    if b"\\" in line:
        bare = line.replace(b"\\\\", b"").replace(b'\\"', b"")  # every remaining quote begins a string, or ends one
    if bare.count(b'"') > 4 * (limit + 1):
        return True  # a string is a key or a value
    return _more_marks(b"".join(bare.split(b'"')[::2]), limit)


def _more_marks(data: bytes, limit: int) -> bool:
    """Tell whether the data holds more than `limit` marks. The search stops as soon as the result is certain."""
    left = limit
    for at in range(0, len(data), _SLICE):
        left -= sum(map(data[at : at + _SLICE].count, _MARKS))
        if left < 0:
            return True
    return False


def is_deeper(value: object, data: bytes, levels: int) -> bool:
    """Tell whether more than `levels` lists and objects are nested in a value that was read from `data`.

    Most values have no nested ones. For the others the brackets are counted: few of them cannot nest deeply.
    """
    level = _below([value]) if isinstance(value, dict | list) else []
    if not level or has_few(data, levels, b"{", b"["):
        return False
    for _ in range(levels - 1):
        level = _below(level)
        if not level:
            return False
    return True


def has_larger_number(value: object, limit: int) -> bool:
    """Tell whether a value of JSON has a whole number beyond `limit`, at any depth."""
    level = [value]
    while level:
        if any(type(node) is int and abs(node) > limit for node in level):
            return True
        level = [child for node in level if type(node) in (dict, list) for child in _children(node)]
    return False


def _children(node: Any) -> Iterable[object]:
    return node.values() if type(node) is dict else node


def _below(level: list[Any]) -> list[Any]:
    """Return the lists and objects one level further down, in one loop without a call: a line may hold a million
    values."""
    return [
        child
        for node in level
        for child in (node.values() if type(node) is dict else node)
        if type(child) is dict or type(child) is list
    ]
