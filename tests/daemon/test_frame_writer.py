"""A connection's way out: whole frames in their order, whoever writes them, and what the socket does not take waits."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from clisup.daemon.clients.buffer_budget import BufferBudget, HeldBytes
from clisup.daemon.clients.frame_writer import FrameWriter

MORE_THAN_IT_TAKES = b"x" * (4 * 1024 * 1024)


class Pair:
    """An outlet, and the client at its other end."""

    def __init__(self) -> None:
        ours, self.client = socket.socketpair()
        self.client.setblocking(False)
        self.holding: HeldBytes = HeldBytes(BufferBudget(64 * 1024 * 1024))
        self.stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        self.writer = FrameWriter(self.stream, self.holding)

    def close(self) -> None:
        self.client.close()
        self.stream.socket.close()

    def read(self) -> bytes:
        """All that is there now."""
        data = b""
        try:
            while chunk := self.client.recv(1 << 20):
                data += chunk
        except BlockingIOError:
            pass
        return data

    async def read_to(self, size: int) -> bytes:
        data = b""
        with trio.fail_after(30):
            while len(data) < size:
                await trio.lowlevel.wait_readable(self.client)
                data += self.read()
        return data


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    made = Pair()
    yield made
    made.close()


async def test_what_the_socket_takes_is_there_at_once(pair: Pair) -> None:
    assert pair.writer.has_room()
    pair.writer.write_now(b"one\n")
    assert pair.read() == b"one\n"
    assert not pair.writer.busy and pair.holding.bytes == 0


async def test_the_rest_of_a_frame_waits_and_counts_as_held(pair: Pair) -> None:
    pair.writer.write_now(MORE_THAN_IT_TAKES)
    taken = pair.read()
    assert pair.writer.busy
    assert pair.holding.bytes == len(MORE_THAN_IT_TAKES) - len(taken)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pair.writer.flush)
        taken += await pair.read_to(len(MORE_THAN_IT_TAKES) - len(taken))
    assert taken == MORE_THAN_IT_TAKES
    assert not pair.writer.busy and pair.holding.bytes == 0


async def test_there_is_no_room_while_a_rest_waits_and_there_is_once_the_client_has_read(pair: Pair) -> None:
    pair.writer.write_now(MORE_THAN_IT_TAKES)
    assert not pair.writer.has_room()
    taken = b""
    while not pair.writer.has_room():
        taken += pair.read()
    assert taken + pair.read() == MORE_THAN_IT_TAKES


async def test_frames_of_several_writers_keep_their_order_and_stay_whole(pair: Pair) -> None:
    pair.writer.write_now(MORE_THAN_IT_TAKES)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pair.writer.flush)
        await wait_all_tasks_blocked()
        nursery.start_soon(pair.writer.write, b"second")
        await wait_all_tasks_blocked()
        assert not pair.writer.has_room()
        nursery.start_soon(pair.writer.write, b"third")
        await wait_all_tasks_blocked()
        seen = await pair.read_to(len(MORE_THAN_IT_TAKES) + len(b"secondthird"))
    assert seen == MORE_THAN_IT_TAKES + b"secondthird"


async def test_a_flush_waits_for_whoever_is_writing(pair: Pair) -> None:
    """Else a follower would go round and round while its client leaves an answer unread."""
    flushed = trio.Event()

    async def flush() -> None:
        await pair.writer.flush()
        flushed.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pair.writer.write, MORE_THAN_IT_TAKES)
        await wait_all_tasks_blocked()
        nursery.start_soon(flush)
        await wait_all_tasks_blocked()
        assert pair.writer.busy and not flushed.is_set()
        await pair.read_to(len(MORE_THAN_IT_TAKES))
    assert flushed.is_set() and not pair.writer.busy


async def test_who_gives_up_waiting_leaves_the_others_to_it(pair: Pair) -> None:
    pair.writer.write_now(MORE_THAN_IT_TAKES)
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as first:
            nursery.start_soon(pair.writer.write, b"after")
            await wait_all_tasks_blocked()
            first.cancel()
            await pair.writer.flush()
        assert first.cancelled_caught
        seen = await pair.read_to(len(MORE_THAN_IT_TAKES) + len(b"after"))
    assert seen == MORE_THAN_IT_TAKES + b"after"


async def test_events_in_the_middle_of_being_written_count_as_held(pair: Pair) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pair.writer.write_events, MORE_THAN_IT_TAKES)
        await wait_all_tasks_blocked()
        assert pair.holding.bytes == len(MORE_THAN_IT_TAKES) and pair.writer.busy
        await pair.read_to(len(MORE_THAN_IT_TAKES))
    assert pair.holding.bytes == 0


async def test_a_client_that_is_gone_is_told_by_who_can_wait(pair: Pair) -> None:
    pair.client.close()
    pair.writer.write_now(b"one\n")
    with pytest.raises(trio.BrokenResourceError):
        await pair.writer.flush()
    with pytest.raises(trio.BrokenResourceError):
        await pair.writer.write(b"two\n")


async def test_a_connection_that_was_closed_takes_nothing(pair: Pair) -> None:
    await trio.aclose_forcefully(pair.stream)
    with pytest.raises(trio.ClosedResourceError):
        await pair.writer.write(b"one\n")
    pair.writer.write_now(b"two\n")
    with pytest.raises(trio.ClosedResourceError):
        await pair.writer.flush()
