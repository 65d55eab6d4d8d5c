"""Fair share of the daemon's time between its clients: every request and every piece of history waits here for its turn.

The rule itself is pure and stands in `clisup.policy.fair_queue`.
"""

from __future__ import annotations

import trio

from clisup.policy.fair_queue import FairQueue, Share, TokenBucket

__all__ = ["LONG_FRAME", "PIECE", "ClientShare", "FairShare"]

REQUEST = 1.0
PIECE = 4.0
"""Units of 64 KiB of history. Reading, cutting and sending them costs the daemon as much as a few requests."""
LONG_FRAME = 8.0
"""Units of each further 64 KiB of one frame."""
PROCESSES = 1024
"""Limit of client processes whose new connections the daemon remembers."""


class FairShare:
    """Queue of all connections for the daemon's time. `run` must run while there are connections."""

    def __init__(self, share: Share, *, patience_s: float) -> None:
        self._queue: FairQueue[trio.Event] = FairQueue(share)
        self._patience_s = patience_s
        self._processes: dict[int, TokenBucket] = {}
        self._wanted = trio.Event()

    def configure(self, share: Share, *, patience_s: float) -> None:
        """Apply other settings from the next piece of work on."""
        self._queue.share = share
        self._patience_s = patience_s

    async def run(self) -> None:
        """Admit the waiters round by round. Without waiters there are no rounds."""
        while True:
            await self._wanted.wait()
            began, took = trio.current_time(), 0.0
            while not self._queue.empty:
                self._queue.begin_round(took)
                for ticket in self._queue.admit(began):
                    ticket.set()
                await trio.lowlevel.checkpoint()  # a round: meanwhile every other task that can run does so
                began, took = trio.current_time(), trio.current_time() - began
            self._wanted = trio.Event()

    def connect(self, pid: int) -> ClientShare:
        """Return the share of a new connection of this process. Reconnecting brings no fresh share."""
        now = trio.current_time()
        process = self._processes.setdefault(pid, TokenBucket(at=now))
        account = TokenBucket(self._queue.newcomer(process, now), now)
        if len(self._processes) > PROCESSES:
            owing = {pid: each for pid, each in self._processes.items() if self._queue.reckon(each, now)}
            self._processes = owing if len(owing) < PROCESSES else {}
        return ClientShare(self, account)

    def try_pass(self, account: TokenBucket, units: float) -> bool:
        """Accept work at once if no other client has to go first. Return False otherwise."""
        return self._queue.pass_by(account, units, trio.current_time())

    def rest(self, account: TokenBucket, resting: bool) -> None:
        """Mark the account as resting or as working from now on."""
        self._queue.rest(account, resting, trio.current_time())

    async def wait(self, account: TokenBucket, units: float, patience_s: float) -> bool:
        """Wait in the queue. Return False after `patience_s`, without an accepted piece of work."""
        ticket = trio.Event()
        self._queue.join(account, units, ticket, trio.current_time())
        self._wanted.set()
        try:
            with trio.move_on_after(patience_s):
                await ticket.wait()
        finally:
            if not ticket.is_set():
                self._queue.leave(ticket, trio.current_time())
        return ticket.is_set()

    def patience_of(self, account: TokenBucket) -> float:
        """Return the longest wait of a request in seconds. A connection within its share waits for a few rounds at most."""
        return self._patience_s if self._queue.over(account, trio.current_time()) else float("inf")


class _Resting:
    """Context of a wait for the client's bytes. The debt of a connection shrinks only then."""

    def __init__(self, shares: FairShare, account: TokenBucket) -> None:
        self._shares = shares
        self._account = account

    def __enter__(self) -> None:
        self._shares.rest(self._account, True)

    def __exit__(self, *_exc: object) -> None:
        self._shares.rest(self._account, False)


class ClientShare:
    """Share of one connection. Its tasks wait one after the other, never side by side."""

    def __init__(self, shares: FairShare, account: TokenBucket) -> None:
        self._shares = shares
        self.account = account
        self.resting = _Resting(shares, account)
        self._waiting = trio.Lock()

    async def wait_for_request(self) -> bool:
        """Wait before a frame is read. Return False if a connection over its share waited too long: refuse the frame."""
        return await self._wait(REQUEST, self._shares.patience_of(self.account))

    async def wait_for_piece(self, units: float = PIECE) -> None:
        """Wait before a piece of history is read and sent."""
        await self._wait(units, float("inf"))

    async def _wait(self, units: float, patience_s: float) -> bool:
        if not self._waiting.locked() and self._shares.try_pass(self.account, units):
            return True
        async with self._waiting:
            return await self._shares.wait(self.account, units, patience_s)
