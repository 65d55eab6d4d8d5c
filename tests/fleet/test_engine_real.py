"""The engine on a real nats-server: the contract, kill -9, keys, and bad days."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import nkeys
import pytest
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from clisup.errors import ConfigurationError, WorldError
from clisup.fleet import nats_engine
from clisup.fleet.chain import chunk_subject
from clisup.fleet.member import MemberKey
from clisup.fleet.nats_engine import NatsEngine, connect
from tests.fleet.engine_contract import CONTRACT, PATIENCE_S, Check, copied_once
from tests.fleet.nats_server import NatsServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    running = NatsServer(tmp_path_factory.mktemp("nats"))
    running.start()
    yield running
    running.kill()


def with_engine(server: NatsServer, what: Callable[[NatsEngine], Awaitable[None]]) -> None:
    async def run() -> None:
        async with connect([server.url], "box") as engine:
            await engine.prepare(1, 256 * 1024 * 1024)
            await what(engine)

    asyncio.run(run())


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
def test_the_real_engine(server: NatsServer, check: Check) -> None:
    with_engine(server, lambda engine: check(engine, check.__name__))


async def stored(engine: NatsEngine, subject: str, data: bytes, expected: int) -> int:
    """Append as an agent does: look after each doubt."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                position = await engine.append(subject, data, expected=expected)
                if position is not None:
                    return position
                last = await engine.last(subject)
                assert last is not None
                assert last.data == data
                return last.position
            except WorldError as error:
                assert error.kind == "fleet_away"
                await asyncio.sleep(0.1)


