"""Budget for the bytes that the daemon buffers for its clients: half frames, and unsent answers.

Over the limit, the daemon closes the connection with the largest product of bytes and time, and repeats this as needed. A
client that reads its answers and completes its frames holds much memory only for moments.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

__all__ = ["BufferBudget", "HeldBytes"]


class BufferBudget:
    """Buffered bytes of all connections. `limit` is in bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._each: set[HeldBytes] = set()

    def add(self, held: HeldBytes, by: int) -> None:
        """Count more bytes of a connection, or less. Evict connections while the total is over the limit."""
        self.total += by
        (self._each.add if held.bytes else self._each.discard)(held)
        while self.total > self.limit and self._each:
            now = trio.current_time()
            worst = max(self._each, key=lambda each: each.weight(now))
            self.remove(worst)
            worst.evict()

    def remove(self, held: HeldBytes) -> None:
        """Stop counting the bytes of a connection."""
        self.total -= held.bytes
        self._each.discard(held)


class HeldBytes:
    """Buffered bytes of one connection. The budget calls `on_evict` once, when the connection must end."""

    def __init__(self, budget: BufferBudget) -> None:
        self._budget = budget
        self._since = trio.current_time()
        self.bytes = 0
        self.evicted = False
        self.on_evict: Callable[[], None] | None = None

    @property
    def limit(self) -> int:
        """Limit of all connections together, in bytes."""
        return self._budget.limit

    def add(self, by: int) -> None:
        """Count more bytes, or less. Less is progress: the time starts again."""
        if not by:
            return
        if by < 0 or not self.bytes:
            self._since = trio.current_time()
        self.bytes += by
        if not self.evicted:
            self._budget.add(self, by)

    def close(self) -> None:
        """Stop counting: the connection has ended."""
        if not self.evicted:
            self.evicted = True
            self._budget.remove(self)

    def weight(self, now: float) -> float:
        """Return the product of bytes and seconds."""
        return self.bytes * (now - self._since)

    def evict(self) -> None:
        """End the connection. Its bytes count no more."""
        self.evicted = True
        if self.on_evict is not None:
            self.on_evict()
