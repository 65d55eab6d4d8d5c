"""Rate limits of accounts, shared by the boxes of the fleet: the daemon's news go to HOLDS, and HOLDS to the daemon.

Without the engine, or with a clock that is off, this box keeps its limits to itself, and its daemon holds turns alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any, NamedTuple, Protocol

import msgspec

from clisup.errors import ClisupError, UsageError, WorldError
from clisup.fleet.agent.waiting import wait_at_most
from clisup.fleet.engine import Bucket, Engine
from clisup.fleet.holds import (
    DISTRUST_S,
    FOREIGN_S,
    AccountHold,
    BoxHold,
    believable,
    clock_agrees,
    fleet_hold,
    next_step,
    read_hold,
    refuted,
    reported,
    write_hold,
)
from clisup.host.log import event_logger
from clisup.policy.rate_limit import AccountLimit

__all__ = ["Holding"]

EVERY_S = 1.0
"""Seconds between two looks at the daemon's accounts."""
CLOCK_EVERY_S = 30.0
TELL_AGAIN_S = 20.0
"""Seconds after which the daemon hears again that another box probes. It forgets so after a minute."""
MAX_TEXT = 200
MAX_ACCOUNTS = 10_000
"""Accounts whose holds a box keeps in memory."""
_log = event_logger()


class AccountsOfDaemon(Protocol):
    """Connection to this box's daemon."""

    async def call(self, method: str, /, **params: Any) -> Any:
        """Return the result of a method. Raises `ClisupError`."""


class _BeatTime(msgspec.Struct):
    at: float


class SeenHold(NamedTuple):
    """Hold of a box as it was last read. `since` is when its present probe was first seen, on the monotonic clock."""

    hold: AccountHold = AccountHold()
    revision: int = 0
    since: float = 0.0


class Holding:
    """Exchange of holds between this box's daemon and the engine. `clock_off_s` is the last measured difference.

    `runs` tells whether a box runs an account, as its beat says.
    """

    def __init__(self, engine: Engine, member: str, daemon: AccountsOfDaemon, runs: Callable[[str, str], bool]) -> None:
        self._holds, self._beats = Bucket(engine, "HOLDS"), Bucket(engine, "BOXES")
        self._member, self._daemon, self._runs = member, daemon, runs
        self._seen: dict[str, dict[str, SeenHold]] = {}
        """By account and box."""
        self._distrusted: dict[tuple[str, str], float] = {}
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
                        self._note(entry.key, entry.writer, believable(_hold_of(entry.value), entry.at), entry.revision)
            except WorldError as error:
                _log.warning("holds not read", error=error.message)
            self._seen.clear()
            await asyncio.sleep(EVERY_S)

    def _note(self, key: str, box: str, hold: AccountHold, revision: int) -> None:
        of_account = self._seen.get(key, {})
        seen = of_account.get(box, SeenHold())
        if revision <= seen.revision or not box or (key not in self._seen and len(self._seen) >= MAX_ACCOUNTS):
            return
        same = (hold.probe, hold.probed) == (seen.hold.probe, seen.hold.probed)
        self._seen[key] = {**of_account, box: SeenHold(hold, revision, seen.since if same else time.monotonic())}
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
        limit = fleet_hold(self._believed(name)).hold.limit
        later = agrees and (limit.said_at or 0.0) > (own.said_at or 0.0)
        await self._tell(name, elsewhere, _learned(limit, time.time()) if later else None)

    def _believed(self, name: str) -> list[BoxHold]:
        """Return this box's own hold of an account, and those of other boxes that count."""
        now, found = time.monotonic(), []
        for box, seen in self._seen.get(_key(name), {}).items():
            doubted = now - self._distrusted.get((name, box), -DISTRUST_S) < DISTRUST_S
            if box == self._member or (self._runs(box, name) and not doubted):
                found.append(BoxHold(box, seen.hold, seen.revision, now - seen.since))
        return found

    def _mine(self, name: str) -> AccountHold:
        return self._seen.get(_key(name), {}).get(self._member, SeenHold()).hold

    async def _offer(self, name: str, own: AccountLimit) -> None:
        """Report this box's own limit. One that it learned from another box has that box's time."""
        others = [each for each in self._believed(name) if each.box != self._member]
        if any(each.hold.limit.said_at == own.said_at for each in others):
            return
        for each in others:
            if refuted(each.hold.limit, own):
                self._distrusted[name, each.box] = time.monotonic()
                _log.warning("limit of another box not true", box=each.box, account=name)
        if (new := reported(self._mine(name), own)) is not None:
            await self._put(name, new)

    async def _others_probe(self, name: str, waiting: bool, hold_s: float) -> bool:
        """Take the probe if turns wait here and no box has it. Tell whether another box has it.

        Of two boxes that take it at once, the first one in the engine has it: both look again.
        """
        known = fleet_hold(self._believed(name))
        step = next_step(known.hold, self._member, time.time(), hold_s, known.probed_s)
        if step.do == "probe" and step.hold is not None and waiting:
            await self._put(name, step.hold.model_copy(update={"limit": self._mine(name).limit}))
            return True
        return step.do == "wait" and known.hold.probe not in ("", self._member)

    async def _put(self, name: str, hold: AccountHold) -> None:
        revision = await self._holds.put(_key(name), write_hold(hold))
        self._note(_key(name), self._member, hold, revision or 0)

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


def _learned(limit: AccountLimit, now: float) -> dict[str, Any]:
    """Return the params of a limit that another box reports: it holds turns for some minutes. Its texts come from there."""
    if limit.until is not None:
        limit = limit.model_copy(update={"until": min(limit.until, now + FOREIGN_S)})
    texts = {name: text[:MAX_TEXT] for name in ("limit_type", "message") if (text := getattr(limit, name)) is not None}
    return limit.model_dump(exclude_none=True) | texts
