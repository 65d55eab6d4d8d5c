"""Cache of the newest events of followed sessions. A client that keeps up needs no read from the journal.

All sessions share one limit. The cache drops the events of the session that was quiet for longest. Readers take events that are
not in the cache from the journal.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from clisup.wire.jsonrpc import encode_notifications

__all__ = ["CACHE_BYTES", "PIECE_BYTES", "SESSION_BYTES", "EventCache", "RecentEvents"]

PIECE_BYTES = 256 * 1024
"""Approximate size of one piece. A piece costs one copy, so it may be larger than a piece from the disk."""
SESSION_BYTES = 4 * 1024 * 1024
"""Limit of one session. A larger batch stays alone, until the next batch."""
CACHE_BYTES = 16 * 1024 * 1024
"""Limit of all sessions together."""
_Batch = tuple[int, list[bytes], int]  # first seq, envelopes, bytes
_NO_BATCHES: deque[_Batch] = deque()
"""Shared by all sessions without followers, and always empty: an empty deque takes 0.7 KB."""
_NO_FRAMES = (0, 0, b"")


class RecentEvents:
    """Newest events of one session, without a hole up to the last event."""

    __slots__ = ("_batches", "_cache", "_last", "size")

    def __init__(self, cache: EventCache) -> None:
        self._cache = cache
        self._batches = _NO_BATCHES
        self._last = _NO_FRAMES  # first seq, next seq, frames: followers that keep up want the same frames
        self.size = 0

    def add(self, first_seq: int, events: list[bytes], size: int) -> None:
        """Add journaled events. The oldest batches go if the session is over its limit."""
        if self._batches is _NO_BATCHES:
            self._batches = deque()
        self._batches.append((first_seq, events, size))
        self.size += size
        self._cache.total += size
        while self.size > SESSION_BYTES and len(self._batches) > 1:
            self._drop(self._batches.popleft())
        self._cache.touch(self)

    def clear(self) -> None:
        """Drop all events: the session has no followers, or other sessions need the memory."""
        while self._batches:
            self._drop(self._batches.popleft())
        self._batches = _NO_BATCHES
        self._last = _NO_FRAMES
        self._cache.remove(self)

    def _drop(self, batch: _Batch) -> None:
        self.size -= batch[2]
        self._cache.total -= batch[2]

    def has(self, seq: int) -> bool:
        """Return True if the cache has this event and all events after it."""
        return bool(self._batches) and seq >= self._batches[0][0]

    def after(self, seq: int) -> tuple[int, list[bytes]] | None:
        """Return the next seq and the events from `seq` on, about `PIECE_BYTES`. Return None if there are none in the cache."""
        if not self.has(seq) or seq >= self._end:
            return None
        wanted: list[_Batch] = []
        for batch in reversed(self._batches):  # a client that keeps up wants only the last batch
            wanted.append(batch)
            if batch[0] <= seq:
                break
        first, events, size = wanted.pop()
        events = events[seq - first :]
        while wanted and size < PIECE_BYTES:
            _, more, bytes_ = wanted.pop()
            events += more
            size += bytes_
        return seq + len(events), events

    def frames(self, seq: int) -> tuple[int, bytes] | None:
        """Return the same as frames for clients. Clients that ask for the same events share the frames."""
        if self._last[0] == seq and self._last[1] == self._end:
            return self._last[1:]
        found = self.after(seq)
        if found is None:
            return None
        self._last = (seq, found[0], encode_notifications("session/event", found[1]))
        return self._last[1:]

    @property
    def _end(self) -> int:
        return self._batches[-1][0] + len(self._batches[-1][1]) if self._batches else 0


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
