"""Table of all members as this box has heard of them: beats, and rows of sessions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, Literal, NamedTuple

from clisup.errors import WorldError
from clisup.fleet.agent.records import BoxBeat, read_beat, read_record
from clisup.fleet.agent.waiting import wait_at_most
from clisup.fleet.engine import Bucket, BucketEntry, Engine
from clisup.fleet.jobs import BEAT_S, GONE_S, HeardBeats
from clisup.host.log import event_logger

__all__ = ["HeardBox", "Table"]

MAX_MEMBERS = 1000
MAX_ROWS, MAX_ROW_BYTES = 20_000, 32 * 1024 * 1024
"""Rows of one member, and their bytes. A member that has more takes no room from the others."""
AGAIN_S = 1.0
_log = event_logger()

BoxState = Literal["ok", "away", "daemon_down"]


class HeardBox(NamedTuple):
    """Last beat of a member, and when this box heard it, on its own monotonic clock."""

    beat: BoxBeat
    heard: float


class Table:
    """Members and their sessions. `changed` wakes those that wait for news; its waiters look again.

    A box that may not look at others has its own rows only (`looks`).
    """

    def __init__(self, engine: Engine, me: str, *, looks: bool = True) -> None:
        self._boxes, self._sessions = Bucket(engine, "BOXES"), Bucket(engine, "SESSIONS")
        self.me, self._looks = me, looks
        self.beats = HeardBeats(me)
        self._heard: dict[str, HeardBox] = {}
        self._rows: dict[str, dict[str, dict[str, Any]]] = {}
        self._sizes: dict[str, dict[str, int]] = {}
        self._bytes: dict[str, int] = {}
        self._waiting: set[asyncio.Event] = set()

    async def run(self) -> None:
        """Read beats and rows until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            rows = "" if self._looks else self.me
            tasks.create_task(self._watch(self._boxes.watch, self._take_beat, self._forget_beats))
            tasks.create_task(
                self._watch(partial(self._sessions.watch, member=rows), self._take_row, self._forget_rows)
            )
            tasks.create_task(self._grow_old())

    # -- what is known

    @property
    def members(self) -> list[str]:
        """Return the members that were ever heard of, this box included."""
        return sorted({*self._heard, *self._rows})

    def box(self, member: str) -> HeardBox | None:
        """Return the last beat of a member, or None without one."""
        return self._heard.get(member)

    def state(self, member: str) -> BoxState:
        """Return whether a member is there. Without a beat for `GONE_S` it is away."""
        heard = self._heard.get(member)
        if heard is None or time.monotonic() - heard.heard > GONE_S:
            return "away"
        return "ok" if heard.beat.daemon == "up" else "daemon_down"

    def runs(self, member: str, account: str) -> bool:
        """Tell whether a member is there and runs a shared account, as its last beat says."""
        heard = self._heard.get(member)
        return heard is not None and self.state(member) == "ok" and account in heard.beat.accounts

    def silence_s(self, member: str) -> float | None:
        """Return the seconds since the last beat, or None without one."""
        heard = self._heard.get(member)
        return None if heard is None else time.monotonic() - heard.heard

    def rows(self, member: str) -> dict[str, dict[str, Any]]:
        """Return the rows of a member's sessions by id."""
        return self._rows.get(member, {})

    async def wait(self, limit_s: float) -> None:
        """Wait for a change, at most `limit_s` seconds."""
        self._waiting.add(event := asyncio.Event())
        try:
            await wait_at_most(event, limit_s)
        finally:
            self._waiting.discard(event)

    # -- news

    async def _watch(
        self,
        watch: Callable[[int], AsyncGenerator[BucketEntry, None]],
        take: Callable[[BucketEntry], None],
        forget: Callable[[], None],
    ) -> None:
        after = 0
        while True:
            try:
                async with aclosing(watch(after)) as entries:
                    async for entry in entries:
                        after = entry.revision
                        try:
                            take(entry)
                        except WorldError as error:  # a later clisup wrote it, or a box lies
                            _log.warning("record of a box not read", key=entry.key[:100], error=error.message)
                        self._wake()
                after = 0  # the engine lost what this box has read
                forget()
            except WorldError:
                pass
            await asyncio.sleep(AGAIN_S)

    def _take_beat(self, entry: BucketEntry) -> None:
        beat, now = read_beat(entry.value), time.monotonic()
        before = self._heard.get(entry.key)
        if before is None and len(self._heard) >= MAX_MEMBERS:
            return
        age = max(0.0, time.time() - entry.at) if before is None else 0.0  # an old beat, read at the start
        self._heard[entry.key] = HeardBox(beat, now - min(age, GONE_S))
        self.beats.hear(entry.key, beat.incarnation, now)

    def _forget_beats(self) -> None:
        """Keep the beats: their age says enough."""

    def _forget_rows(self) -> None:
        for known in (self._rows, self._sizes, self._bytes):
            known.clear()

    def _take_row(self, entry: BucketEntry) -> None:
        member, _, session_id = entry.key.partition(".")
        row = read_record(entry.value, session_id).row
        rows, sizes = self._rows.setdefault(member, {}), self._sizes.setdefault(member, {})
        size = len(entry.value) if row is not None else 0
        total = self._bytes.get(member, 0) - sizes.get(session_id, 0) + size
        if row is None or (total > MAX_ROW_BYTES or (session_id not in rows and len(rows) >= MAX_ROWS)):
            total -= size
            rows.pop(session_id, None), sizes.pop(session_id, None)
        else:
            rows[session_id], sizes[session_id] = row, size
        self._bytes[member] = total

    async def _grow_old(self) -> None:
        """Wake the waiters when a box may have become silent."""
        while True:
            await asyncio.sleep(BEAT_S)
            self._wake()

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()
