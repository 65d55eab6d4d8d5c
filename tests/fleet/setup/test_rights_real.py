"""Three real nodes with the configuration of `clisup fleet init`: TLS, and what each role may do."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from clisup.errors import ClisupError, WorldError
from clisup.fleet import nats_engine
from clisup.fleet.agent.records import BoxBeat
from clisup.fleet.chain import chunk_subject
from clisup.fleet.checks import BoxSeen, FleetFacts, fleet_findings
from clisup.fleet.engine import Bucket
from clisup.fleet.member import read_member
from clisup.fleet.nats_engine import NatsEngine, connect_member
from clisup.fleet.setup.folder import add_member, found, remove_member_of
from clisup.fleet.setup.nodes import CLUSTER_OFFSET
from clisup.fleet.tunnel import call_subject

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
PATIENCE_S = 60.0
SERVER = Path(sys.executable).with_name("nats-server")


def free_port() -> int:
    """A port that is free on all loopback addresses, with that of the routes."""
    for port in range(21000 + os.getpid() % 5000, 60000, 7):
        held = []
        try:
            for host in HOSTS:
                for each in (port, port + CLUSTER_OFFSET):
                    held.append(socket.socket())
                    held[-1].bind((host, each))
            return port
        except OSError:
            continue
        finally:
            for each_ in held:
                each_.close()
    raise AssertionError("no port is free")


class Fleet:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        found(str(folder), "team", HOSTS, free_port())
        for name, role in (("dev1", "worker"), ("dev2", "worker"), ("anna", "operator"), ("eve", "observer")):
            add_member(str(folder), name, [role])  # type: ignore[list-item]
        self.nodes = [self._start(folder / host) for host in HOSTS]

    def _start(self, node: Path) -> subprocess.Popen[bytes]:
        with (node / "log").open("ab") as log:
            return subprocess.Popen([SERVER, "-c", "nats.conf"], cwd=node, stdout=log, stderr=log)

    def reload(self) -> None:
        for node in self.nodes:
            node.send_signal(signal.SIGHUP)

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
            node.wait()

    def as_member(self, name: str, do: Callable[[NatsEngine], Awaitable[None]], timeout_s: float = 10.0) -> None:
        async def run() -> None:
            async with connect_member(read_member(str(self.folder / f"{name}.member")), timeout_s=timeout_s) as engine:
                await do(engine)

        asyncio.run(run())


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    running = Fleet(tmp_path_factory.mktemp("fleet") / "team")
    try:
        _prepare(running)
        yield running
    finally:
        running.close()


def _prepare(running: Fleet) -> None:
    """Create the streams, as soon as the nodes have found each other."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return running.as_member("admin", lambda engine: engine.prepare(3, 64 * 1024 * 1024))
        except ClisupError:
            assert time.monotonic() < end
            time.sleep(0.3)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_engine, "_ANSWER_S", 2.0)


async def refused(what: Awaitable[object]) -> None:
    with pytest.raises(WorldError) as caught:
        await what
    assert caught.value.kind == "permission_denied", caught.value


def test_a_worker_writes_only_its_own_records(fleet: Fleet) -> None:
    async def work(engine: NatsEngine) -> None:
        assert await engine.append(chunk_subject("dev1", "s"), b"mine", expected=0)
        await Bucket(engine, "BOXES").put("dev1", b"{}")
        await Bucket(engine, "SESSIONS").put("dev1.s", b"{}")
        await Bucket(engine, "JOBS").put("j", b"{}")
        await Bucket(engine, "HOLDS").put("a", b"{}")
        await refused(engine.call(call_subject("nobody", "observe", "dev1"), b"", 2.0))
        async with engine.answer(call_subject("dev1", "*", "*"), _echo):
            pass
        await refused(engine.append(chunk_subject("dev2", "s"), b"forged"))
        await refused(Bucket(engine, "BOXES").put("dev2", b"{}"))
        await refused(Bucket(engine, "SESSIONS").put("dev2.s", b"{}"))
        await refused(engine.append("clisup.job.dev1.j", b"{}"))
        await refused(engine.call(call_subject("dev2", "drive", "dev1"), b"", 2.0))
        await refused(engine.call(call_subject("dev2", "observe", "anna"), b"", 2.0))
        await refused(engine.prepare(1, 1))
        await refused(engine.forget("dev2", "*"))

    fleet.as_member("dev1", work)


async def _echo(_subject: str, data: bytes) -> bytes:
    return data


def test_an_observer_reads_and_cannot_drive(fleet: Fleet) -> None:
    async def look(engine: NatsEngine) -> None:
        async for message in engine.read("clisup.ev.>"):
            assert message.data == b"mine"
            break
        assert await Bucket(engine, "BOXES").get("dev1") is not None
        assert await engine.call(call_subject("nobody", "observe", "eve"), b"", 2.0) is None
        await refused(engine.call(call_subject("dev1", "drive", "eve"), b"", 2.0))
        await refused(engine.append(chunk_subject("eve", "s"), b"x"))
        await refused(Bucket(engine, "JOBS").put("j", b"{}"))
        await refused(engine.append("clisup.job.eve.j", b"{}"))

    fleet.as_member("eve", look)


def test_an_operator_drives_and_submits_under_its_own_name(fleet: Fleet) -> None:
    async def drive(engine: NatsEngine) -> None:
        assert await engine.call(call_subject("nobody", "drive", "anna"), b"", 2.0) is None
        assert await engine.append("clisup.job.anna.j1", b"{}", expected=0)
        await refused(engine.append("clisup.job.dev1.j1", b"{}"))
        await refused(engine.append(chunk_subject("anna", "s"), b"x"))
        await refused(engine.call(call_subject("dev1", "admin", "anna"), b"", 2.0))

    fleet.as_member("anna", drive)


