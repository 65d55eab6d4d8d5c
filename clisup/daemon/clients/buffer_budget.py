"""The bytes that the daemon holds for its clients: half frames, and answers that are not sent. Together they have a limit.

Where it is passed, the connection that has held the most bytes for the longest goes, as often as it takes. A client that
reads what it asked for, and ends the frames that it begins, holds much only for moments.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

__all__ = ["Holding", "Holdings"]


class Holdings:
    """Of all connections. `limit` is in bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._each: set[Holding] = set()

    def of_a_connection(self) -> Holding:
        """A new connection's: nothing yet."""
        return Holding(self)

    def change(self, holding: Holding, by: int) -> None:
        """One holds more, or less; where all now hold too much, the worst are told to go."""
        self.total += by
        (self._each.add if holding.bytes else self._each.discard)(holding)
        while self.total > self.limit and self._each:
            now = trio.current_time()
            worst = max(self._each, key=lambda each: each.weight(now))
            self.drop(worst)
            worst.forfeit()

    def drop(self, holding: Holding) -> None:
        """What this one holds counts no more."""
        self.total -= holding.bytes
        self._each.discard(holding)


class Holding:
    """Of one connection. `on_forfeit` is called once, when it has to go: from then on its bytes do not count."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._since = trio.current_time()
        self.bytes = 0
        self.forfeited = False
        self.on_forfeit: Callable[[], None] = _nothing

    @property
    def limit(self) -> int:
        """Of all connections together."""
        return self._holdings.limit

    def change(self, by: int) -> None:
        """More bytes are held, or less (which is progress: time counts anew)."""
        if not by:
            return
        if by < 0 or not self.bytes:
            self._since = trio.current_time()
        self.bytes += by
        if not self.forfeited:
            self._holdings.change(self, by)

    def close(self) -> None:
        """The connection has ended."""
        if not self.forfeited:
            self.forfeited = True
            self._holdings.drop(self)

    def weight(self, now: float) -> float:
        """How much for how long."""
        return self.bytes * (now - self._since)

    def forfeit(self) -> None:
        """Over with it."""
        self.forfeited = True
        self.on_forfeit()


def _nothing() -> None:
    pass
