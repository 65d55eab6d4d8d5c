"""A stolen worker's key on a real engine: what it may not do is refused, and what it may do harms no other member."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from clisup.errors import ConfigurationError, WorldError
from clisup.fleet import nats_engine
from clisup.fleet.chain import chunk_subject
from clisup.fleet.engine import STREAMS, Bucket
from clisup.fleet.jobs import JobState, write_state
from clisup.fleet.member import Role
from clisup.fleet.nats_engine import NatsEngine, connect, connect_member
from clisup.fleet.setup.folder import found
from clisup.fleet.setup.permissions import MEMBER_API, permissions_of
from clisup.fleet.tunnel import call_subject
from tests.fleet.nats_server import FoundedNode

JOB = "5d1c9c7e-0000-4000-8000-000000000000"
MEMBERS: dict[str, list[Role]] = {
    "good": ["worker"],
    "evil": ["worker"],
    "spy": ["worker", "observer"],
    "ci": ["operator"],
}
Play = Callable[[NatsEngine], Awaitable[None]]


class Fleet(FoundedNode):
    """One node with members and records of the member `good`."""

    def play(self, **plays: Play) -> None:
        """Let members act, one after the other."""

        async def run() -> None:
            for name, play in plays.items():
                async with connect_member(self.member(name)) as engine:
                    await play(engine)

        asyncio.run(run())


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    running = Fleet(tmp_path_factory.mktemp("fleet") / "team", MEMBERS)
    running.start()
    try:
        running.prepare(64 * 1024 * 1024)
        running.play(good=_works, ci=_submits)
        yield running
    finally:
        running.kill()


async def _works(engine: NatsEngine) -> None:
    await engine.append(chunk_subject("good", "s"), b"a secret prompt")
    await Bucket(engine, "SESSIONS").put("good.s", b"{}")
    await Bucket(engine, "JOBS").put(JOB, write_state(JobState(status="claimed", incarnation="g")))


async def _submits(engine: NatsEngine) -> None:
    await engine.append(f"clisup.job.ci.{JOB}", b"{}", expected=0)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_engine, "_ANSWER_S", 2.0)


def records(fleet: Fleet) -> dict[str, tuple[int, list[str]]]:
    """All streams, with the subjects that are not evil's own."""
    known: dict[str, tuple[int, list[str]]] = {}

    async def look(engine: NatsEngine) -> None:
        for stream in STREAMS:
            answer = await engine.call(f"$JS.API.STREAM.INFO.{stream.name}", b'{"subjects_filter":">"}', 5.0)
            info = json.loads(answer or b"")
            subjects = {
                name: count for name, count in (info["state"].get("subjects") or {}).items() if "evil" not in name
            }
            known[stream.name] = sum(subjects.values()), sorted(subjects)

    fleet.play(admin=look)
    return known


CONNECTIONS = 10
FORBIDDEN = [
    "clisup.ev.good.s.0", "$KV.BOXES.good", "$KV.SESSIONS.good.s", f"clisup.state.{JOB}.work.good", "$KV.HOLDS.team.work.good",
    f"clisup.state.{JOB}.submit.evil", f"clisup.state.{JOB}.submit.ci", "clisup.job.evil.j", "clisup.job.ci.j",
    "clisup.rpc.good.observe.evil", "clisup.rpc.good.drive.evil", "clisup.rpc.good.drive.ci", "clisup.rpc.evil.observe.evil",
    "clisup.serve.good.drive.ci", "_INBOX_good.x", "_INBOX_evil.x", "$JS.ACK.KV_BOXES.x.1.1.1.1.1", "$JS.FC.x", "$SYS.REQ.SERVER.PING",
    *[f"$JS.API.{name}" for name in ("INFO", "STREAM.NAMES", "STREAM.INFO.CLISUP_EV")],
    *[f"{api}.{method}" for api in ("$JS.API", MEMBER_API) for method in (
        "STREAM.CREATE.X", "STREAM.UPDATE.CLISUP_STATE", "STREAM.PURGE.CLISUP_STATE", "STREAM.DELETE.CLISUP_STATE",
        "STREAM.MSG.DELETE.CLISUP_EV", "STREAM.MSG.GET.CLISUP_EV", "STREAM.MSG.GET.KV_SESSIONS", "STREAM.SNAPSHOT.CLISUP_EV",
        "DIRECT.GET.CLISUP_EV", "DIRECT.GET.CLISUP_EV.clisup.ev.good.s.0", "DIRECT.GET.CLISUP_EV.clisup.ev.*.s.0",
        "DIRECT.GET.KV_SESSIONS.$KV.SESSIONS.good.s", "CONSUMER.CREATE.CLISUP_EV", "CONSUMER.CREATE.CLISUP_EV.c",
        "CONSUMER.CREATE.CLISUP_EV.c.clisup.ev.evil.>", "CONSUMER.CREATE.KV_SESSIONS.c.$KV.SESSIONS.>",
        "CONSUMER.CREATE.CLISUP_STATE.c", "CONSUMER.DURABLE.CREATE.CLISUP_STATE.c", "CONSUMER.DELETE.CLISUP_STATE.c",
        "CONSUMER.LIST.CLISUP_STATE", "CONSUMER.NAMES.CLISUP_STATE", "CONSUMER.INFO.CLISUP_STATE.c", "CONSUMER.PAUSE.CLISUP_STATE.c",
        "CONSUMER.MSG.NEXT.CLISUP_EV.c", "STREAM.LEADER.STEPDOWN.CLISUP_EV", "ACCOUNT.PURGE.X", "META.LEADER.STEPDOWN")],
]  # fmt: skip