def test_a_message_that_is_lost_on_its_way_is_read_again_although_no_other_follows(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server sends what comes while a client connects anew to nobody."""
    subject, lost = chunk_subject("box", "lost"), list[bytes]()
    take = Subscription.next_msg

    async def lossy(box: Subscription, **options: float) -> Msg:
        msg = await take(box, **options)
        if msg.data == b"the last" and not lost:
            lost.append(msg.data)
            return await take(box, **options)
        return msg

    async def play(engine: NatsEngine) -> None:
        found = list[bytes]()
        async with asyncio.timeout(PATIENCE_S), aclosing(engine.read(subject)) as messages:
            for data in (b"the first", b"the last"):
                await engine.append(subject, data)
                found.append((await anext(messages)).data)
        assert (found, lost) == ([b"the first", b"the last"], [b"the last"])

    monkeypatch.setattr(Subscription, "next_msg", lossy)
    with_engine(server, play)


def test_kill_9_loses_and_doubles_nothing_and_readers_go_on(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_engine, "_ANSWER_S", 1.0)
    count, subject = 60, chunk_subject("box", "killed")

    async def read(engine: NatsEngine) -> list[bytes]:
        found = list[bytes]()
        async with aclosing(engine.read(subject)) as messages:
            async for message in messages:
                found.append(message.data)
                if len(found) == count:
                    break
        return found

    async def write(engine: NatsEngine) -> None:
        position = 0
        for number in range(count):
            if number in (20, 40):
                server.kill()
                server.start()
            position = await stored(engine, subject, b"%d" % number, position)

    async def both(engine: NatsEngine) -> None:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(read(engine))
            await write(engine)
        assert reading.result() == [b"%d" % number for number in range(count)]

    with_engine(server, both)


def test_two_agents_copy_a_session_once_through_a_kill(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_engine, "_ANSWER_S", 1.0)

    def again() -> None:
        server.kill()
        server.start()

    with_engine(server, lambda engine: copied_once(engine, "copied-through-a-kill", 400, again))


def test_a_reader_ends_when_the_engine_lost_what_it_read(tmp_path: Path) -> None:
    server, subject = NatsServer(tmp_path / "nats"), chunk_subject("box", "s")
    saved, store = tmp_path / "saved", tmp_path / "nats" / "store"
    server.start()

    async def read_all(engine: NatsEngine) -> None:
        for number in range(3):
            await engine.append(subject, b"%d" % number)
        server.kill()
        shutil.copytree(store, saved)
        server.start()
        await stored(engine, subject, b"3", 3)
        async with asyncio.timeout(PATIENCE_S), aclosing(engine.read(subject)) as messages:
            async for message in messages:
                if message.position == 4:  # the disk is now one of yesterday
                    server.kill()
                    shutil.rmtree(store)
                    shutil.copytree(saved, store)
                    server.start()
        last = await engine.last(subject)
        assert last is not None
        assert last.data == b"2"

    try:
        with_engine(server, read_all)
    finally:
        server.kill()


def test_a_call_is_refused_and_not_kept_while_the_engine_is_away(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    server.start()

    async def call(engine: NatsEngine) -> None:
        server.kill()
        async with asyncio.timeout(PATIENCE_S):
            while engine._client.is_connected:
                await asyncio.sleep(0.02)
        with pytest.raises(WorldError) as caught:
            await engine.call("clisup.rpc.b.drive.box", b"yes", PATIENCE_S)
        assert caught.value.kind == "fleet_away"

    try:
        with_engine(server, call)
    finally:
        server.kill()


def test_an_engine_that_is_not_there_is_away() -> None:
    async def run() -> None:
        async with connect(["nats://me:secret@127.0.0.1:1"], "box", timeout_s=0.5):
            raise AssertionError("connected")

    with pytest.raises(WorldError, match=r"cannot reach the engine of the fleet at 127.0.0.1:1,") as caught:
        asyncio.run(run())
    assert caught.value.kind == "fleet_away"


@pytest.mark.parametrize("text", ["", "no key", "SUAAAA", "\xff" * 5000])
def test_what_is_no_key_is_a_wrong_configuration(text: str) -> None:
    async def run() -> None:
        async with connect(["nats://127.0.0.1:1"], "box", key=MemberKey(text)):
            raise AssertionError("connected")

    with pytest.raises(ConfigurationError, match="cannot use this member's key"):
        asyncio.run(run())


def test_a_server_that_is_too_old_is_refused(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_engine, "OLDEST", (99, 0))

    async def run() -> None:
        async with connect([server.url], "box"):
            raise AssertionError("connected")

    with pytest.raises(WorldError, match="is nats-server 2") as caught:
        asyncio.run(run())
    assert caught.value.kind == "unsupported"


def keys() -> tuple[MemberKey, str, MemberKey]:
    """Two keys, the first with its public part."""
    seeds = [nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER) for _ in range(2)]
    public = nkeys.from_seed(bytearray(seeds[0])).public_key.decode()
    member, other = (MemberKey(bytes(seed).decode()) for seed in seeds)
    return member, public, other


def test_a_key_gives_only_its_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_engine, "_ANSWER_S", 1.0)
    member, public, other = keys()
    allowed = '["clisup.ev.box.>", "$JS.API.STREAM.MSG.GET.>"]'
    rights = f'permissions {{ publish: {allowed}, subscribe: ["_INBOX_box.>"] }}'
    server = NatsServer(tmp_path / "nats", f"authorization {{ users: [ {{ nkey: {public}, {rights} }} ] }}")
    server.start()

    async def run() -> None:
        async with connect([server.url], "box", key=member) as engine:
            with pytest.raises(WorldError) as caught:
                await engine.append(chunk_subject("another", "s"), b"forged")
            assert caught.value.kind == "permission_denied"
            with pytest.raises(WorldError) as caught:
                await engine.prepare(1, -1)
            assert caught.value.kind == "permission_denied"
            with pytest.raises(WorldError) as caught:
                await engine.append(chunk_subject("box", "s"), b"no stream yet")
            assert caught.value.kind == "fleet_away"

    async def refused() -> None:
        async with connect([server.url], "box", key=other, timeout_s=3.0):
            raise AssertionError("connected")

    try:
        asyncio.run(run())
        with pytest.raises(WorldError, match="refuses this member's key") as caught:
            asyncio.run(refused())
        assert caught.value.kind == "permission_denied"
    finally:
        server.kill()
