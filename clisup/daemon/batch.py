"""What a run has to journal: its events in order, their blobs first; while the disk refuses it waits, with frozen timers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import structlog
import trio

from clisup.core.deltas import DeltaRow
from clisup.core.events import StderrLine
from clisup.core.spill import Blob
from clisup.daemon.recorder import Entry, Item
from clisup.daemon.storage import STORAGE_RETRY_S, Storage
from clisup.errors import WorldError
from clisup.host.session_dir import RunDir

__all__ = ["Batch", "Recording"]

T = TypeVar("T")
_log = structlog.get_logger()


class Recording(Protocol):
    """Where a batch goes."""

    def record(self, entries: Sequence[Entry]) -> int:
        """Journal all of them or none. Raises `WorldError(storage_failed)`."""


class Batch:
    """One run's. `on_blocked` is told when the disk stops taking anything, and when it does again."""

    def __init__(self, sink: Recording, run_dir: RunDir, storage: Storage, on_blocked: Callable[[bool], None]) -> None:
        self._sink = sink
        self._dir = run_dir
        self._storage = storage
        self._on_blocked = on_blocked
        self._entries: list[Entry] = []
        self._blobs: list[Blob] = []
        self._blocked_by: set[str] = set()

    def add(self, item: Item, blobs: Sequence[Blob] = ()) -> None:
        """To be journaled with the next `store`."""
        self._entries.append(item)
        if blobs:
            self._blobs += blobs

    def add_row(self, row: DeltaRow) -> None:
        """The same for a row of deltas."""
        self._entries.append(row)

    @property
    def stderr_lines(self) -> int:
        """How many lines of stderr wait here."""
        return sum(isinstance(entry, Item) and type(entry.event) is StderrLine for entry in self._entries)

    async def store(self) -> None:
        """Journal the batch."""
        while self._entries:
            await self.surely(self.store_now)

    def store_now(self) -> None:
        """Journal the batch, or none of it. Raises `WorldError(storage_failed)`."""
        if self._blobs:
            with self._storage.watched():
                for blob in self._blobs:
                    self._dir.save_blob(blob.name, blob.data)
        self._sink.record(self._entries)
        self._entries = []
        self._blobs = []

    async def surely(self, action: Callable[[], T]) -> T:
        """Do it; while the disk refuses, wait rather than lose or skip."""
        while True:
            try:
                done = action()
            except WorldError as error:
                if not self._blocked_by:
                    _log.error(
                        "turn waits for the disk", session=self._dir.session, run=self._dir.number, error=error.message
                    )
                self.blocked("journal", True)
                await trio.sleep(STORAGE_RETRY_S)
            else:
                if self._blocked_by:
                    self.blocked("journal", False)
                return done

    def blocked(self, by: str, blocked: bool) -> None:
        """The journal, or the keeper's spool, meets a disk that takes nothing; or does no longer."""
        was = bool(self._blocked_by)
        (self._blocked_by.add if blocked else self._blocked_by.discard)(by)
        if bool(self._blocked_by) != was:
            self._on_blocked(not was)
