"""Messages of a keeper over its socket, and the ends of the connection."""

from __future__ import annotations

import socket

import pytest
import trio
import trio.testing

from clisup.host.process.keepers import KeeperConnection


@pytest.fixture
def ends() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


def connection_of(ours: socket.socket) -> KeeperConnection:
    ours.setblocking(False)
    return KeeperConnection(trio.SocketStream(trio.socket.from_stdlib_socket(ours)))


def test_messages_come_whole_and_in_order_and_none_after_the_end(ends: tuple[socket.socket, socket.socket]) -> None:
    async def main() -> list[object]:
        connection = connection_of(ends[0])
        ends[1].sendall(b'{"n": 1}\n{"n": 2}\n{"n"')
        found: list[object] = [await connection.receive(), await connection.receive()]
        ends[1].sendall(b": 3}\n")
        ends[1].close()
        found += [await connection.receive(), await connection.receive()]
        await connection.aclose()
        return found

    assert trio.run(main) == [{"n": 1}, {"n": 2}, {"n": 3}, None]


def test_a_connection_that_is_closed_ends_the_wait_for_a_message(ends: tuple[socket.socket, socket.socket]) -> None:
    async def main() -> object:
        connection, found = connection_of(ends[0]), list[object]()
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:

                async def wait() -> None:
                    found.append(await connection.receive())

                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                await connection.aclose()
        return found

    assert trio.run(main) == [None]
    ends[1].close()


def test_a_keeper_that_always_has_a_message_leaves_other_tasks_their_turn(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    async def main() -> int:
        connection, turns = connection_of(ends[0]), 0
        async with trio.open_nursery() as nursery:

            async def count() -> None:
                nonlocal turns
                while True:
                    await trio.lowlevel.checkpoint()
                    turns += 1

            nursery.start_soon(count)
            for _ in range(20):
                ends[1].sendall(b"{}\n")
                assert await connection.receive() == {}
            nursery.cancel_scope.cancel()
        await connection.aclose()
        return turns

    assert trio.run(main) >= 10
    ends[1].close()
