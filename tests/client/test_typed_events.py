"""Typed events: each known type as its class, the unknown as it came, a gap as a gap."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from fake_daemon import OTHER, SESSION, FakeDaemon

from clisup.client import events as typed
from clisup.client.aio import open_client
from clisup.client.events import Envelope, Gap, Notice, ToolUse, UnknownEvent, envelope_of
from clisup.client.sync import Client
from clisup.model import events as vocabulary

BOUND_S = 20.0
HEAD: dict[str, Any] = {
    "session_id": SESSION,
    "seq": 3,
    "ts": "2026-01-01T00:00:00.000001Z",
    "turn_id": "t1",
    "source": "backend",
}
GAP = {"type": "gap", "session_id": SESSION, "from_seq": 1, "to_seq": 9, "reason": "retention"}


def test_an_event_is_its_class_in_its_envelope() -> None:
    envelope = envelope_of(HEAD | {"type": "tool_use", "tool_use_id": "u1", "name": "Bash", "input": {"command": "ls"}})
    tool = ToolUse(tool_use_id="u1", name="Bash", input={"command": "ls"})
    assert envelope == Envelope(SESSION, 3, "2026-01-01T00:00:00.000001Z", "t1", "backend", tool)


def test_a_field_that_this_version_does_not_know_is_passed_over() -> None:
    event = envelope_of(HEAD | {"type": "notice", "code": "a", "message": "b", "colour": "red"}).event
    assert event == Notice(code="a", message="b")


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "telepathy", "strength": 4},
        {"type": "watchdog", "action": "sang", "phase": "tool"},
        {"type": "tool_use"},
    ],
    ids=["type", "value", "missing"],
)
def test_what_this_version_does_not_know_breaks_nothing(fields: dict[str, Any]) -> None:
    envelope = envelope_of(HEAD | fields | {"source": "elsewhere"})
    rest = {name: value for name, value in fields.items() if name != "type"}
    assert (envelope.event, envelope.source) == (UnknownEvent(fields["type"], rest), "elsewhere")


def test_the_clis_own_line_is_there_where_it_was_asked_for() -> None:
    assert envelope_of(HEAD | {"type": "notice", "code": "a", "message": "b", "native": "{}"}).native == "{}"


def test_a_gap_stands_where_its_last_event_would() -> None:
    envelope = envelope_of(GAP)
    assert (envelope.seq, envelope.event, envelope.event.type) == (9, Gap(1, 9, "retention"), "gap")


def test_every_class_of_the_vocabulary_can_be_had_from_one_place() -> None:
    assert all(getattr(typed, name) is getattr(vocabulary, name) for name in vocabulary.__all__)


def test_a_blocking_iterator_comes_back_and_gives_each_once(daemon: FakeDaemon) -> None:
    daemon.emit("notice", code="0", message="")
    with Client.connect(daemon.path) as client:
        events = client.events(SESSION, 0, deltas=False, on_lost=daemon.start, name="mine")
        seen = [next(events)]
        daemon.stop()
        daemon.emit("telepathy", strength=4)
        daemon.emit("notice", code="2", message="")
        seen += [next(events), next(events)]
        events.ack(seen[-1])
        assert events.cursor == 3
    assert [envelope.event for envelope in seen] == [
        Notice(code="0", message=""),
        UnknownEvent("telepathy", {"strength": 4}),
        Notice(code="2", message=""),
    ]
    assert daemon.calls("session/ack") == [{"name": "mine", "session_id": SESSION, "seq": 3}]


def test_a_client_that_hangs_up_ends_the_iteration(daemon: FakeDaemon) -> None:
    with Client.connect(daemon.path) as client:
        events = client.events(SESSION, 0)
    assert list(events) == []


async def test_a_trio_iterator_comes_back_and_gives_each_once(daemon: FakeDaemon) -> None:
    daemon.emit("notice", code="0", message="")
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.path) as client:
            events = client.events(SESSION, 0, deltas=False, name="mine")
            events.on_connection(lost=daemon.start)
            seen = [await anext(events)]
            daemon.stop()
            daemon.emit("telepathy", strength=4)
            daemon.emit("notice", code="2", message="", session=OTHER)
            daemon.emit("notice", code="3", message="")
            seen += [await anext(events), await anext(events)]
            await events.ack(seen[-1])
    assert [envelope.seq for envelope in seen] == [1, 2, 3]
    assert daemon.calls("session/ack") == [{"name": "mine", "session_id": SESSION, "seq": 3}]


def test_a_gap_is_acknowledged_up_to_its_end(daemon: FakeDaemon) -> None:
    daemon.emit("notice", code="0", message="")
    with Client.connect(daemon.path) as client:
        client.events(SESSION, 0, name="mine").ack(envelope_of(GAP))
    assert daemon.calls("session/ack")[0]["seq"] == 9
