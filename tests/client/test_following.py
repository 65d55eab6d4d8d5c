"""Followers of all sessions, durable places and prompts by key, of both clients, against a daemon that does as it is told."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import trio
from fake_daemon import OTHER, SESSION, SILENCE, FakeDaemon, Peer

from clisup.client import reconnect
from clisup.client.aio import open_client
from clisup.client.failures import ConnectionLost
from clisup.client.reconnect import HANG_UPS
from clisup.client.sync import Client, Follower
from clisup.errors import ClisupError, UsageError, WorldError

BOUND_S = 20.0
THIRD = "99990000-0000-4000-8000-000000000003"
Take = Callable[..., list[dict[str, Any]]]


@pytest.fixture(params=["blocking", "trio"])
def take(request: pytest.FixtureRequest, daemon: FakeDaemon) -> Take:
    """`take(count, "*", ..., ack=True)`: so many events of a follower, each one told to `then` before the next is asked for."""

    def blocking(count: int, wanted: str, after: Any = None, *, then: Any, ack: bool, lost: Any, **options: Any) -> Any:
        taken = []
        with Client.connect(daemon.path) as client, client.follow(wanted, after, on_lost=lost, **options) as events:
            daemon.events or then(0)  # where nothing is stored, what comes comes after the subscription
            for event in islice(events, count):
                taken.append(event)
                if ack:
                    events.ack(event)
                then(len(taken))
        return taken

    def in_trio(count: int, wanted: str, after: Any = None, *, then: Any, ack: bool, lost: Any, **options: Any) -> Any:
        async def main() -> list[dict[str, Any]]:
            taken: list[dict[str, Any]] = []
            with trio.fail_after(BOUND_S):
                async with open_client(daemon.path) as client:
                    events = await client.subscribe(wanted, after, **options).open()
                    events.on_lost = lost
                    daemon.events or then(0)
                    while len(taken) < count:
                        taken.append(await anext(events))
                        if ack:
                            await events.ack(taken[-1])
                        then(len(taken))
            return taken

        return trio.run(main)

    chosen = blocking if request.param == "blocking" else in_trio

    def taking(count: int, wanted: str, after: Any = None, **options: Any) -> list[dict[str, Any]]:
        options = {"then": lambda n: None, "ack": False, "lost": None} | options
        return chosen(count, wanted, after, **options)

    return taking


def places(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(event["session_id"], event["seq"]) for event in events]


def emit(daemon: FakeDaemon, *sessions: str) -> None:
    for session in sessions:
        daemon.emit("notice", session=session, code="x", message="")


def test_all_sessions_are_followed_also_one_that_comes(daemon: FakeDaemon, take: Take) -> None:
    emit(daemon, SESSION, OTHER, SESSION)
    taken = take(4, "*", 0, then=lambda n: n == 3 and emit(daemon, THIRD))
    assert sorted(places(taken)) == sorted([(SESSION, 1), (SESSION, 2), (OTHER, 1), (THIRD, 1)])


def test_it_comes_back_with_a_map_of_what_it_was_given(daemon: FakeDaemon, take: Take) -> None:
    def back() -> None:
        emit(daemon, OTHER, SESSION, THIRD)
        daemon.start()

    emit(daemon, SESSION, OTHER, SESSION)
    taken = take(6, "*", 0, then=lambda n: n == 3 and daemon.stop(), lost=back)
    first, second = daemon.calls("session/subscribe")
    assert first["after_seq"] == 0 and second["after_seq"] == {SESSION: 2, OTHER: 1}
    assert sorted(places(taken[3:])) == sorted([(OTHER, 2), (SESSION, 3), (THIRD, 1)])


def test_from_now_on_is_the_moment_of_the_subscription(daemon: FakeDaemon, take: Take) -> None:
    """Nothing was given yet when the connection is lost: what came between is not lost."""

    def vanish_first(peer: Peer, params: dict[str, Any]) -> Any:
        answered = subscribe(peer, params)
        if len(daemon.calls("session/subscribe")) == 1:
            peer.hang_up()
            emit(daemon, SESSION, THIRD)
        return answered

    subscribe = daemon.handlers["session/subscribe"]
    daemon.handlers["session/subscribe"] = vanish_first
    emit(daemon, SESSION, OTHER)
    assert sorted(places(take(2, "*"))) == sorted([(SESSION, 2), (THIRD, 1)])


def test_a_gap_of_one_session_is_told_among_the_events_of_all(daemon: FakeDaemon, take: Take) -> None:
    gap = {"session_id": OTHER, "from_seq": 1, "to_seq": 7, "reason": "retention"}

    def tell(n: int) -> None:
        for peer in daemon.peers if n == 1 else ():
            if peer.following:
                peer.send({"jsonrpc": "2.0", "method": "session/gap", "params": gap})

    emit(daemon, SESSION)
    assert take(2, "*", 0, then=tell)[1] == {"type": "gap", **gap}


def test_what_was_acknowledged_is_not_given_to_the_next_of_this_name(daemon: FakeDaemon, take: Take) -> None:
    emit(daemon, SESSION, OTHER, SESSION)
    take(2, "*", 0, name="audit", ack=True)
    assert places(take(1, "*", 0, name="audit")) == [(SESSION, 2)]
    assert [params["name"] for params in daemon.calls("session/ack")] == ["audit"] * 2


def test_what_was_given_but_not_acknowledged_is_not_given_twice_to_the_same_follower(
    daemon: FakeDaemon, take: Take
) -> None:
    def back() -> None:
        emit(daemon, SESSION)
        daemon.start()

    emit(daemon, SESSION, SESSION)
    taken = take(3, SESSION, 0, name="audit", then=lambda n: n == 2 and daemon.stop(), lost=back)
    assert places(taken) == [(SESSION, 1), (SESSION, 2), (SESSION, 3)]
    assert daemon.cursors["audit"] == {SESSION: 0}


def test_an_acknowledgement_is_asked_again_when_its_answer_was_lost(daemon: FakeDaemon, take: Take) -> None:
    def vanish_first(peer: Peer, params: dict[str, Any]) -> Any:
        if len(daemon.calls("session/ack")) == 1:
            peer.hang_up()
            return SILENCE
        return ack(peer, params)

    ack = daemon.handlers["session/ack"]
    daemon.handlers["session/ack"] = vanish_first
    emit(daemon, SESSION)
    take(1, SESSION, 0, name="audit", ack=True)
    assert daemon.calls("session/ack") == [{"name": "audit", "session_id": SESSION, "seq": 1}] * 2


def test_a_gap_is_acknowledged_to_its_end(daemon: FakeDaemon, take: Take) -> None:
    def tell(n: int) -> None:
        for peer in daemon.peers:
            if peer.following:
                params = {"session_id": SESSION, "from_seq": 1, "to_seq": 7, "reason": "damaged"}
                peer.send({"jsonrpc": "2.0", "method": "session/gap", "params": params})

    take(1, SESSION, 0, name="audit", ack=True, then=lambda n: n == 0 and tell(n))
    assert daemon.calls("session/ack")[0]["seq"] == 7


def test_a_session_that_was_deleted_meanwhile_needs_no_acknowledgement(daemon: FakeDaemon, take: Take) -> None:
    def deleted(peer: Peer, params: dict[str, Any]) -> Any:
        raise UsageError("cannot find it", kind="session_not_found")

    daemon.handlers["session/ack"] = deleted
    emit(daemon, SESSION)
    assert len(take(1, SESSION, 0, name="audit", ack=True)) == 1


def test_an_acknowledgement_that_cannot_be_stored_is_told(daemon: FakeDaemon, take: Take) -> None:
    def full(peer: Peer, params: dict[str, Any]) -> Any:
        raise WorldError("cannot store the cursor", kind="storage_failed")

    daemon.handlers["session/ack"] = full
    emit(daemon, SESSION)
    with pytest.raises(ClisupError, match="cannot store"):
        take(1, SESSION, 0, name="audit", ack=True)


def test_without_a_name_there_is_nothing_to_acknowledge(daemon: FakeDaemon, take: Take) -> None:
    emit(daemon, SESSION)
    with pytest.raises(UsageError, match="no name"):
        take(1, SESSION, 0, ack=True)
    assert daemon.calls("session/ack") == []


def test_what_the_daemon_hangs_up_with_is_told_and_not_tried_again(daemon: FakeDaemon, take: Take) -> None:
    def fail(n: int) -> None:
        error = WorldError("cannot read the journal", kind="storage_failed").to_wire()
        for peer in daemon.peers:
            if peer.following:
                peer.send({"jsonrpc": "2.0", "id": None, "error": error})

    emit(daemon, SESSION)
    with pytest.raises(ClisupError, match="cannot read the journal"):
        take(2, SESSION, 0, then=fail)
    assert len(daemon.calls("session/subscribe")) == 1


def test_a_follower_knows_what_is_at_hand(daemon: FakeDaemon) -> None:
    with Follower(daemon.path, SESSION, 0) as events:
        line = b'{"method":"session/event","params":{"session_id":"%s","seq":%d,"type":"notice"}}\n'
        daemon.peers[-1].send(line % (SESSION.encode(), 1) + line % (SESSION.encode(), 2))
        assert next(events)["seq"] == 1 and events.at_hand
        assert next(events)["seq"] == 2 and not events.at_hand


# -- prompts -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["blocking", "trio"])
def prompt(request: pytest.FixtureRequest, daemon: FakeDaemon) -> Callable[..., dict[str, Any]]:
    def blocking(*args: Any, **options: Any) -> dict[str, Any]:
        with Client.connect(daemon.path) as client:
            return client.prompt(*args, **options)

    def in_trio(*args: Any, **options: Any) -> dict[str, Any]:
        async def main() -> dict[str, Any]:
            with trio.fail_after(BOUND_S):
                async with open_client(daemon.path) as client:
                    return await client.prompt(*args, **options)

        return trio.run(main)

    return blocking if request.param == "blocking" else in_trio


def test_a_prompt_waits_for_the_result_under_a_key_of_its_own(daemon: FakeDaemon, prompt: Any) -> None:
    result = {"turn_id": "t1", "outcome": "completed", "text": "Hello."}
    daemon.handlers["session/prompt"] = lambda peer, params: result
    assert prompt(SESSION, "hi") == result == prompt(SESSION, "hi", expand=True)
    first, second = daemon.calls("session/prompt")
    assert (first["wait"], first["prompt"], second["expand"]) == (True, "hi", True)
    assert len(first["key"]) == 36 and first["key"] != second["key"]


def test_a_prompt_is_asked_again_by_its_key_however_often_the_daemon_goes(daemon: FakeDaemon, prompt: Any) -> None:
    def vanish_thrice(peer: Peer, params: dict[str, Any]) -> Any:
        if len(daemon.calls("session/prompt")) <= 3:
            peer.hang_up()
            return SILENCE
        return {"turn_id": "t1", "outcome": "completed", "text": ""}

    daemon.handlers["session/prompt"] = vanish_thrice
    assert prompt(SESSION, "hi", key="mine")["turn_id"] == "t1"
    assert [params["key"] for params in daemon.calls("session/prompt")] == ["mine"] * 4


def test_a_prompt_on_which_one_daemon_hangs_up_each_time_is_not_sent_without_end(
    daemon: FakeDaemon, prompt: Any
) -> None:
    def vanish(peer: Peer, params: dict[str, Any]) -> Any:
        peer.hang_up()
        return SILENCE

    daemon.handlers["session/prompt"] = vanish
    with pytest.raises(ConnectionLost):
        prompt(SESSION, "hi")
    assert len(daemon.calls("session/prompt")) == HANG_UPS


def test_a_daemon_that_refuses_a_prompt_all_the_time_is_not_asked_without_end(
    daemon: FakeDaemon, prompt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(peer: Peer, params: dict[str, Any]) -> Any:
        if len(daemon.calls("session/prompt")) > 50:  # that was without end
            return {"turn_id": "t1"}
        raise WorldError("cannot take it now", kind="overloaded")

    monkeypatch.setattr(reconnect, "RECONNECT_S", 0.2)
    daemon.handlers["session/prompt"] = refuse
    with pytest.raises(ClisupError) as caught:
        prompt(SESSION, "hi")
    assert caught.value.kind == "overloaded"
    assert len(daemon.calls("session/prompt")) > 1


def test_a_daemon_that_was_restarted_is_another_one_each_time(daemon: FakeDaemon, prompt: Any) -> None:
    times = 2 * HANG_UPS
    introduce = daemon.handlers["initialize"]

    def initialize(peer: Peer, params: dict[str, Any]) -> Any:
        return introduce(peer, params) | {"server": {"instance_id": str(len(daemon.calls("session/prompt")))}}

    def vanish(peer: Peer, params: dict[str, Any]) -> Any:
        if len(daemon.calls("session/prompt")) <= times:
            peer.hang_up()
            return SILENCE
        return {"turn_id": "t1"}

    daemon.handlers |= {"initialize": initialize, "session/prompt": vanish}
    assert prompt(SESSION, "hi", wait=False) == {"turn_id": "t1"}


def test_what_is_larger_than_the_daemon_reads_is_refused_before_it_is_sent(daemon: FakeDaemon, prompt: Any) -> None:
    introduce = daemon.handlers["initialize"]
    daemon.handlers["initialize"] = lambda peer, params: introduce(peer, params) | {"limits": {"max_frame_bytes": 1000}}
    daemon.handlers["session/prompt"] = lambda peer, params: {"turn_id": "t1"}
    with pytest.raises(ClisupError) as caught:
        prompt(SESSION, "x" * 1000)
    assert (caught.value.kind, caught.value.exit_code) == ("invalid_request", 2)
    assert caught.value.message == "the frame has more than 1000 bytes"
    assert caught.value.hint == "send less, or raise daemon.max_frame_bytes"
    assert not daemon.calls("session/prompt")
    assert prompt(SESSION, "x" * 500) == {"turn_id": "t1"}


def test_an_uncertain_delivery_is_the_answer_and_nothing_is_sent_again(daemon: FakeDaemon, prompt: Any) -> None:
    answer = {"turn_id": "t1", "outcome": "failed", "delivery": "uncertain", "evidence": {"transcript": "missing"}}

    def uncertain(peer: Peer, params: dict[str, Any]) -> Any:
        if len(daemon.calls("session/prompt")) == 1:
            peer.hang_up()
            return SILENCE
        return answer

    daemon.handlers["session/prompt"] = uncertain
    assert prompt(SESSION, "hi") == answer
    first, second = daemon.calls("session/prompt")
    assert first == second


def test_a_refused_prompt_is_not_asked_again(daemon: FakeDaemon, prompt: Any) -> None:
    def busy(peer: Peer, params: dict[str, Any]) -> Any:
        raise UsageError("cannot prompt", kind="session_busy")

    daemon.handlers["session/prompt"] = busy
    with pytest.raises(ClisupError) as caught:
        prompt(SESSION, "hi", when_busy="refuse", wait=False)
    assert caught.value.kind == "session_busy"
    assert [params["wait"] for params in daemon.calls("session/prompt")] == [False]


def test_a_daemon_that_stays_away_is_told_in_the_end(
    daemon: FakeDaemon, prompt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanish(peer: Peer, params: dict[str, Any]) -> Any:
        daemon.stop()
        return SILENCE

    monkeypatch.setattr(reconnect, "RECONNECT_S", 0.05)
    monkeypatch.setattr(reconnect, "RETRY_PAUSE_S", 0.01)
    daemon.handlers["session/prompt"] = vanish
    with pytest.raises(ClisupError, match="did not come back within") as caught:
        prompt(SESSION, "hi")
    assert caught.value.kind == "daemon_not_running"
    assert not isinstance(caught.value, ConnectionLost)


async def test_the_trio_clients_next_call_connects_again(daemon: FakeDaemon) -> None:
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.path) as client:
            await client.call("ping")
            daemon.stop()
            daemon.start()
            for _ in range(3):  # the first may be on its way before the end is noticed
                try:
                    await client.call("ping")
                except ConnectionLost:
                    continue
            assert (await client.call("ping"))["time"]
    assert len(daemon.calls("initialize")) == 2
