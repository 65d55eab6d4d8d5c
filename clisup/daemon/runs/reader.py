"""Reader of a run's output: both spools as lines, in bounded steps.

The task that receives the keeper's message reads one step at once: waking another task for a single line would take
longer than the line. `pump` reads everything else. A step reads at most one chunk of each spool and ends after `STEP_S`.
Remaining lines wait for the next step. Between two steps of `pump` every other task has a turn, and runs with more to
read take turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice

import trio

from clisup.backends.base import Decoder
from clisup.config.model import LimitsConfig
from clisup.daemon.journal.storage import STORAGE_RETRY_S, Storage
from clisup.daemon.runs.batch import Batch
from clisup.daemon.runs.stderr import StderrEvents
from clisup.errors import WorldError
from clisup.host import clock
from clisup.model.lines.framing import Line, LineFramer
from clisup.model.lines.json_values import has_more_values
from clisup.model.lines.long_line import LONG_LINE, shorten
from clisup.store.spool import SpoolFile

__all__ = ["CHUNK_LINES", "STEP_S", "SpoolLines", "SpoolReader", "readable"]

STEP_S = 0.002
"""Longest time in seconds in which a step takes lines of one CLI. Journaling the events takes about as long.

The cost of lines differs by a factor of a thousand, so the clock ends a step, not a count of lines.
"""
CHUNK_LINES = 128
"""Most lines of one chunk. The daemon checks the clock between two chunks."""
LONG_BEGUN = 64 * 1024
"""Bytes of an unfinished line above which only `pump` reads, because a long line takes long."""


class SpoolLines(SpoolFile):
    """Lines of one spool. `waiting` holds lines that are read and not yet taken."""

    def __init__(self, path: str, offset: int, limit: int) -> None:
        super().__init__(path, offset)
        self.framer = LineFramer(offset=offset, limit=limit, pieces_over=LONG_LINE)
        self.waiting: deque[Line] = deque()

    def cut(self, data: bytes) -> None:
        """Cut the next bytes into lines."""
        self.waiting += self.framer.feed(data)

    def chunk(self, limit: int) -> Iterator[Line]:
        """Yield waiting lines, up to the first line of more than `limit` bytes."""
        for line in islice(self.waiting, CHUNK_LINES):
            if line.end - line.start > limit:
                return
            yield line

    @property
    def place(self) -> int:
        """Return the end of the last line taken."""
        return self.waiting[0].start if self.waiting else self.framer.offset - self.framer.pending


class SpoolReader:
    """Reader of the two spools of one run. `take` and `pump` read, one step at a time.

    `take_bytes` gets the new bytes of stdout, or no bytes while lines wait, and the end time of the step. `caught_up` runs
    once, when the first `behind` bytes of stdout are taken. `stored` runs after each step, when the journal has its events.
    All runs share `turns`.
    """

    def __init__(
        self,
        out: SpoolLines,
        err: SpoolLines,
        stderr: StderrEvents,
        batch: Batch,
        storage: Storage,
        turns: trio.Lock,
        *,
        take_bytes: Callable[[bytes, float], Awaitable[None]],
        stored: Callable[[], None],
        caught_up: Callable[[], None],
        behind: int,
    ) -> None:
        self._out, self._err, self._stderr = out, err, stderr
        self._batch, self._storage, self._turns = batch, storage, turns
        self._take_bytes, self._stored, self._caught_up = take_bytes, stored, caught_up
        self._behind = behind
        self._reading = False  # one task at a time; a lock costs as much as a read
        self._more = False  # the last step left something to `pump`
        self._wake = trio.Event()
        self._err_due = True  # stderr may have unread bytes

    def wake(self) -> None:
        """Let `pump` check again: the batch has something to store, or the run has ended."""
        self._wake.set()

    def check_both(self) -> None:
        """Let `pump` read both spools."""
        self._err_due = True
        self._wake.set()

    async def take(self, out_size: int, err_size: int) -> None:
        """Read one step, after the keeper's report of these sizes of the spools."""
        self._err_due = self._err_due or err_size > self._err.offset
        if out_size <= self._out.offset and not self._err_due:
            return  # the message is older than the last read
        busy = self._reading or self._more or self._out.framer.pending > LONG_BEGUN
        if busy or await self._step():
            self._wake.set()

    async def pump(self, has_ended: Callable[[], bool]) -> None:
        """Read to the end, wait for more, and return when the run has ended and everything is read."""
        while True:
            last = has_ended()
            self._wake = trio.Event()
            self._err_due = self._err_due or last
            while await self._next_step():
                # Taking the lock costs a round of the event loop. The lock then passes to the next waiter.
                async with self._turns:
                    pass
            if last:
                return
            if not has_ended():
                await self._wake.wait()

    async def between_steps(self, act: Callable[[], Awaitable[None]]) -> None:
        """Run `act` while no task reads."""
        await self._no_step()
        self._reading = True
        try:
            await act()
        finally:
            self._reading = False
            self._wake.set()

    async def _no_step(self) -> None:
        while self._reading:  # the other task waits for the disk, maybe in the middle of a step
            await trio.sleep(STORAGE_RETRY_S)

    async def _next_step(self) -> bool:
        await self._no_step()
        return await self._step()

    async def _step(self) -> bool:
        """Take one step of each spool and journal the events. Return whether there is more."""
        self._reading = True
        try:
            more = await self._take_out()
            if self._err_due or self._err.waiting:
                more = await self._take_err() or more
            await self._batch.store()
            self._stored()
            self._more = more
            return more
        finally:
            self._reading = False

    async def _take_out(self) -> bool:
        out = self._out
        had_waiting = bool(out.waiting)
        data = b"" if had_waiting else await self._read(out)
        if had_waiting or data:
            await self._take_bytes(data, clock.monotonic() + STEP_S)
        if self._behind >= 0 and out.offset >= self._behind and not out.waiting:
            self._behind = -1
            self._caught_up()
        return had_waiting or bool(out.waiting) or not out.at_end

    async def _take_err(self) -> bool:
        err = self._err
        if not err.waiting:
            if data := await self._read(err):
                err.cut(data)
            self._err_due = not err.at_end
        until = clock.monotonic() + STEP_S
        while err.waiting:
            self._stderr.take(err.waiting[0])
            err.waiting.popleft()
            if clock.monotonic() >= until:
                break
        return bool(err.waiting) or self._err_due

    async def _read(self, spool: SpoolLines) -> bytes:
        """Return the next bytes of a spool. Wait and try again while the disk refuses."""
        while True:
            try:
                data = spool.read()
            except WorldError as error:
                self._storage.refused(error)
                await self._batch.wait_for_disk(error)
            else:
                self._batch.disk_works()
                return data


async def readable(line: Line, decoder: Decoder, limits: LimitsConfig) -> Line:
    """Return the line in a form that a decoder can read.

    A line of megabytes is shortened step by step, so that the lines of other sessions do not wait. A line of more than
    `line_values` values becomes an oversize line without its text.
    """
    if line.pieces:
        steps = shorten(line, decoder.passes_on, over=limits.inline_bytes, most_values=limits.line_values)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                line = done.value
                break
            await trio.lowlevel.checkpoint()
    return line.without_text() if has_more_values(line.data, limits.line_values) else line
