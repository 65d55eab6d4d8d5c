"""Rate limits of accounts, shared by the boxes of the fleet: the daemon's news go to HOLDS, and HOLDS to the daemon.

Without the engine, or with a clock that is off, this box keeps its limits to itself, and its daemon holds turns alone.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, suppress
from typing import Any, NamedTuple, Protocol

import msgspec

from clisup.errors import ClisupError, UsageError, WorldError
from clisup.fleet.agent.waiting import wait_at_most
from clisup.fleet.engine import Bucket, Engine
from clisup.fleet.holds import AccountHold, believable, clock_agrees, next_step, read_hold, reported, write_hold
from clisup.host.log import event_logger
from clisup.policy.rate_limit import AccountLimit

__all__ = ["Holding"]

EVERY_S = 1.0
"""Seconds between two looks at the daemon's accounts."""
CLOCK_EVERY_S = 30.0
TELL_AGAIN_S = 20.0
"""Seconds after which the daemon hears again that another box probes. It forgets so after a minute."""
MAX_TEXT = 200
_log = event_logger()


class AccountsOfDaemon(Protocol):
    """Connection to this box's daemon."""

    async def call(self, method: str, /, **params: Any) -> Any:
        """Return the result of a method. Raises `ClisupError`."""


class _BeatTime(msgspec.Struct):
    at: float


class SeenHold(NamedTuple):
    """Hold as this box last read it. `since` is when it first saw the present probe, on the monotonic clock."""

    hold: AccountHold = AccountHold()
    revision: int = 0
    since: float = 0.0


class Holding:
    """Exchange of holds between this box's daemon and the engine. `clock_off_s` is the last measured difference."""

    def __init__(self, engine: Engine, member: str, daemon: AccountsOfDaemon) -> None:
        self._holds, self._beats = Bucket(engine, "HOLDS"), Bucket(engine, "BOXES")
        self._member, self._daemon = member, daemon
        self._seen: dict[str, SeenHold] = {}
        self._told: dict[str, tuple[bool, float]] = {}  # whether another box probes, and when the daemon heard it
        self._news = asyncio.Event()
        self.clock_off_s: float | None = None
        self._measured = -CLOCK_EVERY_S

    async def run(self) -> None:
        """Exchange holds until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            while True:
                self._news.clear()
                try:
                    found = await self._daemon.call("account/list")
                    for row in found["accounts"]:
                        await self._exchange(row, found["limit_hold_s"])
                except ClisupError:  # the next daemon has heard nothing yet
                    self._told.clear()
                await wait_at_most(self._news, EVERY_S)

    async def _watch(self) -> None:
        while True:
            try:
                async with aclosing(self._holds.watch()) as entries:
                    async for entry in entries:
                        self._note(entry.key, believable(_hold_of(entry.value), entry.at), entry.revision)
            except WorldError as error:
                _log.warning("holds not read", error=error.message)
            self._seen.clear()
            await asyncio.sleep(EVERY_S)

    def _note(self, key: str, hold: AccountHold, revision: int) -> None:
        seen = self._seen.get(key, SeenHold())
        if revision > seen.revision:
            since = seen.since if hold == seen.hold else time.monotonic()
            self._seen[key] = SeenHold(hold, revision, since)
            self._news.set()

    async def _exchange(self, row: dict[str, Any], hold_s: float) -> None:
        """Share one account's news in both directions."""
        name, own = row["account"], AccountLimit.model_validate(row["limit"])
        agrees = elsewhere = False
        try:
            if agrees := await self._clock_agrees():
                await self._offer(name, own)
                elsewhere = await self._others_probe(name, bool(row["waiting"] or row["probe"]), hold_s)
        except WorldError:  # the engine is away: this box is for itself
            pass
        limit = self._seen.get(_key(name), SeenHold()).hold.limit
        later = agrees and (limit.said_at or 0.0) > (own.said_at or 0.0)
        await self._tell(name, elsewhere, _learned(limit) if later else None)

    async def _offer(self, name: str, own: AccountLimit) -> None:
        new = reported(self._seen.get(_key(name), SeenHold()).hold, own)
        if new is not None:
            await self._swap(name, new)

    async def _others_probe(self, name: str, waiting: bool, hold_s: float) -> bool:
        """Take the probe if turns wait here and no box has it. Tell whether another box has it."""
        seen = self._seen.get(_key(name), SeenHold())
        step = next_step(seen.hold, self._member, time.time(), hold_s, time.monotonic() - seen.since)
        if step.do == "probe" and step.hold is not None and waiting:
            return not await self._swap(name, step.hold)
        return step.do == "wait" and seen.hold.probe not in ("", self._member)

    async def _swap(self, name: str, hold: AccountHold) -> bool:
        """Store a hold behind the one that this box knows. Read the present one if it is another."""
        key = _key(name)
        revision = await self._holds.swap(key, self._seen.get(key, SeenHold()).revision, write_hold(hold))
        if revision is not None:
            self._note(key, hold, revision)
            return True
        self._seen.pop(key, None)
        if (entry := await self._holds.get(key)) is not None:
            self._note(key, believable(_hold_of(entry.value), entry.at), entry.revision)
        return False

    async def _tell(self, name: str, elsewhere: bool, limit: dict[str, Any] | None) -> None:
        """Report to the daemon what is news for it."""
        was, at = self._told.get(name, (None, 0.0))
        now = time.monotonic()
        if limit is None and elsewhere is was and not (elsewhere and now - at > TELL_AGAIN_S):
            return
        params = {"account": name, "probe": "elsewhere" if elsewhere else "here"}
        with suppress(UsageError):  # the account left the configuration, or another version wrote the limit
            await self._daemon.call("account/report", **params, **({"limit": limit} if limit else {}))
        self._told[name] = (elsewhere, now)

    async def _clock_agrees(self) -> bool:
        """Compare this box's clock with the engine's, by this box's own beat. Raises `WorldError(fleet_away)`."""
        if time.monotonic() - self._measured >= CLOCK_EVERY_S:
            entry = await self._beats.get(self._member)
            if entry is None:  # the first beat is on its way
                return False
            off, before = msgspec.json.decode(entry.value, type=_BeatTime).at - entry.at, self.clock_off_s
            self.clock_off_s, self._measured = off, time.monotonic()
            if clock_agrees(off, 0.0) != (before is None or clock_agrees(before, 0.0)):
                _log.warning("clock of this box", off_s=round(off, 1), shares=clock_agrees(off, 0.0))
        return self.clock_off_s is not None and clock_agrees(self.clock_off_s, 0.0)


def _key(account: str) -> str:
    return account.replace(".", "=")  # a key of the engine has one dot


def _hold_of(value: bytes) -> AccountHold:
    """Return a stored hold, or an empty one for a value that this version cannot read."""
    try:
        return read_hold(value)
    except WorldError:
        return AccountHold()


def _learned(limit: AccountLimit) -> dict[str, Any]:
    """Return the params of a limit. Its texts come from another box."""
    texts = {name: text[:MAX_TEXT] for name in ("limit_type", "message") if (text := getattr(limit, name)) is not None}
    return limit.model_dump(exclude_none=True) | texts
