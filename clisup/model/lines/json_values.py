"""How many values a line of JSON holds, found out without making them, and how deep they lie. Pure.

What a value costs is an object of Python's: 16 MiB of `[],[],[],...` are six million of them, 0.3 GB, and seconds in which nobody
else is served. A text of the same size is one, and read in a hundredth of that. So who reads lines of others bounds both.
"""

from __future__ import annotations

from typing import Any

__all__ = ["has_few", "has_more_values", "is_deeper"]

_MARKS = (b",", b"[", b"{")
_SLICE = 256 * 1024
_FEW = 200  # a picture has none, a word of ours few


def has_few(data: bytes, most: int, *marks: bytes) -> bool:
    """No more than `most` of these in all. For a small `most`: `bytes.count` takes 7 ms for 5 MB, `find` 0.2."""
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
    """Are there more than `limit` commas and opening brackets outside of strings?

    An item or member has one of these, a list or object another, so there are at most as many values, and one more. Of a line
    that is no JSON it says something, too, and costs no more: a few passes over the bytes.
    """
    if len(line) <= limit or has_few(line, min(limit, _FEW), *_MARKS) or not _more_marks(line, limit):
        return False  # the common case: those in strings do not matter
    bare = line
    if b"\\" in line:
        bare = line.replace(b"\\\\", b"").replace(b'\\"', b"")  # every quote that is left begins a string, or ends one
    if bare.count(b'"') > 4 * (limit + 1):
        return True  # a string is a key or a value
    return _more_marks(b"".join(bare.split(b'"')[::2]), limit)


def _more_marks(data: bytes, limit: int) -> bool:
    """Looks no further than it has to."""
    left = limit
    for at in range(0, len(data), _SLICE):
        left -= sum(map(data[at : at + _SLICE].count, _MARKS))
        if left < 0:
            return True
    return False


def is_deeper(value: object, data: bytes, levels: int) -> bool:
    """Are there more than so many lists and objects in one another, in a value that was read from `data`?

    Most values have nothing below them; then the brackets are counted: few of them cannot nest deeply.
    """
    level = _below([value]) if isinstance(value, dict | list) else []
    if not level or has_few(data, levels, b"{", b"["):
        return False
    for _ in range(levels - 1):
        level = _below(level)
        if not level:
            return False
    return True


def _below(level: list[Any]) -> list[Any]:
    """The lists and objects one level further down. In one loop without a call: a line may hold a million values."""
    return [
        child
        for node in level
        for child in (node.values() if type(node) is dict else node)
        if type(child) is dict or type(child) is list
    ]