def test_what_a_workers_key_may_not_publish_is_refused(fleet: Fleet) -> None:
    before = records(fleet)

    async def attack(_: NatsEngine) -> None:
        await asyncio.gather(*[some(FORBIDDEN[at::CONNECTIONS]) for at in range(CONNECTIONS)])

    async def some(subjects: list[str]) -> None:
        async with connect_member(fleet.member("evil")) as engine:
            for subject in subjects:
                with pytest.raises(WorldError) as caught:
                    await engine.call(subject, b"{}", 2.0)
                assert caught.value.kind == "permission_denied", (subject, caught.value)

    fleet.play(evil=attack)
    assert records(fleet) == before


VICTIMS = [
    f"clisup.state.{JOB}.work.good", "clisup.ev.good.s.0", "$KV.SESSIONS.good.s", "clisup.job.ci.k", f"clisup.state.{JOB}.submit.ci",
    "clisup.rpc.good.drive.ci", "clisup.serve.good.drive.ci", "$JS.API.STREAM.PURGE.CLISUP_STATE", "$JS.API.STREAM.DELETE.CLISUP_EV",
    f"{MEMBER_API}.STREAM.DELETE.CLISUP_EV",
]  # fmt: skip


@pytest.mark.parametrize("attacker", ["evil", "spy"])
def test_no_answer_of_the_engine_becomes_a_message_that_the_key_may_not_write(fleet: Fleet, attacker: str) -> None:
    """In one account with the streams, an answer to a reply subject of another member would be stored as its message."""
    before, heard = records(fleet), list[str]()
    consumer = {
        "name": "c1",
        "ack_policy": "none",
        "filter_subject": "$KV.BOXES.>",
        "inactive_threshold": 30_000_000_000,
    }
    create = json.dumps({"stream_name": "KV_BOXES", "config": consumer}).encode()
    create_subject = f"{MEMBER_API}.CONSUMER.CREATE.KV_BOXES.c1.$KV.BOXES.>"

    async def attack(engine: NatsEngine) -> None:
        client = engine._client
        own = f"clisup.ev.{attacker}.s.0"
        await engine.append(own, b"{}")
        await engine.call(create_subject, create, 2.0)
        for reply in VICTIMS:
            await client.publish(own, b"{}", reply=reply)
            await client.publish(f"$KV.BOXES.{attacker}", b"", reply=reply)
            await client.publish(f"{MEMBER_API}.STREAM.INFO.KV_BOXES", b"", reply=reply)
            await client.publish(f"{MEMBER_API}.DIRECT.GET.CLISUP_EV.{own}", b"", reply=reply)
            await client.publish(f"{MEMBER_API}.CONSUMER.MSG.NEXT.KV_BOXES.c1", b'{"no_wait":true}', reply=reply)
            await client.publish(create_subject, create, reply=reply)
        await client.flush()

    async def listen(engine: NatsEngine) -> None:
        async def handler(subject: str, _data: bytes) -> bytes:
            heard.append(subject)
            return b"answer"

        async with engine.answer(call_subject("good", "*", "*"), handler):
            await asyncio.to_thread(fleet.play, **{attacker: attack})
            await asyncio.to_thread(fleet.play, ci=_calls_good)

    fleet.play(good=listen)
    assert heard == ["clisup.serve.good.drive.ci"]
    after = records(fleet)
    own = {name: [subject for subject in subjects if attacker not in subject] for name, (_, subjects) in after.items()}
    assert own == {
        name: [subject for subject in subjects if attacker not in subject] for name, (_, subjects) in before.items()
    }
    assert after["CLISUP_STATE"] == before["CLISUP_STATE"]


async def _calls_good(engine: NatsEngine) -> None:
    assert await engine.call(call_subject("good", "drive", "ci"), b"do", 5.0) == b"answer"


