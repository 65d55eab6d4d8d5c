"""Batch: events of a run on the way to the journal, in order, after their blobs. A full disk delays the events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import trio
from msgspec.structs import replace

from clisup.daemon.journal.recorder import Item
from clisup.daemon.journal.storage import STORAGE_RETRY_S, Storage
from clisup.errors import WorldError
from clisup.host import clock
from clisup.host.log import event_logger
from clisup.host.threads import in_thread
from clisup.model.events import EventBase, StderrLine, Unparsed
from clisup.model.lines.framing import Line
from clisup.policy.spill import Blob, raw_name
from clisup.policy.storage_health import is_hopeless
from clisup.store.session_dir import RunDir

__all__ = ["Batch", "UnparsedLines"]

LONG_BLOB = 128 * 1024
"""Largest blob in bytes that the event loop writes. Threads write longer blobs, so that no other task waits."""
T = TypeVar("T")
_log = event_logger()


class Batch:
    """Batch of one run. `record` journals all items or none.

    `on_blocked` runs when the disk refuses writes, and when the disk accepts writes again.
    """

    def __init__(
        self,
        record: Callable[[Sequence[Item]], int],
        run_dir: RunDir,
        storage: Storage,
        on_blocked: Callable[[bool], None],
    ) -> None:
        self._record = record
        self._dir = run_dir
        self._storage = storage
        self._on_blocked = on_blocked
        self._items: list[Item] = []
        self.stderr_lines = 0  # waiting stderr lines
        self._blobs: list[Blob] = []
        self._long: list[Blob] = []
        self._writing = trio.Lock()
        self._refused_at = 0.0
        self.blocked_by: set[str] = set()  # "journal", "spool": the files that the disk refuses to write

    def add(self, item: Item, blobs: Sequence[Blob] = ()) -> None:
        """Add an item to the next `store`."""
        self._items.append(item)
        self.stderr_lines += type(item.event) is StderrLine
        for blob in blobs:
            small = isinstance(blob.data, bytes) and len(blob.data) <= LONG_BLOB
            (self._blobs if small else self._long).append(blob)

    def join_unparsed(self, item: Item) -> bool:
        """Join an unparsed line with the last waiting item. Return False if the two items cannot be joined."""
        if not self._items or (both := _joined(self._items[-1], item)) is None:
            return False
        self._items[-1] = both
        return True

    def extend(self, items: Sequence[Item]) -> None:
        """Add items of stdout without blobs."""
        self._items += items

    async def store(self) -> None:
        """Journal the batch."""
        while self._items:
            if self._long:
                await self._write_long()
            await self.with_retry(self.store_now)

    async def _write_long(self) -> None:
        """Write the long blobs in a thread. A blob stays in the batch until the whole blob is written."""
        async with self._writing:
            while self._long:
                blob = self._long[0]
                try:
                    with self._storage.watched():
                        await in_thread(self._dir.save_blob, blob.name, blob.data)
                except WorldError as error:
                    await self.wait_for_disk(error)
                else:
                    del self._long[0]

    def store_now(self) -> None:
        """Journal the whole batch or nothing. Raises `WorldError(storage_failed)`.

        Do nothing while a long blob is not written: `store` journals the batch later.
        """
        if self._long:
            return
        if self._blobs:
            with self._storage.watched():
                for blob in self._blobs:
                    self._dir.save_blob(blob.name, blob.data)
        self._record(self._items)
        self._items, self.stderr_lines = [], 0
        self._blobs = []

    async def with_retry(self, action: Callable[[], T]) -> T:
        """Call `action` and return the result. While the disk refuses, wait and try again."""
        while True:
            try:
                done = action()
            except WorldError as error:
                await self.wait_for_disk(error)
            else:
                self.disk_works()
                return done

    async def wait_for_disk(self, error: WorldError) -> None:
        """Record a refusal of the disk, and wait until the next try. Raises the error if there is no hope."""
        if "journal" not in self.blocked_by:
            self._refused_at = clock.monotonic()
        if is_hopeless(int(error.data.get("errno", 0)), clock.monotonic() - self._refused_at):
            raise error
        if not self.blocked_by:
            _log.error("turn waits for the disk", session=self._dir.session, run=self._dir.number, error=error.message)
        self.set_blocked("journal", True)
        await trio.sleep(STORAGE_RETRY_S)

    def disk_works(self) -> None:
        """Record a successful write or read."""
        if self.blocked_by:
            self.set_blocked("journal", False)

    def set_blocked(self, by: str, blocked: bool) -> None:
        """Record whether the disk refuses the journal or the keeper's spool."""
        was = bool(self.blocked_by)
        (self.blocked_by.add if blocked else self.blocked_by.discard)(by)
        if bool(self.blocked_by) != was:
            self._on_blocked(not was)


class UnparsedLines:
    """Unparsed lines of one turn. Beyond `limit`, consecutive lines share one event, which counts the lines.

    After a restart the same lines are decoded and counted again, or `seen` comes from the checkpoint. The place of a
    shared event ends with the last line. So no line of a shared event gets an event again.
    """

    def __init__(self, limit: int, seen: int) -> None:
        self._limit = limit  # the limit `unparsed_events`
        self.seen = seen

    def new_turn(self) -> None:
        """Start the count again."""
        self.seen = 0

    def count(self, event: EventBase) -> None:
        """Count the event of a decoded line."""
        self.seen += type(event) is Unparsed

    def join(self, item: Item, batch: Batch) -> bool:
        """Join the item with the last item of the batch. Return False if the item needs an event of its own."""
        if self.seen <= self._limit + 1 or type(item.event) is not Unparsed:
            return False  # the first line beyond the limit begins the first shared event
        return batch.join_unparsed(item)


def _joined(first: Item, then: Item) -> Item | None:
    """Return two unparsed lines of one turn and spool as one item, or None for other items."""
    one, two, begin, end = first.event, then.event, first.src, then.src
    if type(one) is not Unparsed or type(two) is not Unparsed or begin is None or end is None:
        return None
    if (first.turn_id, begin.run, begin.spool) != (then.turn_id, end.run, end.spool):
        return None
    blob = raw_name(end.run, end.spool, Line(begin.start, end.end, b""))
    whole = replace(one, bytes=one.bytes + two.bytes, lines=(one.lines or 1) + 1, blob=blob)
    return replace(first, event=whole, src=replace(end, start=begin.start))
