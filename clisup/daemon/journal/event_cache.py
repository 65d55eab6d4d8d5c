"""Cache of the newest events of followed sessions. A client that keeps up needs no read from the journal.

All sessions share one limit. The cache drops the events of the session that was quiet for longest. Readers take other
events from the journal.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable

from clisup.model.journal import EventFrames

__all__ = ["CACHE_BYTES", "PIECE_BYTES", "SESSION_BYTES", "EventCache", "RecentEvents"]

PIECE_BYTES = 256 * 1024
"""Approximate size of one piece. A piece costs one copy, so it may be larger than a piece from the disk."""
SESSION_BYTES = 4 * 1024 * 1024
"""Limit of one session. The last block stays, whatever its size."""
CACHE_BYTES = 16 * 1024 * 1024
"""Limit of all sessions together."""
_NO_BLOCKS: deque[EventFrames] = deque()
"""Shared by all sessions without followers, and always empty: an empty deque takes 0.7 KB."""


class RecentEvents:
    """Newest events of one session, without a hole up to the last event."""

    __slots__ = ("_blocks", "_cache", "size")

    def __init__(self, cache: EventCache) -> None:
        self._cache = cache
        self._blocks = _NO_BLOCKS
        self.size = 0

    def add(self, blocks: Iterable[EventFrames]) -> None:
        """Add journaled events. The oldest blocks go if the session is over its limit."""
        if self._blocks is _NO_BLOCKS:
            self._blocks = deque()
        for block in blocks:
            self._blocks.append(block)
            self.size += len(block.data)
            self._cache.total += len(block.data)
        while self.size > SESSION_BYTES and len(self._blocks) > 1:
            self._drop_oldest()
        self._cache.touch(self)

    def clear(self) -> None:
        """Drop all events: the session has no followers, or other sessions need the memory."""
        while self._blocks:
            self._drop_oldest()
        self._blocks = _NO_BLOCKS
        self._cache.remove(self)

    def _drop_oldest(self) -> None:
        size = len(self._blocks.popleft().data)
        self.size -= size
        self._cache.total -= size

    def has(self, seq: int) -> bool:
        """Return True if the cache has this event and all events after it."""
        return bool(self._blocks) and seq >= self._blocks[0].first

    def after(self, seq: int) -> EventFrames | None:
        """Return cached events from `seq` on, about `PIECE_BYTES`. Return None without cached events."""
        if not self.has(seq) or seq >= self._blocks[-1].end:
            return None
        wanted: list[EventFrames] = []
        for block in reversed(self._blocks):  # a client that keeps up wants only the last block
            wanted.append(block)
            if block.first <= seq:
                break
        first = wanted.pop()
        parts = [first.between(seq, first.end)]
        size = len(parts[0].data)
        while wanted and size < PIECE_BYTES:
            parts.append(wanted.pop())
            size += len(parts[-1].data)
        if len(parts) == 1:
            return parts[0]
        return EventFrames(seq, parts[-1].end, b"".join([part.data for part in parts]))


class EventCache:
    """Memory that all sessions share. `total` is in bytes."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._limit = limit
        self._order: OrderedDict[RecentEvents, None] = OrderedDict()  # the session that was quiet for longest is first
        self.total = 0

    def touch(self, recent: RecentEvents) -> None:
        """Note that a session is active, and clear quiet sessions while the cache is over its limit."""
        self._order[recent] = None
        self._order.move_to_end(recent)
        while self.total > self._limit and len(self._order) > 1:
            next(iter(self._order)).clear()

    def remove(self, recent: RecentEvents) -> None:
        """Forget a session without events."""
        self._order.pop(recent, None)
