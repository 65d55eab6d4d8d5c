"""How many lines of one event are let through: a burst, then so many a second. What was held back is told with the next. Pure."""

from __future__ import annotations

from collections import Counter

__all__ = ["BURST", "RATE", "LogRate"]

BURST = 20
"""Lines of one limited event that may come at once."""
RATE = 1.0
"""Lines of it a second, after that."""


class LogRate:
    """The buckets of all limited events. `held` counts what was held back in all, by event."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}
        self._since: Counter[str] = Counter()
        self.held: Counter[str] = Counter()

    def take(self, event: str, now: float) -> int | None:
        """May it be logged? None for no; else how many of it were held back since the last one that was."""
        left, at = self._left.get(event, (float(BURST), now))
        left = min(float(BURST), left + (now - at) * RATE)
        if left < 1:
            self._left[event] = (left, now)
            self._since[event] += 1
            self.held[event] += 1
            return None
        self._left[event] = (left - 1, now)
        return self._since.pop(event, 0)
