"""Followers and prompts of both clients while a real daemon is killed, or restarted in place, in the middle of turns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from harness import Harness
from session_probe import SessionProbe

from clisup.client.aio import open_client
from clisup.client.sync import Client

BOUND_S = 90.0
SESSIONS, RESTARTS = 5, 2
Event = dict[str, Any]


def crash(daemon: Harness) -> None:
    daemon.kill()


def crash_over(daemon: Harness) -> None:
    daemon.start()


def restart(daemon: Harness) -> None:
    daemon.before = daemon.call("initialize")["server"]["instance_id"]  # type: ignore[attr-defined]
    daemon.call("daemon/restart")


def restart_over(daemon: Harness) -> None:
    daemon.await_successor(daemon.before)  # type: ignore[attr-defined]


WAYS = pytest.mark.parametrize(
    ("begin", "over"), [(crash, crash_over), (restart, restart_over)], ids=["kill", "in-place"]
)


class Story:
    """Five sessions with turns that run through two restarts, and at each one a session that is opened while nobody listens."""

    def __init__(self, daemon: Harness, scratch: Path, begin: Callable[..., None], over: Callable[..., None]) -> None:
        self.daemon, self._scratch, self._begin, self._over = daemon, scratch, begin, over
        self.sessions = [daemon.new() for _ in range(SESSIONS)]
        self.heard: dict[str, list[Event]] = {}
        self.restarts = 0
        part = "\n".join(f"@stream 60 30 0.002\n@wait-file {scratch}/{n}" for n in range(RESTARTS))
        for session in self.sessions:
            session.prompt(f"{part}\n@stream 60 30 0.002")

    def hear(self, event: Event) -> None:
        """Take an event; in the middle of the turns' texts, make the daemon go away."""
        self.heard.setdefault(event["session_id"], []).append(event)
        half = sum(len(self._texts(session)) >= 60 * self.restarts + 20 for session in self.sessions)
        if self.restarts < RESTARTS and half == SESSIONS:
            self.restarts += 1
            self._begin(self.daemon)

    def nobody_listens(self) -> None:
        """The client has lost its connection: bring the daemon back, and go on."""
        self._over(self.daemon)
        self.sessions.append(self.daemon.new())
        self.sessions[-1].ask("opened while nobody listened")
        (self._scratch / str(self.restarts - 1)).touch()

    @property
    def over(self) -> bool:
        ends = [event for events in self.heard.values() for event in events if event["type"] == "turn_completed"]
        return self.restarts == RESTARTS and len(ends) == SESSIONS + RESTARTS

    def check(self) -> None:
        """Each seq of each session once, in order, and exactly what is stored."""
        assert len(self.sessions) == SESSIONS + RESTARTS
        for session in self.sessions:
            assert self.heard[session.id] == session.events()
        for session in self.sessions[:SESSIONS]:
            assert session.chunks() == [*range(60)] * (RESTARTS + 1)
            assert len(session.events("process_started")) == 1

    def _texts(self, session: SessionProbe) -> list[Event]:
        return [event for event in self.heard.get(session.id, []) if event["type"] == "content_delta"]


@WAYS
@pytest.mark.fault(1)
def test_a_follower_of_all_sessions_gets_each_seq_once(
    serve: Callable[..., Harness], tmp_path: Path, begin: Callable[..., None], over: Callable[..., None]
) -> None:
    story = Story(serve(), tmp_path, begin, over)
    with Client.connect(story.daemon.socket) as client, client.follow("*", 0, on_lost=story.nobody_listens) as events:
        while not story.over:
            story.hear(next(events))
    story.check()


@WAYS
@pytest.mark.fault(1)
async def test_a_trio_subscription_to_all_sessions_gets_each_seq_once(
    serve: Callable[..., Harness], tmp_path: Path, begin: Callable[..., None], over: Callable[..., None]
) -> None:
    story = Story(serve(), tmp_path, begin, over)
    with trio.fail_after(BOUND_S):
        async with open_client(story.daemon.socket) as client:
            events = client.subscribe("*", 0)
            events.on_lost = story.nobody_listens
            while not story.over:
                story.hear(await anext(events))
    story.check()


@WAYS
def test_a_durable_place_outlives_its_client_and_the_daemon(
    serve: Callable[..., Harness], tmp_path: Path, begin: Callable[..., None], over: Callable[..., None]
) -> None:
    """What was acknowledged comes never again, what was not comes again to the next client, and to the same one only once."""

    def away_and_back(daemon: Harness) -> None:
        begin(daemon)
        over(daemon)

    story = Story(serve(), tmp_path, away_and_back, lambda daemon: None)
    acknowledged: list[tuple[str, int]] = []
    with Client.connect(story.daemon.socket) as client:
        with client.follow("*", 0, on_lost=story.nobody_listens, name="audit") as events:
            while not story.over:
                event = next(events)
                if (
                    event["seq"] % 10 == 0 and event["seq"] < 100
                ):  # also between a restart and the follower's notice of it
                    events.ack(event)
                    acknowledged.append((event["session_id"], event["seq"]))
                story.hear(event)
        story.check()
        last = dict(acknowledged)
        left = [
            event for session in story.sessions for event in session.events() if event["seq"] > last.get(session.id, 0)
        ]
        with client.follow("*", 0, name="audit") as events:
            again = [next(events) for _ in left]
    for session in story.sessions:
        mine = [event for event in left if event["session_id"] == session.id]
        assert [event for event in again if event["session_id"] == session.id] == mine


@WAYS
def test_from_now_on_holds_across_a_restart_before_the_first_event(
    serve: Callable[..., Harness], begin: Callable[..., None], over: Callable[..., None]
) -> None:
    daemon = serve()
    old = daemon.new()
    old.ask("before")
    before = len(old.events())
    made: list[SessionProbe] = []

    def nobody_listens() -> None:
        over(daemon)
        old.ask("between")
        made.append(daemon.new())
        made[0].ask("a new one")

    with Client.connect(daemon.socket) as client, client.follow("*", on_lost=nobody_listens) as events:
        begin(daemon)
        heard: list[Event] = []
        while sum(event["type"] == "turn_completed" for event in heard) < 2:
            heard.append(next(events))
    assert [event for event in heard if event["session_id"] == old.id] == old.events()[before:]
    assert [event for event in heard if event["session_id"] == made[0].id] == made[0].events()


@WAYS
async def test_a_prompt_is_answered_once_by_its_key_though_the_daemon_went_away(
    serve: Callable[..., Harness], tmp_path: Path, begin: Callable[..., None], over: Callable[..., None]
) -> None:
    daemon = serve()
    sessions = [daemon.new() for _ in range(2)]
    text = f"@stream 20\n@wait-file {tmp_path}/go\nAfter the change."
    results: list[dict[str, Any]] = []

    def ask_and_block() -> None:
        with Client.connect(daemon.socket) as client:
            results.append(client.prompt(sessions[0].id, text))

    async def ask() -> None:
        async with open_client(daemon.socket) as client:
            results.append(await client.prompt(sessions[1].id, text, key="mine"))

    def disturb() -> None:
        for session in sessions:
            session.cli()
        begin(daemon)
        over(daemon)
        (tmp_path / "go").touch()

    with trio.fail_after(BOUND_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, ask_and_block)
            nursery.start_soon(ask)
            await trio.to_thread.run_sync(disturb)
    assert [(result["outcome"], result["text"].endswith("After the change.")) for result in results] == [
        ("completed", True)
    ] * 2
    assert [len(session.events("turn_completed")) for session in sessions] == [1, 1]
