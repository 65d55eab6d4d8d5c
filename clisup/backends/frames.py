"""Lines of a CLI as JSON, and typed readers for the fields of frames, which may hold anything. Common to the adapters."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from clisup.model.events import BackendStatus, EventBase
from clisup.model.lines.json_values import is_deeper

__all__ = [
    "DETAIL_CHARS", "LARGEST", "MAX_DEPTH", "MOST_TOKENS", "Count", "Frame", "Half", "MalformedError", "decode_any", "detail", "excerpt",
    "first_str", "get_cost", "get_dict", "get_dicts", "get_int", "get_number", "get_str", "get_strs", "get_tokens", "join_halves", "mend",
    "status", "status_from", "too_deep",
]  # fmt: skip

MAX_DEPTH = 200  # an event adds a few levels of its own, and no JSON writer goes deeper than 255
EXCERPT_CHARS = 200
LARGEST = 2**53
"""The largest count that each reader of JSON counts exactly. Sums of larger numbers could outgrow what JSON can hold."""

MOST_TOKENS, MOST_USD = 10**11, 10.0**7
"""Largest usage that is believed. Gateways send -1 and numbers without sense, and a budget would count them."""

Count = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]

DETAIL_CHARS = 2000  # of a text in an event beside the payload; the spool has the whole line

Half = Annotated[int, Meta(ge=0, le=0xDFFF)]
"""Code of half a surrogate pair, or 0: no JSON can hold the half itself."""

Frame = dict[str, Any]
"""JSON object that a CLI writes or reads. What it writes may lack any field or hold anything: the `get_*` functions read it."""

_ANY = msgspec.json.Decoder()
_MAYBE_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
# A lone half of a surrogate pair. The pattern consumes all other escapes, because `\\ud83d` is no escape of a half.
_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)


class MalformedError(Exception):
    """Frame of a known kind with an unexpected shape."""


def get_str(frame: Frame, name: str) -> str | None:
    """Return the text in a field; None for anything else."""
    value = frame.get(name)
    return value if isinstance(value, str) else None


def get_int(frame: Frame, name: str) -> int | None:
    """Return the whole number in a field, at most `LARGEST` of size; None for anything else."""
    value = frame.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST else None


def get_number(frame: Frame, name: str) -> float | None:
    """Return the number in a field, at most `LARGEST` of size: 10**400 is JSON, too, and no float holds it."""
    value = frame.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > LARGEST:
        return None
    return float(value)


def get_tokens(frame: Frame, name: str) -> int | None:
    """Return the count of tokens in a field; None for a negative one, or one that no turn can use."""
    value = get_int(frame, name)
    return value if value is not None and 0 <= value <= MOST_TOKENS else None


def get_cost(frame: Frame, name: str) -> float | None:
    """Return the cost in a field, in USD; None for a negative one, or one that no session can reach."""
    value = get_number(frame, name)
    return value if value is not None and 0 <= value <= MOST_USD else None


def get_dict(frame: Frame, name: str) -> Frame:
    """Return the object in a field; an empty one for anything else."""
    value = frame.get(name)
    return value if isinstance(value, dict) else {}


def get_dicts(frame: Frame, name: str) -> list[Frame]:
    """Return the objects of the list in a field; an empty list for anything else."""
    value = frame.get(name)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def get_strs(frame: Frame, name: str) -> list[str]:
    """Return the texts of the list in a field; an empty list for anything else."""
    value = frame.get(name)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def first_str(frame: Frame, *names: str) -> str | None:
    """Return the first of these fields with a text that is not empty, or None."""
    return next((text for name in names if (text := get_str(frame, name))), None)


def detail(text: str | None) -> str | None:
    """Return the beginning of a text for an event, or None for an empty text."""
    return text[:DETAIL_CHARS] if text else None


def status(name: str, text: str | None = None) -> BackendStatus:
    return BackendStatus(status=name, detail=detail(text))


def status_from(name: str, *fields: str) -> Callable[[Frame], list[EventBase]]:
    """Return a handler of frames that makes a status. Its detail is the first of `fields` with a text."""
    return lambda frame: [status(name, first_str(frame, *fields))]


def excerpt(data: bytes) -> str:
    """Return the first characters of a line, as valid text."""
    return data[: EXCERPT_CHARS * 4].decode("utf-8", "replace")[:EXCERPT_CHARS]


def too_deep(data: bytes, value: object) -> bool:
    """Tell whether `value`, which was read from `data`, is nested deeper than an event can be written."""
    return is_deeper(value, data, MAX_DEPTH)


def decode_any(data: bytes) -> object:
    """Read any JSON. Raises ValueError or RecursionError for invalid JSON."""
    value: object = _ANY.decode(data)
    return value


def mend(data: bytes) -> bytes:
    """Return the line as valid UTF-8 with whole characters. Each broken character becomes U+FFFD.

    claude writes halves of surrogate pairs if the model's text was cut between two deltas. Strict parsers refuse such a line.
    """
    valid = data if data.isascii() else data.decode("utf-8", "replace").encode()
    if not _MAYBE_HALF.search(valid):  # the substitution below makes a call for each escape
        return valid
    return _ESCAPES.sub(lambda match: b"\\ufffd" if match[1] else match[0], valid)


def join_halves(text: str, held: Half = 0) -> tuple[str, Half]:
    """Join surrogate halves, the first of them `held`. Return the text in whole characters, and a high half at its end.

    The half waits for its other half.
    """
    text = chr(held) + text if held else text
    half = ord(text[-1]) if text and "\ud800" <= text[-1] <= "\udbff" else 0
    body = text[:-1] if half else text
    return body.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"), half
