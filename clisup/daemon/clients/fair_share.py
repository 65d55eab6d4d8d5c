"""The turnstile before all work that clients ask for: requests, and pieces of history. The rule is `clisup.policy.fair_queue`."""

from __future__ import annotations

import trio

from clisup.policy.fair_queue import FairQueue, Share, TokenBucket

__all__ = ["AT_ONCE", "LONG_FRAME", "PIECE", "TAIL", "Turn", "Turnstile"]

REQUEST = 1.0
PIECE = 4.0
"""Units of about 64 KiB of history: read, cut and sent, it costs the daemon as much as a few requests."""
LONG_FRAME = 8.0
"""Units of 64 KiB of a frame that goes on."""
TAIL = 1 / 16
"""Units of a few events as they happen: to follow a session makes nobody a greedy client."""
AT_ONCE = 1 / 64
"""Units of events that are told in the step that journaled them."""
PROCESSES = 1024  # whose new connections are remembered


class Turnstile:
    """Lets work in by the round. `run` it for as long as there are connections."""

    def __init__(self, share: Share, *, patience_s: float) -> None:
        self._line: FairQueue[trio.Event] = FairQueue(share)
        self._patience_s = patience_s
        self._processes: dict[int, TokenBucket] = {}
        self._wanted = trio.Event()

    def renew(self, share: Share, *, patience_s: float) -> None:
        """Other settings, from the next piece of work on."""
        self._line.share = share
        self._patience_s = patience_s

    async def run(self) -> None:
        """Admit those who stand in line, round by round. While nobody does, no rounds are counted."""
        while True:
            await self._wanted.wait()
            began, took = trio.current_time(), 0.0
            while not self._line.empty:
                self._line.begin_round(took)
                for ticket in self._line.admit(began):
                    ticket.set()
                await trio.lowlevel.checkpoint()  # every other task that can run does so meanwhile: that is a round
                began, took = trio.current_time(), trio.current_time() - began
            self._wanted = trio.Event()

    def turn(self, pid: int) -> Turn:
        """A new connection's, of this process. To connect again and again brings no fresh share each time."""
        now = trio.current_time()
        process = self._processes.setdefault(pid, TokenBucket(at=now))
        account = TokenBucket(self._line.newcomer(process, now), now)
        if len(self._processes) > PROCESSES:
            owing = {pid: each for pid, each in self._processes.items() if self._line.reckon(each, now)}
            self._processes = owing if len(owing) < PROCESSES else {}
        return Turn(self, account)

    def pass_by(self, account: TokenBucket, units: float) -> bool:
        """At once, where nobody waits."""
        return self._line.pass_by(account, units, trio.current_time())

    def rest(self, account: TokenBucket, resting: bool) -> None:
        """From now on it rests, or does no more."""
        self._line.rest(account, resting, trio.current_time())

    async def stand(self, account: TokenBucket, units: float, patience_s: float) -> bool:
        """Wait in line; False where that took longer than `patience_s`, and nothing was let in."""
        ticket = trio.Event()
        self._line.join(account, units, ticket, trio.current_time())
        self._wanted.set()
        try:
            with trio.move_on_after(patience_s):
                await ticket.wait()
        finally:
            if not ticket.is_set():
                self._line.leave(ticket, trio.current_time())
        return ticket.is_set()

    def patience_of(self, account: TokenBucket) -> float:
        """How long a request of this one may wait for its turn. Who is within its share waits for a round or two, as long as they take."""
        return self._patience_s if self._line.over(account, trio.current_time()) else float("inf")


class _Resting:
    """`with turn.resting:` while the daemon waits for this client's bytes: only then it gets its share back."""

    def __init__(self, turnstile: Turnstile, account: TokenBucket) -> None:
        self._turnstile = turnstile
        self._account = account

    def __enter__(self) -> None:
        self._turnstile.rest(self._account, True)

    def __exit__(self, *_exc: object) -> None:
        self._turnstile.rest(self._account, False)


class Turn:
    """One connection's way through. Its tasks stand in line one after the other, never side by side."""

    def __init__(self, turnstile: Turnstile, account: TokenBucket) -> None:
        self._turnstile = turnstile
        self._account = account
        self.resting = _Resting(turnstile, account)
        self._standing = trio.Lock()

    async def request(self) -> bool:
        """Before a frame is read. False after too long a wait of one over its share: the frame is to be refused."""
        return await self._take(REQUEST, self._turnstile.patience_of(self._account))

    async def piece(self, units: float = PIECE) -> None:
        """Before a piece of history is read and sent."""
        await self._take(units, float("inf"))

    def passes(self, units: float) -> bool:
        """Take a piece up at once, where that is possible; False: nothing was taken up."""
        return not self._standing.locked() and self._turnstile.pass_by(self._account, units)

    async def _take(self, units: float, patience_s: float) -> bool:
        if self.passes(units):
            return True
        async with self._standing:
            return await self._turnstile.stand(self._account, units, patience_s)
