"""Subscriptions to all sessions, durable cursors, and the seam between what is stored and what comes."""

from __future__ import annotations

import fcntl
import random
import signal
import struct
import termios
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from harness import Harness, until
from session_probe import SessionProbe
from wire import Hangup, Wire

from clisup.errors import ClisupError

Seen = dict[str, list[dict[str, Any]]]


def take(wire: Wire, ends: int, seen: Seen | None = None) -> Seen:
    """Events by session, until so many turns have ended."""
    seen = defaultdict(list) if seen is None else seen
    while ends:
        event = wire.event()
        seen[event["session_id"]].append(event)
        ends -= event["type"] == "turn_completed"
    return seen


def kind_of(refused: pytest.ExceptionInfo[ClisupError]) -> str:
    return refused.value.kind


# -- all sessions -----------------------------------------------------------------------------------------------------


def test_all_sessions_are_followed_each_in_its_order_and_new_ones_too(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    old = [daemon.new() for _ in range(4)]
    old[0].ask("before")
    with daemon.wire() as wire:
        cursors = wire.call("session/subscribe", session_id="*")["cursors"]
        assert cursors == {s.id: s.get()["next_seq"] - 1 for s in old}
        sessions = [*old, *(daemon.new() for _ in range(4))]
        for session in sessions:
            session.prompt("@stream 100 40\nbye")
        seen = take(wire, len(sessions))
    for session in sessions:
        stored = session.events()
        assert seen[session.id] == stored[cursors.get(session.id, 0) :]


def test_everything_of_all_sessions_is_there_closed_ones_included(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    sessions = [daemon.new() for _ in range(3)]
    for session in sessions:
        session.ask("hello")
    sessions[0].call("close")
    stored = {session.id: session.events() for session in sessions}
    with daemon.wire() as wire:
        assert wire.call("session/subscribe", session_id="*", after_seq=0)["cursors"] == dict.fromkeys(stored, 0)
        seen: Seen = defaultdict(list)
        while seen != stored:
            event = wire.event()
            seen[event["session_id"]].append(event)


def test_a_map_of_cursors_goes_on_where_each_was(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    first, second = daemon.new(), daemon.new()
    with daemon.wire() as wire:
        wire.call("session/subscribe", session_id="*", after_seq=0)
        first.prompt("one")
        second.prompt("two")
        before = take(wire, 2)
    cursors = {id_: events[-1]["seq"] for id_, events in before.items()}
    daemon.restart()
    third = daemon.new()
    for session in (first, second, third):
        session.ask("more")
    with daemon.wire() as wire:
        wire.call("session/subscribe", session_id="*", after_seq=cursors)
        seen = take(wire, 3, before)
    assert dict(seen) == {s.id: s.events() for s in (first, second, third)}


def test_a_long_history_of_one_session_holds_up_no_other(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    long, short = daemon.new(), daemon.new()
    long.ask("@stream 4000 500")
    short.ask("hello")
    with daemon.wire() as wire:
        wire.call("session/subscribe", session_id="*", after_seq=0)
        seen: list[str] = []
        while short.id not in seen or seen.count(short.id) < len(short.events()):
            seen.append(wire.event()["session_id"])
        assert seen.count(long.id) < 3000, "the short one came after all of the long one"


def test_more_sessions_than_files_are_held_open(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    sessions = [daemon.new() for _ in range(40)]
    for session in sessions:
        session.ask("hello")
    quiet = daemon.call("daemon/status")["daemon"]["open_fds"]
    with daemon.wire() as wire:
        wire.call("session/subscribe", session_id="*", after_seq=0)
        seen = take(wire, 40)
        assert daemon.call("daemon/status")["daemon"]["open_fds"] <= quiet + 20
        for session in sessions:
            session.prompt("again")
        seen = take(wire, 40, seen)
    assert all(seen[session.id] == session.events() for session in sessions)


def test_one_connection_has_all_or_single_ones_and_never_both(daemon: Harness) -> None:
    session = daemon.new()
    with daemon.wire() as wire:
        wire.call("session/subscribe", session_id=session.id)
        wire.call("session/subscribe", session_id="*")
        with pytest.raises(ClisupError) as refused:
            wire.call("session/subscribe", session_id=session.id)
        assert kind_of(refused) == "invalid_params"
        session.prompt("hello")
        events = wire.events_until("turn_completed")
        assert [e["seq"] for e in events if e["session_id"] == session.id] == list(range(1, len(session.events()) + 1))
        wire.call("session/unsubscribe", session_id="*")
        wire.call("session/subscribe", session_id=session.id)
        assert session.get()["subscribers"] == 1


@pytest.mark.parametrize(
    "params", [{"after_seq": 5}, {"after_seq": {"x": 1}}, {"name": "no/slash"}, {"name": ""}, {"after_seq": -1}]
)
def test_what_makes_no_sense_for_all_sessions_is_refused(daemon: Harness, params: dict[str, Any]) -> None:
    with daemon.wire() as wire, pytest.raises(ClisupError) as refused:
        wire.call("session/subscribe", session_id="*", **params)
    assert kind_of(refused) == "invalid_params"


def test_a_map_for_one_session_is_refused(daemon: Harness) -> None:
    session = daemon.new()
    with daemon.wire() as wire, pytest.raises(ClisupError) as refused:
        wire.call("session/subscribe", session_id=session.id, after_seq={session.id: 1})
    assert kind_of(refused) == "invalid_params"


# -- the seam ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"deltas": False}, {"types": ["content_delta", "turn_completed"]}, {"raw": True}]
)
def test_whoever_joins_in_mid_flood_sees_what_is_stored(serve: Callable[..., Harness], options: dict[str, Any]) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt("@stream 1500 60 0.0005\nbye")
    wires: list[tuple[Wire, int]] = []
    chance = random.Random(7)
    for _ in range(12):
        next_seq = until(lambda: session.get()["next_seq"])
        after = chance.choice([0, next_seq // 2, next_seq - 1])
        wire = daemon.wire()
        wire.post("session/subscribe", session_id=session.id, after_seq=after, **options)
        wires.append((wire, after))
    stored: list[dict[str, Any]] = []
    for wire, after in wires:
        events = wire.events_until("turn_completed")
        wire.close()
        stored = stored or _history(session, options)
        assert events == [event for event in stored if event["seq"] > after]


def _history(session: SessionProbe, options: dict[str, Any]) -> list[dict[str, Any]]:
    """All that `session/events` has, filtered here."""
    events: list[dict[str, Any]] = []
    page = {"next_seq": 1, "eof": False}
    while not page["eof"]:
        raw = bool(options.get("raw"))
        page = session.call("events", after_seq=page["next_seq"] - 1, limit=1000, raw=raw)
        events += page["events"]
    types = options.get("types")
    deltas = options.get("deltas", True)
    return [e for e in events if (types is None or e["type"] in types) and (deltas or e["type"] != "content_delta")]


# -- durable cursors --------------------------------------------------------------------------------------------------


def test_a_named_cursor_goes_on_after_what_was_acknowledged_also_after_a_kill(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new()
    session.ask("@stream 20")
    with daemon.wire() as wire:
        wire.call("session/subscribe", session_id=session.id, after_seq=0, name="indexer")
        events = [wire.event() for _ in range(10)]
        assert wire.call("session/ack", name="indexer", session_id=session.id, seq=7) == {"seq": 7}
        assert wire.call("session/ack", name="indexer", session_id=session.id, seq=3) == {"seq": 7}
    daemon.restart()
    with daemon.wire() as wire:
        opened = wire.call("session/subscribe", session_id=session.id, after_seq=0, name="indexer")
        assert opened["after_seq"] == 7
        assert [wire.event() for _ in range(3)] == events[7:]


def test_a_named_cursor_is_kept_from_its_first_beginning(serve: Callable[..., Harness]) -> None:
    """A client that dies before its first acknowledgement misses nothing."""
    daemon = serve()
    session = daemon.new()
    session.ask("before")
    with daemon.wire() as wire:
        begin = wire.call("session/subscribe", session_id=session.id, name="late")["after_seq"]
    session.ask("after")
    daemon.restart()
    with daemon.wire() as wire:
        assert wire.call("session/subscribe", session_id=session.id, name="late")["after_seq"] == begin
        assert wire.event()["seq"] == begin + 1


def test_a_name_for_all_sessions_misses_no_new_one(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    old = daemon.new()
    old.ask("before")
    with daemon.wire() as wire:
        wire.call("session/subscribe", session_id="*", name="audit")
    daemon.restart()
    new = daemon.new()
    new.ask("hello")
    old.ask("hello")
    with daemon.wire() as wire:
        cursors = wire.call("session/subscribe", session_id="*", name="audit")["cursors"]
        seen = take(wire, 2)
    assert cursors[new.id] == 0 and seen[new.id] == new.events()
    assert seen[old.id] == old.events()[cursors[old.id] :] and seen[old.id][0]["turn_id"] == "t2"


def test_forgetting_a_name_begins_anew(daemon: Harness) -> None:
    session = daemon.new()
    session.ask("hello")
    with daemon.wire() as wire:
        wire.call("session/subscribe", session_id=session.id, after_seq=0, name="x")
        wire.call("session/ack", name="x", session_id=session.id, seq=5)
        wire.call("session/unsubscribe", session_id=session.id, name="x")
        with pytest.raises(ClisupError) as refused:
            wire.call("session/ack", name="x", session_id=session.id, seq=6)
        assert kind_of(refused) == "invalid_params"
    with daemon.wire() as wire:
        assert wire.call("session/subscribe", session_id=session.id, after_seq=2, name="x")["after_seq"] == 2


def test_an_ack_of_what_was_never_given_is_refused(daemon: Harness) -> None:
    session = daemon.new()
    session.ask("hello")
    with daemon.wire() as wire:
        wire.call("session/subscribe", session_id=session.id, name="y")
        with pytest.raises(ClisupError) as refused:
            wire.call("session/ack", name="y", session_id=session.id, seq=10_000)
        assert kind_of(refused) == "invalid_params"
        with pytest.raises(ClisupError) as refused:
            wire.call("session/ack", name="y", session_id="0d9c1c1e-0000-4000-8000-000000000000", seq=1)
        assert kind_of(refused) == "session_not_found"


@pytest.mark.parametrize(("point", "kept"), [("cursor.before", 5), ("cursor.after", 9)])
def test_a_kill_at_an_ack_leaves_the_cursor_before_or_after_it(
    serve: Callable[..., Harness], point: str, kept: int
) -> None:
    daemon = serve(env={"CLISUP_FAILPOINTS": f"{point}=kill@2"})
    session = daemon.new()
    session.ask("@stream 20")
    with daemon.wire() as wire:
        wire.call("session/subscribe", session_id=session.id, after_seq=0, name="indexer")
        wire.call("session/ack", name="indexer", session_id=session.id, seq=5)
        with pytest.raises(Hangup):
            wire.call("session/ack", name="indexer", session_id=session.id, seq=9)
    assert daemon.process is not None and daemon.process.wait(40) == -signal.SIGKILL
    del daemon.env["CLISUP_FAILPOINTS"]
    daemon._hang_up()
    daemon.start()
    with daemon.wire() as wire:
        assert wire.call("session/subscribe", session_id=session.id, name="indexer")["after_seq"] == kept
        assert wire.event()["seq"] == kept + 1


# -- deletion ---------------------------------------------------------------------------------------------------------


def test_a_closed_session_can_be_deleted_and_an_open_one_cannot(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new()
    session.ask("hello")
    with daemon.wire() as follower:
        follower.call("session/subscribe", session_id="*", after_seq=0, name="all")
        with pytest.raises(ClisupError) as refused:
            session.call("delete")
        assert kind_of(refused) == "session_busy" and session.dir.exists()
        session.call("close")
        session.call("delete")
        assert not session.dir.exists()
        with pytest.raises(ClisupError) as refused:
            session.get()
        assert kind_of(refused) == "session_not_found"
        daemon.new().ask("others live")
        take(follower, 2)
    daemon.restart()
    with pytest.raises(ClisupError):
        session.get()
    assert not any(daemon.state.joinpath("trash").glob("*"))


def test_a_follower_that_is_slow_gets_all_of_a_session_that_was_opened_anew_under_its_id(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve()
    name = "11111111-1111-4111-8111-111111111111"

    def noted(code: str, count: int, size: int) -> None:
        for n in range(count):
            data = {"n": n, "pad": "x" * size}
            daemon.call("session/note", session_id=name, code=code, message="m", data=data)

    session = daemon.new(session_id=name)
    noted("client.old", 60, 15_000)
    with daemon.wire() as slow:
        slow.call("session/subscribe", session_id="*", after_seq=0)
        until(lambda: unread(slow) > 100_000)  # it does not read: the daemon waits in the middle of a piece
        session.call("close")
        session.call("delete")
        daemon.new(session_id=name)
        noted("client.new", 60, 0)
        seen = []
        while seen[-1:] != [59]:
            event = slow.event()
            seen += [event["data"]["n"]] if event.get("code") == "client.new" else []
    assert seen == list(range(60))


def unread(wire: Wire) -> int:
    """Bytes that wait in the client's socket."""
    return int(struct.unpack("i", fcntl.ioctl(wire.socket, termios.FIONREAD, b"\0" * 4))[0])
