"""The reading end of a run: what its keeper tells of is read at once, and its two spools to their ends, again and again.

A word of the keeper is heeded in the task that hears it, for one step: to wake another task for each line that comes alone
took longer than the line. Whatever is more than that, and all that the daemon itself has to say, is the pump's. A step reads
at most one chunk of each spool and ends after `STEP_S`; lines that are left over wait for the next step. Between two steps of
the pump every other task has its turn, and where several runs have more to read, one of them goes on at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

from clisup.daemon.runs.batch import Batch
from clisup.daemon.runs.pace import Pace, TimeSlice
from clisup.daemon.runs.spool_stream import Stream
from clisup.daemon.runs.stderr import Stderr
from clisup.daemon.storage import STORAGE_RETRY_S, Storage

__all__ = ["Intake"]

LONG_BEGUN = 64 * 1024
"""Bytes of a line whose end the pump reads."""


class IntakeOwner(Protocol):
    """Who makes events of what was read."""

    async def take_bytes(self, data: bytes, step: TimeSlice) -> None:
        """More of stdout, or none where lines of it wait: take lines until the step is over."""

    def caught_up(self) -> None:
        """All that was there at the start has been taken. Told once."""


class Intake:
    """`behind` is how much of stdout was there at the start."""

    def __init__(
        self, owner: IntakeOwner, out: Stream, err: Stderr, batch: Batch, storage: Storage, pace: Pace, *, behind: int
    ) -> None:
        self._owner, self._out, self._err = owner, out, err
        self._batch, self._storage, self._pace = batch, storage, pace
        self._behind = behind
        self._reading = False  # one task at a time; a lock costs as much as a read
        self._more = False  # the last step left something to the pump
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
        if self._reading or self._more or long or await self._take_step():
            self._wake.set()

    async def pump(self, has_ended: Callable[[], bool]) -> None:
        """Read to the end, wait for more, until the run has ended and all of it is read."""
        while True:
            last = has_ended()
            self._wake = trio.Event()
            self._err_due = self._err_due or last
            while await self._take_next():
                await self._pace.turn()
            if last:
                return
            if not has_ended():
                await self._wake.wait()

    async def _take_next(self) -> bool:
        while self._reading:  # the other one waits for the disk, maybe in the middle of a step
            await trio.sleep(STORAGE_RETRY_S)
        return await self._take_step()

    async def _take_step(self) -> bool:
        """Take one step of each spool and journal what came of it; is there more?"""
        self._reading = True
        try:
            out, err = await self._take_out(), await self._take_err()
            await self._batch.store()
            self._more = out or err
            return self._more
        finally:
            self._reading = False

    async def _take_out(self) -> bool:
        had_waited = self._out.waits
        data = b"" if had_waited else await self._batch.surely(lambda: self._read(self._out))
        if had_waited or data:
            await self._owner.take_bytes(data, TimeSlice())
        if self._behind >= 0 and self._out.reader.offset >= self._behind and not self._out.waits:
            self._behind = -1
            self._owner.caught_up()
        return had_waited or self._out.waits or not self._out.reader.at_end

    async def _take_err(self) -> bool:
        if self._err.waits:
            self._err.take_bytes(b"", TimeSlice())
        elif self._err_due:
            data = await self._batch.surely(lambda: self._read(self._err))
            self._err_due = not self._err.reader.at_end
            self._err.take_bytes(data, TimeSlice())
        return self._err.waits or self._err_due

    def _read(self, stream: Stream) -> bytes:
        with self._storage.watched():
            return stream.read()
