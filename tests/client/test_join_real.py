"""Where stored events and those that come meet: subscribers that begin at any moment of a flood see exactly what is stored."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio
from harness import Harness
from session_probe import SessionProbe

from clisup.client.aio import AsyncClient, open_client
from clisup.client.sync import Client

BOUND_S = 120.0
SUBSCRIBERS = 20
CHUNKS = 1500
Event = dict[str, Any]
LOOKS: list[dict[str, Any]] = [
    {},
    {"deltas": False},
    {"raw": True},
    {"types": ["content_delta", "message", "turn_completed"]},
    {"types": ["process_started", "turn_completed"], "raw": True},
]


def stored(session: SessionProbe, after: int, look: dict[str, Any]) -> list[Event]:
    """What the history says that such a subscriber is to see."""
    asked = {name: look[name] for name in ("types", "raw") if name in look}
    events: list[Event] = []
    page = {"next_seq": after + 1, "eof": False}
    while not page["eof"]:
        page = session.call("events", after_seq=page["next_seq"] - 1, limit=1000, **asked)
        events += page["events"]
    return [event for event in events if look.get("deltas", True) or event["type"] != "content_delta"]


class Crowd:
    """Subscribers that begin when the flood has reached a seq, each with a cursor and a look of its own."""

    def __init__(self, sessions: list[SessionProbe], scratch: Path) -> None:
        self.sessions = sessions
        self._go = scratch / "go"
        self.heard: list[tuple[int, dict[str, Any], list[Event]]] = []
        self.began_at: list[int] = []
        self._ready = 0

    async def watch(self, client: AsyncClient, wanted: str, begins: list[tuple[int, int, dict[str, Any]]]) -> None:
        """Start each subscriber at its moment; let the flood end once all of them have begun."""
        flood = client.subscribe(self.sessions[0].id, 0)
        async with trio.open_nursery() as nursery:
            for at, after, look in begins:
                while (await anext(flood))["seq"] < at:
                    pass
                nursery.start_soon(self._listen, client, wanted, after, look)

    async def _listen(self, client: AsyncClient, wanted: str, after: int, look: dict[str, Any]) -> None:
        cursor = after if wanted != "*" else {self.sessions[0].id: after}
        events = client.subscribe(wanted, cursor, **look)
        await events.open()
        self._ready += 1
        if self._ready == SUBSCRIBERS:
            self._go.touch()
        heard: list[Event] = []
        self.heard.append((after, look, heard))
        ends = 0
        async for event in events:
            heard.append(event)
            ends += event["type"] == "turn_completed"
            if ends == (len(self.sessions) if wanted == "*" else 1):
                events.close()


def moments(dice: random.Random, chunks: int) -> list[tuple[int, int, dict[str, Any]]]:
    """(the seq at which it begins, after_seq, look): half of them from the beginning, half from the middle of what is there."""
    found = []
    for n, at in enumerate(sorted(dice.randrange(10, chunks) for _ in range(SUBSCRIBERS))):
        after = 0 if n % 2 else dice.randrange(1, at)
        found.append((at, after, LOOKS[n % len(LOOKS)]))
    return found


async def test_twenty_subscribers_that_begin_in_a_flood_see_exactly_what_is_stored(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt(f"@stream {CHUNKS} 80 0.0005\n@wait-file {tmp_path}/go\n@stream 100 80")
    crowd = Crowd([session], tmp_path)
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.socket) as client:
            await crowd.watch(client, session.id, moments(random.Random(4), CHUNKS))
    assert len(crowd.heard) == SUBSCRIBERS
    for after, look, heard in crowd.heard:
        assert heard == stored(session, after, look), (after, look)
    assert session.chunks() == [*range(CHUNKS), *range(100)]


async def test_subscribers_to_all_sessions_see_exactly_what_is_stored_of_each(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve(daemon={"max_running": 4})
    sessions = [daemon.new() for _ in range(3)]
    for session in sessions:
        session.prompt(f"@stream {CHUNKS // 3} 80 0.0005\n@wait-file {tmp_path}/go\n@stream 100 80")
    crowd = Crowd(sessions, tmp_path)
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.socket) as client:
            await crowd.watch(client, "*", moments(random.Random(5), CHUNKS // 3))
    assert len(crowd.heard) == SUBSCRIBERS
    for after, look, heard in crowd.heard:
        for session in sessions:
            mine = [event for event in heard if event["session_id"] == session.id]
            assert mine == stored(session, after if session is sessions[0] else 0, look), (after, look)


def test_acknowledging_each_event_of_a_flood_costs_none(serve: Callable[..., Harness]) -> None:
    """Acknowledgements have a connection of their own: between notifications, thousands would wait for one another."""
    daemon = serve()
    session = daemon.new()
    session.ask(f"@stream {CHUNKS // 5} 80")
    heard: list[Event] = []
    with Client.connect(daemon.socket) as client, client.follow(session.id, 0, name="audit") as events:
        for event in events:
            heard.append(event)
            events.ack(event)
            if event["type"] == "turn_completed":
                break
    assert heard == session.events()
    assert session.call("subscribe", name="audit")["after_seq"] == heard[-1]["seq"]
