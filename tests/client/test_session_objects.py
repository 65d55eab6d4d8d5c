"""Sessions and turns as objects, of both clients, against a daemon that does as it is told."""

from __future__ import annotations

import time
from typing import Any

import pytest
import trio
from fake_daemon import OTHER, SESSION, SILENCE, FakeDaemon, Peer
from scripted_turn import Script

from clisup.client.aio import open_client
from clisup.client.answers import Answer, Approval, Decision
from clisup.client.sync import Client
from clisup.errors import ClisupError, UsageError, WorldError

BOUND_S = 20.0


def test_a_turn_gives_its_own_events_and_then_its_result(daemon: FakeDaemon) -> None:
    Script(daemon)
    with Client.connect(daemon.path) as client:
        turn = client.attach(SESSION).run("Hi", deltas=False, key="k")
        assert (turn.id, turn.result) == ("t2", None)
        assert [envelope.event.type for envelope in turn] == ["prompt_accepted", "content_delta", "turn_completed"]
        assert turn.result is not None
        assert turn.result.text == "Hello."
        assert list(turn) == []
    assert daemon.calls("session/subscribe")[0] == {"session_id": SESSION, "after_seq": 1, "deltas": False}
    assert daemon.calls("session/prompt")[0]["key"] == "k"


async def test_a_trio_turn_gives_its_own_events_and_then_its_result(daemon: FakeDaemon) -> None:
    Script(daemon)
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.path) as client:
            turn = client.attach(SESSION).run("Hi", deltas=False, key="k")
            with pytest.raises(RuntimeError, match="has no id before"):
                print(turn.id)
            assert [envelope.event.type async for envelope in turn] == [
                "prompt_accepted",
                "content_delta",
                "turn_completed",
            ]
            assert turn.id == "t2"
            assert turn.result is not None
            assert turn.result.text == "Hello."
            assert [envelope async for envelope in turn] == []
    assert daemon.calls("session/subscribe")[0] == {"session_id": SESSION, "after_seq": 1, "deltas": False}
    assert daemon.calls("session/prompt")[0]["key"] == "k"


def refuse_the_first_listener(daemon: FakeDaemon) -> None:
    """The daemon begins to restart when the prompt is accepted and nobody listens yet."""
    subscribe = daemon.handlers["session/subscribe"]

    def restarting(peer: Peer, params: dict[str, Any]) -> Any:
        daemon.handlers["session/subscribe"] = subscribe
        raise WorldError("cannot listen to a daemon that ends", kind="shutting_down")

    daemon.handlers["session/subscribe"] = restarting


def test_a_turn_is_heard_though_the_daemon_went_away_right_after_its_prompt(daemon: FakeDaemon) -> None:
    Script(daemon)
    refuse_the_first_listener(daemon)
    with Client.connect(daemon.path) as client:
        turn = client.attach(SESSION).run("Hi")
        assert [envelope.event.type for envelope in turn] == ["prompt_accepted", "content_delta", "turn_completed"]
    assert len(daemon.calls("session/prompt")) == 1


async def test_a_trio_turn_is_heard_though_the_daemon_went_away_right_after_its_prompt(daemon: FakeDaemon) -> None:
    Script(daemon)
    refuse_the_first_listener(daemon)
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.path) as client:
            turn = client.attach(SESSION).run("Hi")
            heard = [envelope.event.type async for envelope in turn]
    assert heard == ["prompt_accepted", "content_delta", "turn_completed"]
    assert len(daemon.calls("session/prompt")) == 1


def test_turns_that_were_left_keep_no_connection(daemon: FakeDaemon) -> None:
    Script(daemon)
    with Client.connect(daemon.path) as client:
        for _ in range(5):
            for _envelope in client.attach(SESSION).run("Hi"):
                break
        patience = time.monotonic() + BOUND_S
        while daemon.connections > 1 and time.monotonic() < patience:
            time.sleep(0.005)
        assert daemon.connections == 1
        assert client.call("ping")


async def test_trio_turns_that_were_left_keep_no_connection(daemon: FakeDaemon) -> None:
    Script(daemon)
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.path) as client:
            for _ in range(5):
                async for _envelope in client.attach(SESSION).run("Hi"):
                    break
            while daemon.connections > 1:
                await trio.sleep(0.005)
            assert await client.call("ping")