def test_the_admin_forgets_a_copy(fleet: Fleet) -> None:
    async def forget(engine: NatsEngine) -> None:
        await engine.append(chunk_subject("old", "s"), b"x", expected=0)
        await Bucket(engine, "SESSIONS").put("old.s", b"{}")
        assert await engine.forget("old", "*") == 2
        assert await engine.last("clisup.ev.old.>") is None
        states = await engine.stream_states()
        assert {state.replicas for state in states.values()} == {3}
        assert all(state.leader for state in states.values())

    fleet.as_member("admin", forget)


def test_another_ca_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    found(str(tmp_path / "other"), "other", ["hub1"], 4222)
    member = read_member(str(fleet.folder / "eve.member"))._replace(ca=(tmp_path / "other" / "ca.crt").read_text())

    async def run() -> None:
        async with connect_member(member, timeout_s=5.0):
            raise AssertionError("connected")

    with pytest.raises(WorldError, match="certificate") as caught:
        asyncio.run(run())
    assert caught.value.kind == "fleet_away"


def test_a_removed_member_is_refused_after_the_reload(fleet: Fleet) -> None:
    add_member(str(fleet.folder), "gone", ["observer"])
    fleet.reload()
    kept = read_member(str(fleet.folder / "gone.member"))

    async def reach(timeout_s: float) -> str:
        try:
            async with connect_member(kept, timeout_s=timeout_s):
                return "in"
        except WorldError as error:
            return error.kind

    _until(lambda: asyncio.run(reach(3.0)) == "in")
    remove_member_of(str(fleet.folder), "gone")
    fleet.reload()
    _until(lambda: asyncio.run(reach(3.0)) == "permission_denied")


def _until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_full_disk_of_the_engine_drops_the_oldest_copies(tmp_path: Path) -> None:
    """The streams of copies are bounded: boxes never wait for room."""
    folder = tmp_path / "small"
    port = free_port()
    found(str(folder), "small", ["127.0.0.1"], port)
    node = subprocess.Popen([SERVER, "-c", "nats.conf"], cwd=folder / "127.0.0.1", stderr=subprocess.DEVNULL)
    member = read_member(str(folder / "admin.member"))

    async def fill() -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    async with connect_member(member, timeout_s=3.0) as engine:
                        await engine.prepare(1, 1024 * 1024)
                        position = 0
                        for _ in range(30):
                            position = (
                                await engine.append(chunk_subject("b", "s"), b"x" * 100_000, expected=position) or 0
                            )
                        last = await engine.last(chunk_subject("b", "s"))
                        assert last is not None
                        assert last.position == position == 30
                        return
                except ClisupError:
                    await asyncio.sleep(0.2)

    try:
        asyncio.run(fill())
    finally:
        node.kill()
        node.wait()


# -- the rules of `clisup fleet doctor`


def facts(**fields: object) -> FleetFacts:
    streams = {
        name: nats_engine.StreamState("n1", 3, 1, 1, [])
        for name in ("CLISUP_EV", "CLISUP_JOB", "CLISUP_STATE", "KV_BOXES", "KV_SESSIONS", "KV_HOLDS")
    }
    whole = {"version": (2, 15, 1), "nodes": 3, "now": 1000.0, "streams": streams, "roles": ["worker"], **fields}
    return FleetFacts(**whole)  # type: ignore[arg-type]


def seen(at: float = 999.0, words: tuple[str, ...] = ("w",), **fields: object) -> BoxSeen:
    beat = BoxBeat(**{"version": "1", "incarnation": "w", "at": at, **fields})  # type: ignore[arg-type]
    return BoxSeen(beat, at if "at" not in fields else 999.0, frozenset(words))


@pytest.mark.parametrize(
    ("given", "check", "status", "word"),
    [
        ({}, "engine", "ok", "2.15.1"),
        ({"version": (2, 12, 1)}, "engine", "warn", "2.12.3"),
        ({"streams": {}}, "streams", "fail", "missing"),
        (
            {"streams": {**facts().streams, "CLISUP_STATE": nats_engine.StreamState("", 3, 1, 1, [])}},
            "streams",
            "fail",
            "no leader",
        ),
        (
            {"streams": {**facts().streams, "CLISUP_STATE": nats_engine.StreamState("n", 1, 1, 1, [])}},
            "streams",
            "warn",
            "1 copies on 3",
        ),
        (
            {"streams": {**facts().streams, "CLISUP_STATE": nats_engine.StreamState("n", 3, 1, 1, ["n2"])}},
            "streams",
            "warn",
            "behind on n2",
        ),
        ({"refused": "no"}, "rights", "fail", "refuse"),
        ({"roles": ["operator", "worker"]}, "rights", "warn", "could drive"),
        ({"boxes": {"b": seen()}}, "b", "ok", "clisup 1"),
        ({"boxes": {"b": seen(900.0)}}, "b", "warn", "away"),
        ({"boxes": {"b": seen(words=("w", "v"))}}, "b", "fail", "two boxes"),
        ({"boxes": {"b": seen(daemon="down")}}, "b", "warn", "no daemon"),
        ({"boxes": {"b": seen(lag=99_999)}}, "b", "warn", "99999 events"),
    ],
)
def test_a_finding_says_what_is_wrong(given: dict[str, object], check: str, status: str, word: str) -> None:
    found_ = [each for each in fleet_findings(facts(**given)) if each.check == check]
    assert any(each.status == status and word in each.detail for each in found_), found_
    assert all(each.fix for each in found_ if each.status != "ok")
