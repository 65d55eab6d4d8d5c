"""The newest events of sessions that somebody follows, as they were journaled: who keeps up reads no file.

A shelf holds them for all sessions together and lets go of what was not added to for longest. What is not here is read from
the journal; nothing waits here for anybody. Clients that fall behind a flood do so at about the same place, so the pages of
history that one of them has read are kept for the others, a few of them.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from clisup.wire.jsonrpc import encode_notifications

__all__ = ["PAGES_BYTES", "PIECE_BYTES", "SESSION_BYTES", "SHELF_BYTES", "Recent", "Shelf"]

PIECE_BYTES = 256 * 1024
"""About as much is given at once. It costs a copy, so it may be more than a piece that is read from the disk."""
SESSION_BYTES = 4 * 1024 * 1024
"""Of one session's events at most; a batch that is larger is kept alone, until the next one."""
SHELF_BYTES = 16 * 1024 * 1024
"""Of all sessions together."""
PAGES_BYTES = 4 * 1024 * 1024
"""Of pages of history, of all sessions together."""
_Batch = tuple[int, list[bytes], int]  # first seq, envelopes, bytes
_NOTHING: deque[_Batch] = deque()
"""An empty one takes 0.7 KB, and most sessions have nobody who follows: they share it, and nobody adds to it."""


class Recent:
    """One session's newest events, without a hole up to its last one."""

    __slots__ = ("_batches", "_last", "_shelf", "size")

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._batches = _NOTHING
        self._last: tuple[int, int, bytes] = (
            0,
            0,
            b"",
        )  # from, next, frames: what the last one got the next one wants too
        self.size = 0

    def add(self, first_seq: int, events: list[bytes], size: int) -> None:
        """These were journaled."""
        if self._batches is _NOTHING:
            self._batches = deque()
        self._batches.append((first_seq, events, size))
        self.size += size
        self._shelf.total += size
        while self.size > SESSION_BYTES and len(self._batches) > 1:
            self._forget(self._batches.popleft())
        self._shelf.added(self)

    def clear(self) -> None:
        """Nobody follows any more."""
        self.make_room()
        self._shelf.forget_pages()

    def make_room(self) -> None:
        """Others need it; pages of history stay."""
        while self._batches:
            self._forget(self._batches.popleft())
        self._batches = _NOTHING
        self._last = (0, 0, b"")
        self._shelf.leave(self)

    def _forget(self, batch: _Batch) -> None:
        self.size -= batch[2]
        self._shelf.total -= batch[2]

    def has(self, seq: int) -> bool:
        """Is the event here, and all that came after it?"""
        return bool(self._batches) and seq >= self._batches[0][0]

    def after(self, seq: int) -> tuple[int, list[bytes]] | None:
        """The events from `seq` on, up to about `PIECE_BYTES`, and the seq after them; None where the journal must be read."""
        if not self.has(seq) or seq >= self._end:
            return None
        wanted: list[_Batch] = []
        for batch in reversed(self._batches):  # who keeps up wants the last one alone
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
        """The same as the frames that a client gets; made once where many ask for the same."""
        if self._last[0] == seq and self._last[1] == self._end:
            return self._last[1:]
        found = self.after(seq)
        if found is None:
            return None
        self._last = (seq, found[0], encode_notifications("session/event", found[1]))
        return self._last[1:]

    def page(self, seq: int) -> tuple[int, bytes] | None:
        """The frames from `seq` on that another client has read from the journal just now, and the seq after them."""
        return self._shelf.pages.get((self, seq))

    def keep_page(self, seq: int, after: int, frames: bytes) -> None:
        """A client has read these; others may want them next."""
        self._shelf.keep_page((self, seq), (after, frames))

    @property
    def _end(self) -> int:
        return self._batches[-1][0] + len(self._batches[-1][1]) if self._batches else 0


class Shelf:
    """The room that all sessions share."""

    def __init__(self, limit: int = SHELF_BYTES) -> None:
        self._limit = limit
        self._order: OrderedDict[Recent, None] = OrderedDict()
        self.total = 0
        self.pages: OrderedDict[tuple[Recent, int], tuple[int, bytes]] = OrderedDict()
        self._pages_bytes = 0

    def added(self, recent: Recent) -> None:
        """It is the newest now; the oldest make room."""
        self._order[recent] = None
        self._order.move_to_end(recent)
        while self.total > self._limit and len(self._order) > 1:
            next(iter(self._order)).make_room()

    def keep_page(self, key: tuple[Recent, int], page: tuple[int, bytes]) -> None:
        """The oldest make room; one that is larger than all of it is not kept."""
        self._pages_bytes += len(page[1]) - len(self.pages.pop(key, (0, b""))[1])
        self.pages[key] = page
        while self._pages_bytes > PAGES_BYTES:
            self._pages_bytes -= len(self.pages.popitem(last=False)[1][1])

    def forget_pages(self) -> None:
        """Nobody follows one of the sessions any more: who wants pages of the others reads them again."""
        self.pages.clear()
        self._pages_bytes = 0

    def leave(self, recent: Recent) -> None:
        """It holds nothing."""
        self._order.pop(recent, None)
