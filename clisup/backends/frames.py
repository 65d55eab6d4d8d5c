"""Typed readers for fields of a CLI's frames, which may hold anything. Common to the adapters."""

from __future__ import annotations

from typing import Any

from clisup.model.lines.json_values import is_deeper

__all__ = [
    "LARGEST",
    "MAX_DEPTH",
    "MalformedError",
    "excerpt",
    "get_dict",
    "get_int",
    "get_number",
    "get_str",
    "too_deep",
]

MAX_DEPTH = 200  # an event adds a few levels of its own, and no JSON writer goes deeper than 255
EXCERPT_CHARS = 200
LARGEST = 2**53
"""The largest count that each reader of JSON counts exactly. Sums of larger numbers could outgrow what JSON can hold."""


class MalformedError(Exception):
    """Frame of a known kind with an unexpected shape."""


def get_str(frame: dict[str, Any], name: str) -> str | None:
    """Return the text in a field; None for anything else."""
    value = frame.get(name)
    return value if isinstance(value, str) else None


def get_int(frame: dict[str, Any], name: str) -> int | None:
    """Return the whole number in a field, at most `LARGEST` of size; None for anything else."""
    value = frame.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST else None


def get_number(frame: dict[str, Any], name: str) -> float | None:
    """Return the number in a field, at most `LARGEST` of size: 10**400 is JSON, too, and no float holds it."""
    value = frame.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > LARGEST:
        return None
    return float(value)


def get_dict(frame: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the object in a field; an empty one for anything else."""
    value = frame.get(name)
    return value if isinstance(value, dict) else {}


def excerpt(data: bytes) -> str:
    """Return the first characters of a line, as valid text."""
    return data[: EXCERPT_CHARS * 4].decode("utf-8", "replace")[:EXCERPT_CHARS]


def too_deep(data: bytes, value: object) -> bool:
    """Tell whether `value`, which was read from `data`, is nested deeper than an event can be written."""
    return is_deeper(value, data, MAX_DEPTH)
