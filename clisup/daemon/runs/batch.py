"""Events of a run on their way into the journal, in order, after their blobs. A full disk makes them wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import structlog
import trio

from clisup.daemon.sessions.recorder import Item
from clisup.daemon.storage import STORAGE_RETRY_S, Storage
from clisup.errors import WorldError
from clisup.model.events import StderrLine
from clisup.policy.spill import Blob
from clisup.store.session_dir import RunDir

__all__ = ["Batch", "Recording"]

BESIDE = 128 * 1024
"""Bytes of a blob that is written in a thread: the loop would wait some tenths of a millisecond and more for it."""
T = TypeVar("T")
_log = structlog.get_logger()


class Recording(Protocol):
    """Journal of a batch."""

    def record(self, items: Sequence[Item]) -> int:
        """Journal all items or none. Raises `WorldError(storage_failed)`."""


class Batch:
    """Batch of one run. `on_blocked` is called when the disk refuses writes, and when it takes them again."""

    def __init__(self, sink: Recording, run_dir: RunDir, storage: Storage, on_blocked: Callable[[bool], None]) -> None:
        self._sink = sink
        self._dir = run_dir
        self._storage = storage
        self._on_blocked = on_blocked
        self._items: list[Item] = []
        self.stderr_lines = 0  # stderr lines that wait here
        self._blobs: list[Blob] = []
        self._long: list[Blob] = []
        self._writing = trio.Lock()
        self._blocked_by: set[str] = set()

    def add(self, item: Item, blobs: Sequence[Blob] = ()) -> None:
        """Add an item to the next `store`."""
        self._items.append(item)
        self.stderr_lines += type(item.event) is StderrLine
        for blob in blobs:
            small = isinstance(blob.data, bytes) and len(blob.data) <= BESIDE
            (self._blobs if small else self._long).append(blob)

    def fold(self, item: Item, joined: Callable[[Item, Item], Item | None]) -> bool:
        """Join the item with the last one that waits. Return False if there is none, or if they cannot be joined."""
        if not self._items or (both := joined(self._items[-1], item)) is None:
            return False
        self._items[-1] = both
        return True

    def extend(self, items: Sequence[Item]) -> None:
        """Add items of stdout that have no blobs."""
        self._items += items

    async def store(self) -> None:
        """Journal the batch."""
        while self._items:
            if self._long:
                await self._write_long()
            await self.surely(self.store_now)

    async def _write_long(self) -> None:
        """Write the long blobs in a thread. They stay in the batch until they are whole."""
        async with self._writing:
            while self._long:
                blob = self._long[0]
                try:
                    with self._storage.watched():
                        await trio.to_thread.run_sync(self._dir.save_blob, blob.name, blob.data)
                except WorldError as error:
                    await self._refused(error)
                else:
                    del self._long[0]

    def store_now(self) -> None:
        """Journal the whole batch or nothing. Raises `WorldError(storage_failed)`.

        If a long blob is not written yet, `store` journals the batch after it.
        """
        if self._long:
            return
        if self._blobs:
            with self._storage.watched():
                for blob in self._blobs:
                    self._dir.save_blob(blob.name, blob.data)
        self._sink.record(self._items)
        self._items, self.stderr_lines = [], 0
        self._blobs = []

    async def surely(self, action: Callable[[], T]) -> T:
        """Run the action. Wait and repeat it while the disk refuses."""
        while True:
            try:
                done = action()
            except WorldError as error:
                await self._refused(error)
            else:
                if self._blocked_by:
                    self.blocked("journal", False)
                return done

    async def _refused(self, error: WorldError) -> None:
        if not self._blocked_by:
            _log.error("turn waits for the disk", session=self._dir.session, run=self._dir.number, error=error.message)
        self.blocked("journal", True)
        await trio.sleep(STORAGE_RETRY_S)

    def blocked(self, by: str, blocked: bool) -> None:
        """Record that the disk refuses the journal or the keeper's spool, or that it takes them again."""
        was = bool(self._blocked_by)
        (self._blocked_by.add if blocked else self._blocked_by.discard)(by)
        if bool(self._blocked_by) != was:
            self._on_blocked(not was)
