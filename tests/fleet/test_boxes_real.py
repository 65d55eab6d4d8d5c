"""Two boxes with real daemons: commands and clients of one reach the other, alive through a tunnel and away from the copy."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from serving import serve

from clisup.client.raw import RawClient
from clisup.client.sync import Client, Follower
from clisup.errors import ClisupError, WorldError
from clisup.fleet.agent import copying, sockets, tunnel_client
from tests.fleet.boxes_in_memory import running, settings_of, socket_of, thread, until
from tests.fleet.memory_engine import MemoryEngine

__all__ = ["serve"]

Serve = Callable[..., Any]


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "LINGER_S", 0.02)
    monkeypatch.setattr(sockets, "LOOK_S", 0.05)
    monkeypatch.setattr(tunnel_client, "AGAIN_S", 0.05)


class Forgetful(MemoryEngine):
    """Engine that delivers calls and loses each third answer."""

    count = 0

    async def call(self, subject: str, data: bytes, timeout_s: float) -> bytes | None:
        answer = await super().call(subject, data, timeout_s)
        self.count += 1
        if self.count % 3 == 0 and answer is not None:
            raise WorldError("the answer was lost", kind="fleet_away")
        return answer


async def connected(path: str) -> Client:
    """A client of another box, as soon as its socket answers."""

    async def connect() -> Client:
        client: Client = await thread(Client.connect, path, name="test")
        return client

    found: Client = await until(connect)
    return found


def ask(path: str, prompt: str) -> str:
    """Run one turn on a box by a client of its own. Return the answer."""
    with RawClient.connect(path, name="test") as client:
        session = client.call("session/new", backend="demo", cwd="/")["session_id"]
        return str(client.call("session/prompt", session_id=session, prompt=prompt, wait=True)["text"])


def test_a_client_drives_another_box_as_its_own(serve: Serve, tmp_path: Path) -> None:
    daemon, engine = serve(), MemoryEngine()
    near, far = settings_of(tmp_path, "near", None, {"operator"}), settings_of(tmp_path, "far", daemon, {"worker"})

    async def play() -> None:
        async with running(engine, far), running(engine, near):
            client = await connected(socket_of(near, "far"))
            session = await thread(client.call, "session/new", backend="demo", cwd="/")
            id_ = session["session_id"]
            end = await thread(client.call, "session/prompt", session_id=id_, prompt="hello", wait=True)
            assert end["text"] == "You said: hello"
            page = await thread(client.call, "session/events", session_id=id_)
            accepted = next(event for event in page["events"] if event["type"] == "prompt_accepted")
            assert accepted["actor"]["client"] == "test of near"
            assert json.loads(json.dumps(page)) == await thread(_own_page, daemon, id_)
            await thread(client.close)

    asyncio.run(play())


def _own_page(daemon: Any, id_: str) -> Any:
    with RawClient.connect(str(daemon.socket)) as client:
        return client.call("session/events", session_id=id_)


def test_lost_answers_lose_and_double_no_byte(serve: Serve, tmp_path: Path) -> None:
    daemon, engine = serve(), Forgetful()
    near, far = settings_of(tmp_path, "near", None, {"operator"}), settings_of(tmp_path, "far", daemon, {"worker"})

    async def play() -> None:
        async with running(engine, far), running(engine, near):
            client = await connected(socket_of(near, "far"))
            await thread(client.close)
            path = socket_of(near, "far")
            texts = [f"{number} " + "x" * 200_000 for number in range(3)]
            answers = await asyncio.gather(*(until(lambda text=text: thread(ask, path, text)) for text in texts))
            assert answers == [f"You said: {text}" for text in texts]

    asyncio.run(play())


@pytest.mark.parametrize(
    ("roles", "accept", "why"),
    [
        ({"observer"}, ["*"], "may not drive"),
        ({"operator"}, [], "does not let near drive"),
        ({"operator"}, ["other"], "does not let"),
    ],
)
def test_a_box_is_driven_only_with_its_leave(
    serve: Serve, tmp_path: Path, roles: set[Any], accept: list[str], why: str
) -> None:
    daemon, engine = serve(), MemoryEngine()
    near = settings_of(tmp_path, "near", None, roles)
    far = settings_of(tmp_path, "far", daemon, {"worker"}, accept=accept)

    async def play() -> None:
        async with running(engine, far), running(engine, near):
            client = await connected(socket_of(near, "far"))
            assert (await thread(client.call, "session/list"))["sessions"] == []
            with pytest.raises(ClisupError, match=why) as caught:
                await thread(client.call, "session/new", backend="demo", cwd="/")
            assert caught.value.kind == "permission_denied"
            for method in ("tool/serve", "daemon/shutdown"):
                with pytest.raises(ClisupError) as caught:
                    await thread(client.call, method)
                assert caught.value.kind == "unsupported"
            assert await thread(client.call, "ping")
            await thread(client.close)

    asyncio.run(play())


def test_a_follower_gets_each_event_once_while_its_box_goes_and_comes_back(serve: Serve, tmp_path: Path) -> None:
    daemon, engine = serve(), MemoryEngine()
    near, far = settings_of(tmp_path, "near", None, {"operator"}), settings_of(tmp_path, "far", daemon, {"worker"})

    def follow(path: str, id_: str, count: int) -> list[tuple[int, str]]:
        found = []
        with Follower(path, id_, 0, name="test") as events:
            for event in events:
                assert event["type"] != "gap", event
                found.append((event["seq"], event["type"]))
                if sum(kind == "turn_completed" for _, kind in found) == count:
                    return found
        return found

    async def play() -> None:
        session = await thread(daemon.new)
        async with running(engine, near):
            async with running(engine, far):
                await thread(session.ask, "first")
                await thread((await connected(socket_of(near, "far"))).close)
                following = asyncio.create_task(thread(follow, socket_of(near, "far"), session.id, 3))
                await thread(session.ask, "second")
                async with asyncio.timeout(60):
                    while not (await _copied(engine, session.id)) >= 2:
                        await asyncio.sleep(0.05)
            await thread(session.ask, "while the agent is away")
            async with running(engine, far):
                found = await asyncio.wait_for(following, 90)
        assert [seq for seq, _ in found] == list(range(1, len(found) + 1))

    asyncio.run(play())


async def _copied(engine: MemoryEngine, id_: str) -> int:
    from tests.fleet.copied import copy_of

    lines = (await copy_of(engine, "far")).sessions.get(id_, {})
    return sum(b'"type":"turn_completed"' in line for line in lines.values())


def test_a_box_that_is_away_can_be_read_and_not_driven(serve: Serve, tmp_path: Path) -> None:
    daemon, engine = serve(), MemoryEngine()
    near, far = settings_of(tmp_path, "near", None, {"operator"}), settings_of(tmp_path, "far", daemon, {"worker"})

    async def play() -> None:
        session = await thread(daemon.new)
        await thread(session.ask, "hello")
        own = await thread(_own_page, daemon, session.id)
        async with running(engine, near):
            async with running(engine, far):
                await thread((await connected(socket_of(near, "far"))).close)
                await until(lambda: _copied(engine, session.id))
                await until(lambda: _row(engine, session.id))
            client = await connected(socket_of(near, "far"))
            assert client.server["server"]["copy"] is True
            assert [row["session_id"] for row in (await thread(client.call, "session/list"))["sessions"]] == [
                session.id
            ]
            assert (await thread(client.call, "session/get", session_id=session.id))["turns"] == 1
            assert await thread(client.call, "session/events", session_id=session.id) == own
            small = await thread(client.call, "session/events", session_id=session.id, after_seq=2, limit=2)
            assert [event["seq"] for event in small["events"]] == [3, 4]
            assert not small["eof"]
            for method, params in (
                ("session/prompt", {"session_id": session.id, "prompt": "no"}),
                ("daemon/status", {}),
                ("approval/respond", {}),
                ("session/events", {"session_id": session.id, "raw": True}),
            ):
                with pytest.raises(ClisupError) as caught:
                    await thread(client.call, method, **params)
                assert (caught.value.kind, caught.value.data["box"]) == ("box_away", "far")
            with pytest.raises(ClisupError) as caught:
                await thread(client.call, "session/get", session_id="0" * 8 + "-0000-4000-8000-" + "0" * 12)
            assert caught.value.kind == "session_not_found"
            await thread(client.close)

    asyncio.run(play())


async def _row(engine: MemoryEngine, id_: str) -> bool:
    entry = await engine.last(f"$KV.SESSIONS.far.{id_}")
    return entry is not None and json.loads(entry.data)["row"]["turns"] == 1


def test_a_box_that_shares_only_its_status_is_not_read_while_away(serve: Serve, tmp_path: Path) -> None:
    daemon, engine = serve(), MemoryEngine()
    near = settings_of(tmp_path, "near", None, {"operator"})
    far = settings_of(tmp_path, "far", daemon, {"worker"}, share="status")

    async def play() -> None:
        session = await thread(daemon.new)
        await thread(session.ask, "secret")
        async with running(engine, near):
            async with running(engine, far):
                client = await connected(socket_of(near, "far"))
                await until(lambda: _row(engine, session.id))
                assert (await thread(client.call, "session/events", session_id=session.id))["events"]
                await thread(client.close)
            client = await connected(socket_of(near, "far"))
            with pytest.raises(ClisupError) as caught:
                await thread(client.call, "session/events", session_id=session.id)
            assert caught.value.kind == "box_away"
            await thread(client.close)
        assert await engine.last("clisup.ev.>") is None

    asyncio.run(play())


def test_without_the_engine_a_socket_says_so(serve: Serve, tmp_path: Path) -> None:
    near = settings_of(tmp_path, "near", None, {"operator"})
    path = Path(socket_of(near, "far"))
    path.parent.mkdir(mode=0o700)
    path.touch()

    async def play() -> None:
        async with running(None, near):

            async def refused() -> str:
                try:
                    await thread(Client.connect, str(path), name="test")
                except ClisupError as error:
                    return error.kind if error.kind == "fleet_away" else ""
                return ""

            assert await until(refused) == "fleet_away"

    asyncio.run(play())


def test_a_deleted_session_leaves_the_list_of_its_box(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clisup.fleet.agent import rows

    monkeypatch.setattr(rows, "ALL_S", 0.2)
    monkeypatch.setattr(rows, "EVERY_S", 0.05)
    daemon, engine = serve(), MemoryEngine()
    near, far = settings_of(tmp_path, "near", None, {"operator"}), settings_of(tmp_path, "far", daemon, {"worker"})

    async def play() -> None:
        session = await thread(daemon.new)
        await thread(session.ask, "hello")
        async with running(engine, far), running(engine, near) as agent:
            await until(lambda: _row(engine, session.id))

            def gone() -> None:
                with RawClient.connect(str(daemon.socket)) as client:
                    client.call("session/close", session_id=session.id)
                    client.call("session/delete", session_id=session.id)

            await thread(gone)

            async def listed() -> bool:
                assert agent.table is not None
                return session.id not in agent.table.rows("far")

            await until(listed)

    asyncio.run(play())
