"""Who goes next where clients ask for more than the daemon can do at once. Pure.

The daemon works in rounds: in each, trio runs every task that can run, so a client waits for the sum of what all others
have to do in one. Therefore a round takes up only so much work (`Line.quota`), and work is taken up by this rule: *who has
asked for least lately goes first; those over their share get equal parts of what is left*. A connection stands in line
with one piece of work at a time, and each piece costs units: the second half is start-time fair queueing, which for equal
pieces is round-robin.

What a connection has asked for is its account's debt. It shrinks by `rate` a second, but only while the connection rests:
while the daemon waits for its client, and not the other way round. A flood that never pauses never gets back below its
share, and one whose client now and then asks for something never leaves it. The idea is that of sparse flows in FQ-CoDel
(RFC 8290, section 4.2), with a leaky bucket to tell them.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from msgspec import Struct

__all__ = ["MAX_QUOTA", "SLOW_ROUND_S", "Account", "Line", "Share"]

MAX_QUOTA = 16
"""Units of work that one round takes up where rounds are quick, and as many again of those within their share. A request
is one unit."""
LEAST = 0.25
"""Units of a round that any piece of work takes, however little is asked of its account: so a round has 64 pieces at most."""
RESERVED = 2
"""Units that those within their share get of a round however slow the last one was, and whatever is still to be paid for."""
SLOW_ROUND_S = 0.002
"""A round that took longer halves the quota, one that did not gives one back: some requests cost a hundred times others."""
T = TypeVar("T")


class Share(Struct, frozen=True):
    """What one connection may ask for before others go first: `burst` units at once, `rate` units a second."""

    burst: float = 64
    rate: float = 100


class Account(Struct):
    """One connection's. `debt` is what it asked for lately, in units; at `Share.burst` it is over its share."""

    debt: float = 0.0
    at: float = 0.0
    """When the debt was reckoned: seconds of the clock that every `now` here is of."""
    resting: bool = True
    """The daemon has nothing of it to do. Change it by `Line.rest`."""
    standing: bool = False
    """A task of it stands in line, whether it rests otherwise or not."""
    served: float = 0.0
    """Its virtual time: where the work that it took up ends, in units that each of those over their share got."""


@dataclass(order=True, slots=True)
class _Place(Generic[T]):
    debt: float
    start: float
    number: int
    account: Account = field(compare=False)
    units: float = field(compare=False)
    ticket: T = field(compare=False)


class Line(Generic[T]):
    """The one line of all connections. A `ticket` is whatever the caller wakes a waiter by."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self.quota: float = MAX_QUOTA
        self._left: float = MAX_QUOTA
        self._reserved: float = MAX_QUOTA  # what is left for those within their share
        self._line: list[_Place[T]] = []
        self._now = 0.0  # virtual time: the start of what was last taken up by one over its share
        self._number = 0

    @property
    def empty(self) -> bool:
        """Nobody waits."""
        return not self._line

    def reckon(self, account: Account, now: float) -> float:
        """The debt as of now."""
        if account.resting and not account.standing:
            account.debt = max(0.0, account.debt - (now - account.at) * self.share.rate)
        account.at = now
        return account.debt

    def over(self, account: Account, now: float) -> bool:
        """Has it asked for more than its share?"""
        return self.reckon(account, now) >= self.share.burst

    def rest(self, account: Account, resting: bool, now: float) -> None:
        """From now on it rests, or does no more."""
        self.reckon(account, now)
        account.resting = resting

    def newcomer(self, process: Account, now: float) -> float:
        """The debt that a new connection begins with. Its process has an account for this alone: new connections share one
        burst, so that to connect again and again brings nothing."""
        debt = min(self.reckon(process, now), self.share.burst)
        process.debt = self.share.burst
        return debt

    def pass_by(self, account: Account, units: float, now: float) -> bool:
        """Take work up at once, where this round has room for it and nobody waits who asked for as little. False: `join`."""
        if self._line and self.reckon(account, now) >= min(self._line[0].debt, self.share.burst):
            return False
        return self._take(account, units, now)

    def join(self, account: Account, units: float, ticket: T, now: float) -> None:
        """Stand in line. An account does so once at a time, until `next_round` gives its ticket or it leaves."""
        debt = min(self.reckon(account, now), self.share.burst)
        account.standing = True
        start = max(self._now, account.served)
        account.served = start + units
        self._number += 1
        heapq.heappush(self._line, _Place(debt, start, self._number, account, units, ticket))

    def leave(self, ticket: T, now: float) -> None:
        """Give the place up, if there still is one."""
        for place in self._line:
            if place.ticket == ticket:
                self.reckon(place.account, now)
                place.account.standing = False
                self._line.remove(place)
                heapq.heapify(self._line)
                return

    def begin_round(self, last_s: float) -> None:
        """A new round; the last one took so long."""
        self.quota = max(1.0, self.quota / 2) if last_s > SLOW_ROUND_S else min(MAX_QUOTA, self.quota + 1)
        self._left = min(self._left, 0.0) + self.quota  # what was more than fitted into the last one is paid for here
        self._reserved = max(self.quota, RESERVED)

    def admit(self, now: float) -> list[T]:
        """The tickets of those whose turn is in this round, in order."""
        passed: list[T] = []
        while self._line and self._take(self._line[0].account, self._line[0].units, now):
            place = heapq.heappop(self._line)
            place.account.standing = False
            if place.debt >= self.share.burst:
                self._now = place.start
            passed.append(place.ticket)
        return passed

    def _take(self, account: Account, units: float, now: float) -> bool:
        """Take it up if there is room: for those within their share a part of each round is kept, however slow it is."""
        if self.reckon(account, now) < self.share.burst and self._reserved > 0:
            self._reserved -= max(units, LEAST)
        elif self._left > 0:
            self._left -= max(units, LEAST)
        else:
            return False
        account.debt = min(account.debt, self.share.burst) + units
        return True
