"""A follower of what happens now: told in the step that journals it, whatever else the daemon has to do, and in its order."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from clisup.daemon.clients.buffer_budget import BufferBudget, HeldBytes
from clisup.daemon.clients.fair_share import FairShare
from clisup.daemon.clients.frame_writer import FrameWriter
from clisup.daemon.clients.subscription import EventFilter, Subscription
from clisup.daemon.journal.event_cache import PIECE_BYTES
from clisup.daemon.journal.recorder import TOLD_AT_ONCE, Item, Recorder
from clisup.model.events import Notice
from clisup.policy.fair_queue import Share
from tests.daemon.recorder_in_memory import SESSION, MemoryJournal, recorder_in_memory


class Follower:
    """A subscription, and the client at its other end."""

    def __init__(self, recorder: Recorder, shares: FairShare) -> None:
        ours, self.client = socket.socketpair()
        self.client.setblocking(False)
        self.stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        self.writer = FrameWriter(self.stream, HeldBytes(BufferBudget(1 << 26)))
        known = {recorder.session_id: recorder}
        self.subscription = Subscription(EventFilter(), begin={SESSION: 1}, known=known, watchers=recorder.watchers)
        self.turn = shares.connect(1)

    async def follow(self) -> None:
        await self.subscription.follow(self.writer, self.turn)

    def seen(self) -> list[int]:
        """The seqs of what is there now."""
        data = b""
        with pytest.raises(BlockingIOError):
            while True:
                data += self.client.recv(1 << 20)
        return [json.loads(line)["params"]["seq"] for line in data.splitlines()]

    def close(self) -> None:
        self.subscription.end()
        self.client.close()
        self.stream.socket.close()


@contextmanager
def following(count: int, shares: FairShare) -> Iterator[tuple[Recorder, list[Follower]]]:
    recorder = recorder_in_memory(MemoryJournal())
    followers = [Follower(recorder, shares) for _ in range(count)]
    try:
        yield recorder, followers
    finally:
        for follower in followers:
            follower.close()


def record(recorder: Recorder) -> None:
    recorder.record([Item(Notice(code="test", message="again"))])


def spent() -> FairShare:
    """One whose round is over, with a greedy client in line, and that nobody runs: it lets nobody in any more."""
    shares = FairShare(Share(burst=1, rate=1), patience_s=60)
    turn = shares.connect(2)
    while shares.try_pass(turn.account, 1.0):
        pass
    return shares


async def test_who_keeps_up_with_a_flood_stands_in_no_line(nursery: trio.Nursery) -> None:
    """A round has room for a few pieces that clients ask for, and a slow one for hardly any: that is not for what happens now."""
    with following(TOLD_AT_ONCE, spent()) as (recorder, followers):
        for follower in followers:
            nursery.start_soon(follower.follow)
        await wait_all_tasks_blocked()
        for _ in range(5):
            record(recorder)
        for follower in followers:
            assert follower.seen() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("size", [100_000, 2 * PIECE_BYTES])
@pytest.mark.parametrize("before", [0, 30])
async def test_what_a_socket_does_not_take_at_once_comes_without_further_news(
    nursery: trio.Nursery, before: int, size: int
) -> None:
    """In the step that journals them goes what the socket takes, of one piece; the rest is the task's, which nothing else may wake."""
    shares = FairShare(Share(), patience_s=60)
    nursery.start_soon(shares.run)
    with following(1, shares) as (recorder, (follower,)):
        follower.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
        nursery.start_soon(follower.follow)
        await wait_all_tasks_blocked()
        for _ in range(before):
            record(recorder)
        recorder.record([Item(Notice(code="test", message="x" * 1000))] * (size // 1000))
        data, last = b"", recorder.next_seq - 1
        with trio.fail_after(30):
            while data.count(b"\n") < last:
                await trio.lowlevel.wait_readable(follower.client)
                data += follower.client.recv(1 << 20)
        assert [json.loads(line)["params"]["seq"] for line in data.splitlines()] == [*range(1, last + 1)]


async def test_more_followers_than_are_told_at_once_have_their_own_turn(nursery: trio.Nursery) -> None:
    """Else the step of one session would be as long as it has followers."""
    shares = FairShare(Share(), patience_s=60)
    nursery.start_soon(shares.run)
    with following(TOLD_AT_ONCE + 8, shares) as (recorder, followers):
        for follower in followers:
            nursery.start_soon(follower.follow)
        await wait_all_tasks_blocked()
        record(recorder)
        first = [follower.seen() for follower in followers]
        assert first.count([1]) == TOLD_AT_ONCE
        assert first.count([]) == 8
        await wait_all_tasks_blocked()
        assert [before or follower.seen() for before, follower in zip(first, followers, strict=True)] == [[1]] * len(
            first
        )
