"""The reading end of a run: what its keeper tells of is read at once, and its two spools to their ends, again and again.

A word of the keeper is heeded in the task that hears it, up to one chunk of each spool: to wake another task for each line that
comes alone took longer than the line. Whatever is more than that, and all that the daemon itself has to say, is the pump's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

from clisup.daemon.batch import Batch
from clisup.daemon.stderr import Stderr
from clisup.daemon.storage import STORAGE_RETRY_S, Storage
from clisup.daemon.stream import Stream

__all__ = ["Intake"]

LONG_BEGUN = 64 * 1024
"""Bytes of a line whose end the pump reads."""


class IntakeOwner(Protocol):
    """Who makes events of what was read."""

    async def take_bytes(self, data: bytes) -> None:
        """More of stdout; never none."""

    def caught_up(self) -> None:
        """All that was there at the start has been taken. Told once."""


class Intake:
    """`behind` is how much of stdout was there at the start."""

    def __init__(
        self, owner: IntakeOwner, out: Stream, err: Stderr, batch: Batch, storage: Storage, *, behind: int
    ) -> None:
        self._owner, self._out, self._err = owner, out, err
        self._batch, self._storage = batch, storage
        self._behind = behind
        self._reading = False  # one task at a time; a lock costs as much as a read
        self._wake = trio.Event()
        self._err_due = True  # stderr may hold what was not read

    def wake(self) -> None:
        """Something is to be stored, or the run has ended."""
        self._wake.set()

    def grew(self) -> None:
        """There may be something to read, in both spools."""
        self._err_due = True
        self._wake.set()

    async def take(self, out_size: int, err_size: int) -> None:
        """The keeper says that its spools have so many bytes by now."""
        self._err_due = self._err_due or err_size > self._err.reader.offset
        if out_size <= self._out.reader.offset and not self._err_due:
            return  # a word that is older than the last read
        long = self._out.framer.pending > LONG_BEGUN  # what becomes of a long line takes its time
        if self._reading or long or await self._read_some():
            self._wake.set()

    async def pump(self, has_ended: Callable[[], bool]) -> None:
        """Read to the end, wait for more, until the run has ended and all of it is read."""
        while True:
            last = has_ended()
            self._wake = trio.Event()
            self._err_due = self._err_due or last
            while await self._read_next():
                await trio.lowlevel.checkpoint()
            if last:
                return
            if not has_ended():
                await self._wake.wait()

    async def _read_next(self) -> bool:
        while self._reading:  # the other one waits for the disk, maybe in the middle of a chunk
            await trio.sleep(STORAGE_RETRY_S)
        return await self._read_some()

    async def _read_some(self) -> bool:
        """One chunk of each; is there more?"""
        self._reading = True
        try:
            return await self._read_both()
        finally:
            self._reading = False

    async def _read_both(self) -> bool:
        if out := await self._batch.surely(lambda: self._read(self._out)):
            await self._owner.take_bytes(out)
        if self._behind >= 0 and self._out.reader.offset >= self._behind:
            self._behind = -1
            self._owner.caught_up()
        if self._err_due:
            err = await self._batch.surely(lambda: self._read(self._err))
            self._err_due = not self._err.reader.at_end
            for line in self._err.framer.feed(err):
                self._err.take(line)
        await self._batch.store()
        return self._err_due or not self._out.reader.at_end

    def _read(self, stream: Stream) -> bytes:
        with self._storage.watched():
            return stream.read()
