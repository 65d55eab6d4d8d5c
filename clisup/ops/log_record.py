"""Cleaning of log records: bounded, rate-limited, without secrets, and with exceptions without their texts. Pure.

The text of an exception may hold anything: a prompt that did not parse, a model's output, a value. So the log shows its
class and its place. Its text is logged only for clisup's own errors, for the system's text of an errno, and at level
debug.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

from clisup.errors import ClisupError

MAX_FIELD = 4096
"""Limit of a field's text, in characters."""
MAX_TRACEBACK = 16_384
"""Limit of a traceback, in characters. Its end is kept."""
MAX_FRAMES = 30
"""Limit of frames of one exception. The innermost frames are kept."""
MAX_CHAIN = 8
_MAX_ITEMS = 50
_MAX_DEPTH = 3
_CAUSE = "\nwhich was the cause of:\n"

Redact = Callable[[str], str]


def cleaned(record: Mapping[str, Any], redact: Redact) -> dict[str, Any]:
    """Return the record with every text redacted and cut, also in nested lists and mappings.

    None fields are left out.
    """
    found = {name: _cleaned(name, value, redact, 0) for name, value in record.items() if value is not None}
    return {redact(str(name)): value for name, value in found.items()}


def _cleaned(name: str, value: Any, redact: Redact, depth: int) -> Any:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return _members(value, redact, depth + 1) if depth < _MAX_DEPTH else "…"
    text = redact(str(value))  # redacted before it is cut, or half a secret would stay at the end
    if name == "exception":
        return text[-MAX_TRACEBACK:]
    return text if len(text) <= MAX_FIELD else text[: MAX_FIELD - 1] + "…"


def _members(value: Any, redact: Redact, depth: int) -> Any:
    if isinstance(value, Mapping):
        items = list(value.items())[:_MAX_ITEMS]
        return {redact(str(key)[:MAX_FIELD]): _cleaned("", item, redact, depth) for key, item in items}
    members = sorted(value, key=str) if isinstance(value, set | frozenset) else value
    return [_cleaned("", item, redact, depth) for item in members[:_MAX_ITEMS]]


def traceback_text(error: BaseException, *, texts: bool = False) -> str:
    """Return the place of an exception, with its causes and the members of a group.

    With `texts`, include their texts.
    """
    return _CAUSE.join("\n".join(_one(each, texts, 0)) for each in reversed(list(_chain(error))))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and its causes, latest first."""
    current: BaseException | None = error
    for _ in range(MAX_CHAIN):
        if current is None:
            return
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _one(error: BaseException, texts: bool, depth: int) -> Iterator[str]:
    if error.__traceback__ is not None:
        yield "Traceback (most recent call last):"
        yield from _frames(error.__traceback__)
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    said = str(error) if texts else _harmless(error)
    yield f"{name}: {said}" if said else name
    if isinstance(error, BaseExceptionGroup) and depth < MAX_CHAIN:
        for member in error.exceptions[:_MAX_ITEMS]:
            yield from (f"  | {line}" for line in _one(member, texts, depth + 1))


def _frames(trace: TracebackType) -> Iterator[str]:
    for frame in traceback.extract_tb(trace)[-MAX_FRAMES:]:
        yield f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}'
        if frame.line:
            yield f"    {frame.line}"


def _harmless(error: BaseException) -> str:
    """Return the safe part of an exception's text: clisup's own message, or the system's for an errno.

    The result never holds a file's name or a value.
    """
    if isinstance(error, ClisupError):
        return error.message
    if isinstance(error, OSError) and error.errno is not None:
        return f"[Errno {error.errno}] {error.strerror}"
    return ""


BURST = 20
"""Lines of one limited event that may come at once."""
RATE = 1.0
"""Lines of one limited event a second, after the burst."""


class LogRate:
    """Buckets of all limited events. `held` counts all held lines, by event."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}
        self._since: Counter[str] = Counter()
        self.held: Counter[str] = Counter()

    def take(self, event: str, now: float) -> int | None:
        """Return None if the event must not be logged.

        Otherwise return the number of lines held since the last logged one.
        """
        left, at = self._left.get(event, (float(BURST), now))
        left = min(float(BURST), left + (now - at) * RATE)
        if left < 1:
            self._left[event] = (left, now)
            self._since[event] += 1
            self.held[event] += 1
            return None
        self._left[event] = (left - 1, now)
        return self._since.pop(event, 0)
