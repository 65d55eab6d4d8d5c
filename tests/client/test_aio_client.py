"""The trio client against a daemon that does as it is told."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from fake_daemon import SESSION, SILENCE, FakeDaemon, Peer

from clisup.client import reconnect
from clisup.client.aio import AsyncFollower, open_client
from clisup.client.aio_connection import AsyncConnection
from clisup.client.failures import ConnectionLost, lost
from clisup.errors import ClisupError, UsageError

BOUND_S = 20.0


async def take(events: AsyncFollower, count: int) -> list[int]:
    with trio.fail_after(BOUND_S):
        return [(await anext(events))["seq"] for _ in range(count)]


async def test_calls_run_side_by_side(daemon: FakeDaemon) -> None:
    held: list[tuple[Peer, int]] = []

    def slow(peer: Peer, params: dict[str, Any]) -> Any:
        held.append((peer, peer.asked))
        return SILENCE

    daemon.handlers["slow"] = slow
    daemon.handlers["echo"] = lambda peer, params: params
    results: list[Any] = []
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.path, name="mine") as client, trio.open_nursery() as nursery:

            async def ask_slowly() -> None:
                results.append(await client.call("slow"))

            nursery.start_soon(ask_slowly)
            while not held:
                await client.call("ping")
            results.append(await client.call("echo", a=1))
            peer, asked = held[0]
            peer.send({"jsonrpc": "2.0", "id": asked, "result": "late"})
    assert results == [{"a": 1}, "late"]
    assert daemon.calls("initialize")[0]["client"]["name"] == "mine"


async def test_a_refusal_is_raised_as_what_it_was(daemon: FakeDaemon) -> None:
    def gone(peer: Peer, params: dict[str, Any]) -> Any:
        raise UsageError("cannot find it", kind="session_not_found")

    daemon.handlers["session/get"] = gone
    async with open_client(daemon.path) as client:
        with pytest.raises(ClisupError) as caught:
            await client.call("session/get", session_id=SESSION)
    assert caught.value.kind == "session_not_found"


async def test_a_daemon_that_hung_up_before_it_was_spoken_to_is_heard_all_the_same(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "s.sock"))
        door.listen()
        connection = await AsyncConnection.dial(str(tmp_path / "s.sock"))
        with door.accept()[0] as peer:
            error = UsageError("cannot serve uid 7", kind="permission_denied").to_wire()
            peer.sendall(json.dumps({"id": None, "error": error}).encode() + b"\n")
        with trio.fail_after(BOUND_S), pytest.raises(ClisupError, match="uid 7"):
            await connection.call("ping")
        with trio.fail_after(BOUND_S), pytest.raises(ConnectionLost):
            await connection.call("ping")
        connection.close()


async def test_what_the_daemon_says_of_a_frame_that_it_did_not_take_is_waited_for(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.path) as client:

            async def send_half(line: bytes) -> None:
                error = UsageError("cannot read so much", kind="invalid_request").to_wire()
                daemon.peers[-1].send({"jsonrpc": "2.0", "id": None, "error": error})
                raise lost(daemon.path)

            monkeypatch.setattr(client._connection, "send", send_half)
            with pytest.raises(ClisupError, match="cannot read so much"):
                await client.call("ping")


async def test_the_callers_own_exception_comes_out_as_it_was(daemon: FakeDaemon) -> None:
    with pytest.raises(KeyError):
        async with open_client(daemon.path):
            raise KeyError("mine")


async def test_no_daemon_is_told_as_the_blocking_client_tells_it(daemon: FakeDaemon) -> None:
    daemon.stop()
    with pytest.raises(ClisupError, match="left the socket behind"):
        async with open_client(daemon.path):
            pass


async def test_calls_in_flight_fail_when_the_daemon_goes(daemon: FakeDaemon) -> None:
    def vanish(peer: Peer, params: dict[str, Any]) -> Any:
        peer.hang_up()
        return SILENCE

    daemon.handlers["vanish"] = vanish
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.path) as client:
            for _ in range(2):
                with pytest.raises(ClisupError) as caught:
                    await client.call("vanish")
                assert caught.value.kind == "daemon_not_running"


async def test_a_subscription_gives_each_seq_once_across_a_restart(daemon: FakeDaemon) -> None:
    for n in range(3):
        daemon.emit("notice", code=str(n), message="")
    async with open_client(daemon.path) as client:
        events = client.subscribe(SESSION, 0, deltas=False)
        seen = await take(events, 3)
        events.on_lost = daemon.start
        daemon.stop()
        for n in range(3, 6):
            daemon.emit("notice", code=str(n), message="")
        seen += await take(events, 3)
    assert seen == [1, 2, 3, 4, 5, 6]
    subscribed = daemon.calls("session/subscribe")
    assert [(params["after_seq"], params["deltas"]) for params in subscribed] == [(0, False), (3, False)]


async def test_a_cancelled_step_loses_nothing(daemon: FakeDaemon) -> None:
    async with open_client(daemon.path) as client:
        events = client.subscribe(SESSION, 0)
        for n in range(50):
            with trio.move_on_after(0):
                await anext(events)
            daemon.emit("notice", code=str(n), message="")
        assert await take(events, 50) == list(range(1, 51))


async def test_a_subscription_gives_up_when_the_daemon_stays_away(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnect, "RECONNECT_S", 0.05)
    monkeypatch.setattr(reconnect, "RETRY_PAUSE_S", 0.01)
    daemon.emit("notice", code="a", message="")
    async with open_client(daemon.path) as client:
        events = client.subscribe(SESSION, 0)
        await take(events, 1)
        daemon.stop()
        with trio.fail_after(BOUND_S), pytest.raises(ClisupError):
            await anext(events)


async def test_a_closed_subscription_ends_its_iteration(daemon: FakeDaemon) -> None:
    daemon.emit("notice", code="a", message="")
    async with open_client(daemon.path) as client:
        events = client.subscribe(SESSION, 0)
        seen = []
        with trio.fail_after(BOUND_S):
            async for event in events:
                seen.append(event["seq"])
                events.close()
    assert seen == [1]


async def test_a_subscription_that_another_task_closes_ends_its_iteration(daemon: FakeDaemon) -> None:
    seen: list[int] = []
    began = trio.Event()

    async def iterate(events: AsyncFollower) -> None:
        async for event in events:
            began.set()
            seen.append(event["seq"])
        seen.append(-1)

    daemon.emit("notice", code="a", message="")
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.path) as client, trio.open_nursery() as nursery:
            events = client.subscribe(SESSION, 0)
            nursery.start_soon(iterate, events)
            await began.wait()
            events.close()
    assert seen == [1, -1]


async def test_a_client_whose_block_is_over_says_so_at_once(daemon: FakeDaemon) -> None:
    async with open_client(daemon.path) as client:
        pass
    with trio.fail_after(BOUND_S), pytest.raises(UsageError, match="its block is over"):
        await client.ping()
    assert len(daemon.calls("initialize")) == 1


async def test_a_call_that_is_no_json_ends_no_other(daemon: FakeDaemon) -> None:
    daemon.handlers["echo"] = lambda peer, params: params
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.path) as client:
            with pytest.raises(UsageError, match="half of a surrogate pair"):
                await client.call("echo", text="\ud83d")
            assert await client.call("echo", text="whole") == {"text": "whole"}
    assert len(daemon.calls("initialize")) == 1


async def test_prompts_that_wait_leave_room_for_other_calls(daemon: FakeDaemon) -> None:
    """The daemon runs so many requests of a connection at once, and reads no more before one of them ends."""
    waiting: list[tuple[Peer, int]] = []
    introduce = daemon.handlers["initialize"]

    def prompt(peer: Peer, params: dict[str, Any]) -> Any:
        waiting.append((peer, peer.asked))
        return SILENCE

    daemon.handlers["initialize"] = lambda peer, params: introduce(peer, params) | {"limits": {"max_requests": 10}}
    daemon.handlers["session/prompt"] = prompt
    result = {"turn_id": "t1", "outcome": "completed", "text": "", "usage": {}}
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.path) as client, trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(client.attach(SESSION).prompt, "Hi")
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert await client.ping()
            assert len(waiting) == 2
            for place in range(3):
                while len(waiting) <= place:
                    await trio.sleep(0.005)
                peer, asked = waiting[place]
                peer.send({"jsonrpc": "2.0", "id": asked, "result": result})


async def test_an_unknown_session_is_refused_at_the_first_step(daemon: FakeDaemon) -> None:
    def gone(peer: Peer, params: dict[str, Any]) -> Any:
        raise UsageError("cannot find it", kind="session_not_found")

    daemon.handlers["session/subscribe"] = gone
    async with open_client(daemon.path) as client:
        with trio.fail_after(BOUND_S), pytest.raises(ClisupError):
            await anext(client.subscribe(SESSION, 0))
