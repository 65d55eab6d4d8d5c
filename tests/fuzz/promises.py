"""What every target checks with: a broken promise is a finding, just as an exception that escapes."""

from __future__ import annotations

import json
import random
from typing import Any, NoReturn

__all__ = ["BrokenPromise", "cut", "promise", "strict_json"]


class BrokenPromise(AssertionError):
    """The code gave an answer, and it was wrong. The message names the promise, the same for all inputs that break it."""


def promise(kept: bool, what: str) -> None:
    if not kept:
        raise BrokenPromise(what)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key stands twice")
    return fields


_STRICT = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_unique)


def strict_json(data: bytes, what: str = "what we write is strict JSON") -> Any:
    """Read strict UTF-8 JSON on one line, as any client may demand of us and we of any client."""
    promise(b"\n" not in data, what)
    try:
        text = data.decode()
        value = _STRICT.decode(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except ValueError as error:
        raise BrokenPromise(f"{what}: {type(error).__name__}") from error
    return value


def cut(data: bytes, salt: int) -> list[bytes]:
    """The same bytes in pieces: single bytes, a few large ones, or something between; which, `salt` says."""
    if not data:
        return []
    rng = random.Random(salt)
    if salt % 16 == 0 and len(data) < 3000:
        return [data[at : at + 1] for at in range(len(data))]
    marks = sorted({int(rng.random() * len(data)) for _ in range(1 + int(rng.random() * 7))} - {0})
    return [data[start:end] for start, end in zip([0, *marks], [*marks, len(data)], strict=True)]
