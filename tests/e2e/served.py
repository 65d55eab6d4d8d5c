"""Tokens that a fake API has served: the ground truth for the sums that clisup tells.

Each API words its usage in its own way. The last usage of an answer is the answer's; Anthropic's has two halves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Condition
from typing import Any

_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "prompt_tokens", "promptTokenCount")
_OUTPUT = ("output_tokens", "completion_tokens", "candidatesTokenCount", "thoughtsTokenCount")


_STALLED_S = 1.0


@dataclass
class Served:
    """Sums over all whole answers. `broken` counts the answers that were begun and not sent to their end: what a CLI
    counts of them is its own affair.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    broken: int = 0
    _sending: int = field(default=0, repr=False, compare=False)
    _lock: Condition = field(default_factory=Condition, repr=False, compare=False)

    def begin(self) -> None:
        """Count an answer as broken until its end."""
        with self._lock:
            self.broken += 1
            self._sending += 1

    def left(self) -> None:
        """Note that no more of an answer is sent."""
        with self._lock:
            self._sending -= 1
            self._lock.notify_all()

    def end(self, usage: dict[str, int]) -> None:
        """Add the usage of a whole answer, as `note_usage` has gathered it."""
        with self._lock:
            self.broken -= 1
            self.input_tokens += usage.get("input", 0)
            self.output_tokens += usage.get("output", 0)

    def so_far(self) -> dict[str, int]:
        """Return the sums as they stand in a meta file."""
        with self._lock:
            return {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens, "broken": self.broken}

    def tokens(self, before: dict[str, int] | None = None) -> tuple[int, int]:
        """Return the input and the output tokens of whole answers, of all of them or of those after `before` was noted.

        A CLI may have an answer before this thread has counted it. An answer that stalls is not waited for.
        """
        with self._lock:
            self._lock.wait_for(lambda: not self._sending, timeout=_STALLED_S)
        counts = self.so_far() if before is None else self.since(before)
        return counts["input_tokens"], counts["output_tokens"]

    def since(self, before: dict[str, int]) -> dict[str, int]:
        """Return what was served after `before` was noted."""
        return {name: count - before[name] for name, count in self.so_far().items()}


def note_usage(gathered: dict[str, int], data: Any) -> None:
    """Take the usage out of one piece of an answer."""
    for usage in _usages(data):
        if told := [usage[name] for name in _INPUT if isinstance(usage.get(name), int)]:
            gathered["input"] = sum(told)
        if told := [usage[name] for name in _OUTPUT if isinstance(usage.get(name), int)]:
            gathered["output"] = sum(told)


def _usages(data: Any) -> Iterator[dict[str, Any]]:
    """Find the usage in a piece: at the top, or in the message or response that the piece brings."""
    for place in (data, data.get("message"), data.get("response")) if isinstance(data, dict) else ():
        if isinstance(place, dict):
            for name in ("usage", "usageMetadata"):
                if isinstance(usage := place.get(name), dict):
                    yield usage
