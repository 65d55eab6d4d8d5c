"""Rate limit of log events: a burst, then a number of lines a second.

The next line reports the number of held lines. Pure.
"""

from __future__ import annotations

from collections import Counter

__all__ = ["BURST", "RATE", "LogRate"]

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