async def test_a_first_step_that_was_cancelled_is_taken_again_with_the_same_key(daemon: FakeDaemon) -> None:
    script = Script(daemon)
    daemon.handlers["session/prompt"] = lambda peer, params: SILENCE
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.path) as client:
            turn = client.attach(SESSION).run("Hi")
            async with trio.open_nursery() as nursery:

                async def step() -> None:
                    await anext(turn)

                nursery.start_soon(step)
                while not daemon.calls("session/prompt"):
                    await trio.sleep(0.005)
                nursery.cancel_scope.cancel()
            daemon.handlers["session/prompt"] = script.prompt
            assert (await anext(turn)).event.type == "prompt_accepted"
    first, second = daemon.calls("session/prompt")
    assert first == second


@pytest.mark.parametrize("leave", [False, True], ids=["to-the-end", "left"])
def test_a_session_is_closed_at_the_end_of_its_block(daemon: FakeDaemon, leave: bool) -> None:
    Script(daemon)
    daemon.handlers["session/new"] = lambda peer, params: {"session_id": SESSION}
    try:
        with Client.connect(daemon.path) as client, client.open("demo", "/tmp") as session:
            assert session.prompt("Hi").text == "Hello."
            if leave:
                raise KeyError("left")
    except KeyError:
        pass
    assert daemon.calls("session/close") == [{"session_id": SESSION}]


async def test_a_trio_session_is_closed_at_the_end_of_its_block_also_when_it_is_cancelled(daemon: FakeDaemon) -> None:
    Script(daemon)
    with trio.fail_after(BOUND_S), trio.CancelScope() as scope:
        async with open_client(daemon.path) as client, client.session("demo", "/tmp") as session:
            assert (await session.prompt("Hi")).text == "Hello."
            scope.cancel()
            await trio.sleep_forever()
    assert [params["session_id"] for params in daemon.calls("session/close")] == [
        daemon.calls("session/new")[0]["session_id"]
    ]


@pytest.mark.parametrize(("kind", "raised"), [("session_not_found", False), ("storage_failed", True)])
def test_a_block_whose_session_is_gone_already_ends_in_peace(daemon: FakeDaemon, kind: str, raised: bool) -> None:
    def refuse(peer: Peer, params: dict[str, Any]) -> Any:
        raise UsageError("cannot close", kind=kind)

    daemon.handlers["session/close"] = refuse
    told = False
    try:
        with Client.connect(daemon.path) as client, client.open("demo", "/tmp"):
            pass
    except ClisupError as error:
        told = error.kind == kind
    assert told == raised


def test_a_turn_is_interrupted_by_its_id_and_gives_the_rest(daemon: FakeDaemon) -> None:
    Script(daemon)
    with Client.connect(daemon.path) as client, client.attach(SESSION).run("hold on") as turn:
        assert next(turn).event.type == "prompt_accepted"
        assert turn.interrupt().outcome == "interrupted"
        assert [envelope.event.type for envelope in turn] == ["content_delta", "turn_completed"]
        assert turn.result is not None
        assert turn.result.outcome == "interrupted"
    assert daemon.calls("session/interrupt") == [{"session_id": SESSION, "turn_id": "t2", "mode": "graceful"}]


# -- approvals


def test_a_turn_asks_its_handler_after_the_event_was_given(daemon: FakeDaemon) -> None:
    Script(daemon, approval=True)
    heard: list[str] = []

    def decide(approval: Approval) -> Decision:
        heard.append(f"asked for {approval.input['command']}")
        return Answer("deny", message="not now")

    with Client.connect(daemon.path) as client:
        heard.extend(envelope.event.type for envelope in client.attach(SESSION).run("Hi", on_approval=decide))
    assert heard[2:] == ["approval_requested", "asked for ls", "approval_resolved", "turn_completed"]
    assert daemon.calls("approval/respond")[0] == {
        "approval_id": "1:r1", "session_id": SESSION, "decision": "deny", "message": "not now",
    }  # fmt: skip


