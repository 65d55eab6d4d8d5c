"""What an observer and an appender see of the engine during a run: lag of each event, place of each chain, longest gap."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import aclosing
from itertools import pairwise

from clisup.errors import WorldError
from clisup.fleet.chain import ChainReader, chunk_subject, read_chunk, read_subject
from clisup.fleet.engine import Engine
from clisup.model.journal import EventFrames
from clisup.policy.rate_limit import epoch

__all__ = ["Appender", "Watcher"]

EVERYTHING = "clisup.ev.>"
LAGS_KEPT = 500_000
EVERY_S = 0.05
_TS = re.compile(rb'"ts":"([^"]+)"')


class Watcher:
    """Reader of all chains. `lags` are the seconds from an event's time to its arrival here, while `measures`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._readers: dict[tuple[str, str], ChainReader] = {}
        self.events = 0
        self.lags = list[float]()
        self.measures = False

    async def run(self) -> None:
        """Read until cancelled, from the beginning again if the stream lost messages."""
        while True:
            async with aclosing(self._engine.read(EVERYTHING)) as messages:
                async for message in messages:
                    self._take(message.subject, message.headers, message.data)
            self._readers.clear()

    def _take(self, subject: str, headers: dict[str, str] | object, data: bytes) -> None:
        member, session, number = read_subject(subject)
        reader = self._readers.setdefault((member, session), ChainReader())
        if member == Appender.MEMBER:
            return
        now = time.time()
        for piece in reader.read(number, read_chunk(headers, data)):  # type: ignore[arg-type]
            if isinstance(piece, EventFrames):
                self.events += piece.end - piece.first
                if self.measures and len(self.lags) < LAGS_KEPT:
                    self.lags += [now - at for ts in _TS.findall(piece.data) if (at := epoch(ts.decode())) is not None]

    def has(self, member: str, session: str) -> int:
        """Return the last seq that arrived of a session."""
        reader = self._readers.get((member, session))
        return reader.have if reader else 0


class Appender:
    """Member that appends all the time, one message after the other. `gap_after` is what a node's kill costs it."""

    MEMBER = "probe"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.times = list[float]()

    async def run(self) -> None:
        """Append until cancelled. Look what is stored before each append behind a doubt."""
        subject, expected = chunk_subject(self.MEMBER, "probe"), None
        while True:
            try:
                if expected is None:
                    last = await self._engine.last(subject)
                    expected = last.position if last else 0
                expected = await self._engine.append(subject, b"x", expected=expected)
                if expected is not None:
                    self.times.append(time.monotonic())
            except WorldError:
                expected = None
            await asyncio.sleep(EVERY_S)

    def gap_after(self, killed_at: float, window_s: float = 30.0) -> float | None:
        """Return the longest time without an append in the window behind a kill, or None if there was no append."""
        times = [at for at in self.times if killed_at - 1.0 <= at <= killed_at + window_s]
        gaps = [after - before for before, after in pairwise(times)]
        return max(gaps, default=None)


async def until(what: Callable[[], bool], patience_s: float) -> float | None:
    """Return the seconds until `what()` is true, or None if it is not in time."""
    began = time.monotonic()
    while not what():
        if time.monotonic() - began > patience_s:
            return None
        await asyncio.sleep(0.1)
    return time.monotonic() - began
