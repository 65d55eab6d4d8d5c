"""Both typed clients against a real daemon: what it answers is what the models say, and turns end as they should."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from harness import Harness, until

from clisup.client.aio import open_client
from clisup.client.events import ContentDelta, PromptAccepted, TurnCompleted, UnknownEvent
from clisup.client.sync import Client
from clisup.errors import ClisupError

BOUND_S = 90.0


def test_the_daemon_answers_a_blocking_client_in_the_shapes_of_the_models(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    chosen = str(uuid.uuid4())
    with Client.connect(daemon.socket) as client:
        assert client.ping().endswith("Z")
        assert client.status()["daemon"]["pid"] == daemon.pid
        assert "demo" in [backend.name for backend in client.backends() if backend.supported]
        assert "PATH" in [rule.name for rule in client.backend_env("demo", {}).set + client.backend_env("demo").kept]
        assert {finding.status for finding in client.check("demo", cwd=str(daemon.cwd))} <= {"ok", "warn", "fail"}
        session = client.open("demo", str(daemon.cwd), session_id=chosen, labels={"a": "b"})
        assert session.id == chosen
        assert [item.session_id for item in client.sessions(labels={"a": "b"})] == [chosen]
        result = session.prompt("Hi")
        assert (result.outcome, result.text) == ("completed", "You said: Hi")
        assert session.info().turns == 1
        assert [envelope.seq for envelope in session.history()] == [*range(1, session.info().next_seq)]
        assert not any(isinstance(envelope.event, UnknownEvent) for envelope in session.history())
        with pytest.raises(ClisupError) as caught:
            session.interrupt()
        assert caught.value.kind == "turn_not_found"
        session.close()
        session.delete()
        assert client.sessions(state="closed") == []


async def test_the_daemon_answers_a_trio_client_in_the_shapes_of_the_models(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.socket) as client:
            assert (await client.ping()).endswith("Z")
            assert "demo" in [backend.name for backend in await client.backends() if backend.supported]
            assert {finding.status for finding in await client.check("demo")} <= {"ok", "warn", "fail"}
            async with client.session("demo", str(daemon.cwd), labels={"a": "b"}) as session:
                assert [item.session_id for item in await client.sessions(labels={"a": "b"})] == [session.id]
                assert (await session.prompt("Hi")).text == "You said: Hi"
                seqs = [envelope.seq async for envelope in session.history()]
                assert seqs == [*range(1, (await session.info()).next_seq)]
            await session.delete()
            assert await client.sessions(state="closed") == []


async def test_a_turn_goes_on_over_a_restart_that_its_own_client_asks_for(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve()
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.socket) as client, client.session("demo", str(daemon.cwd)) as session:
            turn = session.run(f"@stream 20\n@wait-file {tmp_path}/go\n@stream 20", key="one")
            seqs, chunks = [], 0
            async for envelope in turn:
                seqs.append(envelope.seq)
                chunks += isinstance(envelope.event, ContentDelta)
                if chunks == 20 and not (tmp_path / "go").exists():
                    before = client.server["server"]["instance_id"]
                    assert (await client.restart_daemon()).instance_id == before
                    while (await client.status())["daemon"]["instance_id"] == before:
                        await trio.sleep(0.01)
                    (tmp_path / "go").touch()
            assert (chunks, turn.result and turn.result.outcome) == (40, "completed")
            assert seqs == sorted(set(seqs))
            again = session.run("whatever", key="one")
            assert [envelope.seq async for envelope in again] == seqs, "the key is known: the same turn is given again"


def test_a_queued_turn_gives_nothing_of_the_one_before_it_and_can_be_taken_out(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve()
    with Client.connect(daemon.socket) as client, client.open("demo", str(daemon.cwd)) as session:
        first = session.run(f"@stream 5\n@wait-file {tmp_path}/go")
        second, third = session.run("second"), session.run("third")
        until(lambda: [item["turn_id"] for item in session.info().queue] == [second.id, third.id])
        third.interrupt()
        (tmp_path / "go").touch()
        types = {turn.id: [envelope.event.type for envelope in turn] for turn in (first, second, third)}
        assert types[first.id][-1] == types[second.id][-1] == types[third.id][-1] == "turn_completed"
        assert second.result is not None and second.result.text == "You said: second"
        assert third.result is not None and third.result.outcome == "interrupted"
        assert {e.turn_id for e in session.history(types=["turn_completed"])} == {first.id, second.id, third.id}


def test_a_turn_that_is_interrupted_in_its_text_still_gives_its_end(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    with Client.connect(daemon.socket) as client, client.open("demo", str(daemon.cwd)) as session:
        turn = session.run("some words\n@stall")
        for envelope in turn:
            if isinstance(envelope.event, ContentDelta):
                turn.interrupt()
                break
        last = list(turn)[-1].event
        assert isinstance(last, TurnCompleted)
        assert last.outcome == "interrupted"


def test_a_payload_that_left_its_event_is_had_whole(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    with Client.connect(daemon.socket) as client, client.open("demo", str(daemon.cwd)) as session:
        session.prompt("@huge 600000")
        end = list(session.history(types=["turn_completed"]))[-1].event
        assert isinstance(end, TurnCompleted)
        assert end.blob is not None
        assert len(session.blob(end.blob)) >= 600_000


def test_a_forgotten_name_begins_anew(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    with Client.connect(daemon.socket) as client, client.open("demo", str(daemon.cwd)) as session:
        session.prompt("Hi")
        for _ in range(2):
            with client.events("*", 0, name="mine") as events:
                first = next(events)
                assert isinstance(first.event, PromptAccepted)
                events.ack(first)
            client.forget("mine")


def test_stopping_the_daemon_is_a_word_of_the_client(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    with Client.connect(daemon.socket) as client:
        client.stop_daemon("kill")
    assert daemon.process is not None
    until(lambda: daemon.process is not None and daemon.process.poll() == 0)


def test_a_blocking_client_hears_why_the_daemon_hung_up_in_the_middle_of_a_frame(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"max_frame_bytes": 4096})
    with Client.connect(daemon.socket) as client:
        client.server["limits"] = {}  # as if the daemon had not told its limit
        with pytest.raises(ClisupError, match="the frame has more than 4096 bytes") as caught:
            client.call("ping", text="x" * 3_000_000)
        assert caught.value.kind == "invalid_request"
        assert client.ping()


async def test_a_trio_client_hears_why_the_daemon_hung_up_in_the_middle_of_a_frame(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve(daemon={"max_frame_bytes": 4096})
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.socket) as client:
            client.server["limits"] = {}
            with pytest.raises(ClisupError, match="the frame has more than 4096 bytes") as caught:
                await client.call("ping", text="x" * 3_000_000)
            assert caught.value.kind == "invalid_request"
            assert await client.ping()