async def test_a_trio_turn_asks_its_handler_and_asks_again_after_a_cancelled_step(daemon: FakeDaemon) -> None:
    Script(daemon, approval=True)
    asked: list[Approval] = []

    async def decide(approval: Approval) -> Decision:
        asked.append(approval)
        if len(asked) == 1:
            await trio.sleep_forever()
        return "allow"

    with trio.fail_after(BOUND_S):
        async with open_client(daemon.path) as client:
            turn = client.attach(SESSION).run("Hi", on_approval=decide)
            for _ in range(3):
                await anext(turn)
            async with trio.open_nursery() as nursery:

                async def step() -> None:
                    await anext(turn)

                nursery.start_soon(step)
                while not asked:
                    await trio.sleep(0.005)
                nursery.cancel_scope.cancel()
            assert [envelope.event.type async for envelope in turn] == ["approval_resolved", "turn_completed"]
    assert [approval.approval_id for approval in asked] == ["1:r1", "1:r1"]


def test_an_approval_that_somebody_answered_first_is_not_asked_about(daemon: FakeDaemon) -> None:
    script = Script(daemon, approval=True)
    asked: list[Approval] = []
    with Client.connect(daemon.path) as client:
        turn = client.attach(SESSION).run("Hi", on_approval=lambda approval: asked.append(approval))  # type: ignore[func-returns-value]
        while next(turn).event.type != "approval_requested":
            pass
        script.respond(daemon.peers[0], {"approval_id": "1:r1", "decision": "allow"})
        assert [envelope.event.type for envelope in turn] == ["approval_resolved", "turn_completed"]
    assert asked == []


def test_approvals_are_given_those_that_wait_first_each_once_and_across_a_restart(daemon: FakeDaemon) -> None:
    script = Script(daemon)
    script.ask("1:a")
    with Client.connect(daemon.path) as client, client.approvals() as approvals:
        assert next(approvals).approval_id == "1:a"
        script.ask("1:b", OTHER)
        assert next(approvals).approval_id == "1:b"
        script.ask("1:resolved")
        script.waiting.pop()
        daemon.stop()
        daemon.start()
        script.ask("1:c")
        assert next(approvals).approval_id == "1:c"


async def test_trio_approvals_are_given_those_that_wait_first_each_once_and_across_a_restart(
    daemon: FakeDaemon,
) -> None:
    script = Script(daemon)
    script.ask("1:a")
    given: list[str] = []

    async def decide(approval: Approval) -> Decision:
        given.append(approval.approval_id)
        if given == ["1:a"]:
            script.ask("1:b", OTHER)
            daemon.stop()
            daemon.start()
            script.ask("1:c")
        return None if given == ["1:a", "1:b"] else "allow"

    with trio.fail_after(BOUND_S):
        async with open_client(daemon.path) as client, trio.open_nursery() as nursery:
            nursery.start_soon(client.answer_approvals, decide)
            while len(daemon.calls("approval/respond")) < 2:
                await trio.sleep(0.005)
            nursery.cancel_scope.cancel()
    assert given == ["1:a", "1:b", "1:c"]
    assert [params["approval_id"] for params in daemon.calls("approval/respond")] == ["1:a", "1:c"]


# -- a blocking client over a restart


def test_a_call_that_may_be_asked_twice_is_asked_again_after_a_restart(daemon: FakeDaemon) -> None:
    def vanish(peer: Peer, params: dict[str, Any]) -> Any:
        if len(daemon.calls("ping")) == 1:
            peer.hang_up()
            return SILENCE
        return {"time": "later"}

    daemon.handlers["ping"] = vanish
    with Client.connect(daemon.path) as client:
        assert client.ping() == "later"


def test_another_call_is_not_but_the_next_one_connects_again(daemon: FakeDaemon) -> None:
    def vanish(peer: Peer, params: dict[str, Any]) -> Any:
        peer.hang_up()
        return SILENCE

    daemon.handlers["session/interrupt"] = vanish
    with Client.connect(daemon.path, name="mine") as client:
        with pytest.raises(ClisupError) as caught:
            client.attach(SESSION).interrupt()
        assert caught.value.kind == "daemon_not_running"
        assert client.call("ping")["time"]
    assert [params["client"]["name"] for params in daemon.calls("initialize")] == ["mine", "mine"]
    assert len(daemon.calls("session/interrupt")) == 1


def test_a_client_that_hung_up_stays_away(daemon: FakeDaemon) -> None:
    client = Client.connect(daemon.path)
    client.close()
    for ping in (lambda: client.call("ping"), client.ping):  # at once, also what may be asked twice
        with pytest.raises(UsageError, match="it was closed"):
            ping()
    assert len(daemon.calls("initialize")) == 1
