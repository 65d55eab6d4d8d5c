"""Fair queue: the order of work if clients ask for more than the daemon can do at once. Pure.

The daemon works in rounds. In each round trio runs every task that can run, so a client waits for the work of all other
clients in that round. Therefore a round takes up only a limited amount of work (`FairQueue.quota`). The rule: *the
client that asked for least lately goes first; clients over their share get equal parts of the rest*. A connection has
a single piece of work in the queue at a time, and each piece costs units. The second half of the rule is start-time fair
queueing, which for equal pieces is round-robin.

The debt of an account is the amount of work that its connection has asked for. The debt shrinks by `rate` a second, but
only while the connection rests. A connection rests while the daemon waits for the client, not the other way round. A
flood without pauses never gets back below its share, and a client with occasional requests never leaves it. The idea
comes from sparse flows in FQ-CoDel (RFC 8290, section 4.2), with a leaky bucket to detect flows.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from msgspec import Struct

MAX_QUOTA = 16
"""Units of work that a quick round takes up, and as many again from connections within their share. A request is one
unit."""
LEAST = 0.25
"""Least number of units that a piece of work costs in a round, however small it is. So a round has 64 pieces at most.
"""
RESERVED = 2
"""Units of a round for connections within their share, however slow the last round was and whatever work is still
unpaid."""
SLOW_ROUND_S = 0.002
"""Limit of a quick round, in seconds. A longer round halves the quota, a shorter round adds a unit: some requests cost
a hundred times others."""
T = TypeVar("T")


class Share(Struct, frozen=True):
    """Work that a connection may ask for before others go first: `burst` units at once, `rate` units a second."""

    burst: float = 64
    rate: float = 100


class TokenBucket(Struct):
    """Account of one connection.

    `debt` is the recent work, in units; at `Share.burst` the connection is over its share.
    """

    debt: float = 0.0
    at: float = 0.0
    """Time of the last update of the debt, in seconds of the same clock as every `now` here."""
    resting: bool = True
    """True while the daemon has no work for the connection. Change it by `FairQueue.rest`."""
    standing: bool = False
    """True while a task of the connection is in the queue, whether the connection rests otherwise or not."""
    served: float = 0.0
    """Virtual time of the connection: the end of its accepted work, in units that each connection over its share got.
    """


@dataclass(order=True, slots=True)
class _Place(Generic[T]):
    debt: float
    start: float
    number: int
    account: TokenBucket = field(compare=False)
    units: float = field(compare=False)
    ticket: T = field(compare=False)


class FairQueue(Generic[T]):
    """Queue of all connections. A `ticket` is the object with which the caller wakes a waiter."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self.quota: float = MAX_QUOTA
        self._left: float = MAX_QUOTA
        self._reserved: float = MAX_QUOTA  # units left for connections within their share
        self._line: list[_Place[T]] = []
        self._now = 0.0  # virtual time: the start of the last accepted work of a connection over its share
        self._number = 0

    @property
    def empty(self) -> bool:
        """Tell whether the queue is empty."""
        return not self._line

    def reckon(self, account: TokenBucket, now: float) -> float:
        """Update the debt of an account to `now`, and return the debt."""
        if account.resting and not account.standing:
            account.debt = max(0.0, account.debt - (now - account.at) * self.share.rate)
        account.at = now
        return account.debt

    def over(self, account: TokenBucket, now: float) -> bool:
        """Tell whether the account is over its share."""
        return self.reckon(account, now) >= self.share.burst

    def rest(self, account: TokenBucket, resting: bool, now: float) -> None:
        """Mark the account as resting or as working, from `now` on."""
        self.reckon(account, now)
        account.resting = resting

    def newcomer(self, process: TokenBucket, now: float) -> float:
        """Return the initial debt of a new connection.

        The account of the client process only serves this purpose. New connections of a process share one burst, so
        that repeated reconnects gain nothing.
        """
        debt = min(self.reckon(process, now), self.share.burst)
        process.debt = self.share.burst
        return debt

    def pass_by(self, account: TokenBucket, units: float, now: float) -> bool:
        """Accept work at once if this round has room for it and no waiter asked for as little.

        After False, call `join`.
        """
        if self._line and self.reckon(account, now) >= min(self._line[0].debt, self.share.burst):
            return False
        return self._take(account, units, now)

    def join(self, account: TokenBucket, units: float, ticket: T, now: float) -> None:
        """Put work into the queue.

        An account is in the queue once at a time, until `admit` returns its ticket or `leave` removes it.
        """
        debt = min(self.reckon(account, now), self.share.burst)
        account.standing = True
        start = max(self._now, account.served)
        account.served = start + units
        self._number += 1
        heapq.heappush(self._line, _Place(debt, start, self._number, account, units, ticket))

    def leave(self, ticket: T, now: float) -> None:
        """Remove the ticket, if the queue still has the ticket."""
        for place in self._line:
            if place.ticket == ticket:
                self.reckon(place.account, now)
                place.account.standing = False
                self._line.remove(place)
                heapq.heapify(self._line)
                return

    def begin_round(self, last_s: float) -> None:
        """Begin a new round. `last_s` is the duration of the last round, in seconds."""
        self.quota = max(1.0, self.quota / 2) if last_s > SLOW_ROUND_S else min(MAX_QUOTA, self.quota + 1)
        self._left = min(self._left, 0.0) + self.quota  # work beyond the last round's quota is paid for here
        self._reserved = max(self.quota, RESERVED)

    def admit(self, now: float) -> list[T]:
        """Return the tickets that this round admits, in order."""
        passed: list[T] = []
        while self._line and self._take(self._line[0].account, self._line[0].units, now):
            place = heapq.heappop(self._line)
            place.account.standing = False
            if place.debt >= self.share.burst:
                self._now = place.start
            passed.append(place.ticket)
        return passed

    def _take(self, account: TokenBucket, units: float, now: float) -> bool:
        """Accept work if the round has room.

        A part of each round, however slow, is reserved for connections within their share.
        """
        if self.reckon(account, now) < self.share.burst and self._reserved > 0:
            self._reserved -= max(units, LEAST)
        elif self._left > 0:
            self._left -= max(units, LEAST)
        else:
            return False
        account.debt = min(account.debt, self.share.burst) + units
        return True