def test_an_answer_to_a_call_gives_no_right_to_write_elsewhere(fleet: Fleet) -> None:
    """With a second key, a worker can be called with any reply subject. Its answer goes into the account of the caller."""
    before = records(fleet)

    async def call(engine: NatsEngine) -> None:
        for reply in (f"clisup.state.{JOB}.work.good", "$JS.API.STREAM.DELETE.CLISUP_EV", "clisup.ev.good.s.0"):
            await engine._client.publish("clisup.rpc.evil.drive.ci", b"x", reply=reply)
        assert await engine.call(call_subject("evil", "drive", "ci"), b"x", 5.0) == b"{}"

    async def listen(engine: NatsEngine) -> None:
        async with engine.answer(call_subject("evil", "*", "*"), _answer):
            await asyncio.to_thread(fleet.play, ci=call)

    async def _answer(_subject: str, _data: bytes) -> bytes:
        return b"{}"

    fleet.play(evil=listen)
    assert records(fleet) == before


def test_a_push_consumer_delivers_nothing_to_other_members(fleet: Fleet) -> None:
    before = records(fleet)

    async def attack(engine: NatsEngine) -> None:
        await Bucket(engine, "BOXES").put("evil", b'{"forged":1}')
        for number, victim in enumerate([*VICTIMS, "_INBOX_good.x"]):
            config = {
                "name": f"p{number}",
                "ack_policy": "none",
                "filter_subject": "$KV.BOXES.>",
                "deliver_subject": victim,
            }
            request = json.dumps({"stream_name": "KV_BOXES", "config": config}).encode()
            await engine.call(f"{MEMBER_API}.CONSUMER.CREATE.KV_BOXES.p{number}.$KV.BOXES.>", request, 5.0)
        await Bucket(engine, "BOXES").put("evil", b'{"forged":2}')
        await engine._client.flush()

    fleet.play(evil=attack)
    assert records(fleet) == before


def test_a_consumer_reads_nothing_but_its_filter(fleet: Fleet) -> None:
    async def attack(engine: NatsEngine) -> None:
        subject = f"{MEMBER_API}.CONSUMER.CREATE.KV_SESSIONS.c.$KV.SESSIONS.evil.>"
        for wider in ({"filter_subject": "$KV.SESSIONS.>"}, {"filter_subjects": ["$KV.SESSIONS.>"]}, {}):
            request = {"stream_name": "KV_SESSIONS", "config": {"name": "c", "ack_policy": "none", **wider}}
            assert b"error" in (await engine.call(subject, json.dumps(request).encode(), 5.0) or b"")
        with pytest.raises(WorldError) as caught:
            async with aclosing(engine.read("clisup.ev.good.>")) as messages:
                await anext(messages)
        assert caught.value.kind == "permission_denied"
        assert await Bucket(engine, "JOBS").get(JOB) is not None, "it may see the steps of jobs"

    fleet.play(evil=attack)


@pytest.mark.parametrize(
    "headers",
    [{"Nats-Rollup": "all"}, {"Nats-Rollup": "sub"}, {"Nats-TTL": "1s"}, {"Nats-Incr": "+1"}, {"Nats-Msg-Id": "id"},
     {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": f"clisup.state.{JOB}.work.good"}],
)  # fmt: skip
def test_no_header_of_a_message_changes_other_messages(fleet: Fleet, headers: dict[str, str]) -> None:
    before = records(fleet)

    async def attack(engine: NatsEngine) -> None:
        for subject in (
            f"clisup.state.{JOB}.work.evil",
            "clisup.ev.evil.s.0",
            "$KV.HOLDS.team.work.evil",
            "$KV.BOXES.evil",
        ):
            try:
                await engine.append(subject, b"{}", headers)
            except WorldError as error:
                assert error.kind == "fleet_away"

    fleet.play(evil=attack)
    assert records(fleet) == before


def test_a_worker_imports_only_subjects_with_its_name_or_of_the_shared_readings() -> None:
    readings = ("INFO", "STREAM.INFO.*", "STREAM.MSG.GET.", "CONSUMER.CREATE.", "CONSUMER.MSG.NEXT.")
    for subject in permissions_of("box", ["worker"]).publish:
        assert "box" in subject.split(".") or subject.startswith(tuple(f"$JS.API.{reading}" for reading in readings)), (
            subject
        )


@pytest.mark.parametrize(
    "server",
    ["nats://10.0.0.1:4222", "nats://hub1:4222", "nats://127.0.0.1.example.org:4222", "ws://127.0.0.1", "hub1"],
)
def test_a_node_elsewhere_needs_tls(server: str) -> None:
    async def run() -> None:
        async with connect([server], "box"):
            raise AssertionError("connected")

    with pytest.raises(ConfigurationError, match="without TLS"):
        asyncio.run(run())


@pytest.mark.parametrize(("host", "scheme"), [("127.0.0.1", "nats"), ("127.0.0.1.example.org", "tls"), ("hub1", "tls")])
def test_a_fleet_with_nodes_elsewhere_has_certificates(tmp_path: Path, host: str, scheme: str) -> None:
    plan = found(str(tmp_path / "team"), "team", [host], 4222)
    assert plan.servers == (f"{scheme}://{host}:4222",)
    assert ("tls {" in (tmp_path / "team" / host / "nats.conf").read_text()) is (scheme == "tls")
