"""The feed of `clisup top`: events and calls in threads, beside the event loop of the view."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fake_daemon import SESSION, SILENCE, FakeDaemon, Peer

from clisup.cli.top.link import EventFeed
from clisup.errors import ClisupError, UsageError

BOUND_S = 20.0


class View:
    """What a feed told."""

    def __init__(self, daemon: FakeDaemon, session_id: str = SESSION, after_seq: int | None = 0) -> None:
        self.seqs: list[int] = []
        self.states: list[bool] = []
        self.feed = EventFeed(
            daemon.path, session_id, after_seq, on_event=lambda event: self.seqs.append(event["seq"]), on_state=self.states.append
        )  # fmt: skip

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not condition():
                await asyncio.sleep(0.005)


def watch(view: View, story: Callable[[View], Any]) -> None:
    """Run the feed while the story goes on."""

    async def main() -> None:
        running = asyncio.create_task(view.feed.run())
        try:
            await story(view)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())


def emit(daemon: FakeDaemon, count: int) -> None:
    for n in range(count):
        daemon.emit("notice", code=str(n), message="")


def test_each_event_is_shown_once_across_a_restart(daemon: FakeDaemon) -> None:
    async def story(view: View) -> None:
        await view.until(lambda: len(view.seqs) == 500)
        daemon.stop()
        await view.until(lambda: view.states == [True, False])
        emit(daemon, 3)
        daemon.start()
        await view.until(lambda: len(view.seqs) == 503)

    emit(daemon, 500)
    view = View(daemon)
    watch(view, story)
    assert view.seqs == list(range(1, 504))
    assert view.states == [True, False, True]


def test_calls_are_answered_beside_the_events_and_a_patient_one_holds_up_no_other(daemon: FakeDaemon) -> None:
    def interrupt(peer: Peer, params: dict[str, Any]) -> Any:
        daemon.handlers["held"](peer, {})
        return SILENCE

    held: list[tuple[Peer, int]] = []
    daemon.handlers["held"] = lambda peer, params: held.append((peer, peer.asked))
    daemon.handlers["session/interrupt"] = interrupt
    daemon.handlers["daemon/status"] = lambda peer, params: {"sessions": []}

    async def story(view: View) -> None:
        patient = asyncio.create_task(view.feed.call("session/interrupt", patient=True, session_id=SESSION))
        await view.until(lambda: bool(held))
        for _ in range(2):
            assert await view.feed.call("daemon/status") == {"sessions": []}
        peer, asked = held[0]
        peer.send({"jsonrpc": "2.0", "id": asked, "result": {"outcome": "interrupted"}})
        assert await patient == {"outcome": "interrupted"}

    watch(View(daemon), story)
    assert len(daemon.calls("initialize")) <= 3  # one for the events, one for all calls, one for the patient call


def test_a_call_while_the_daemon_is_away_fails_and_the_next_one_connects_again(daemon: FakeDaemon) -> None:
    async def story(view: View) -> None:
        assert (await view.feed.call("ping"))["time"]
        daemon.stop()
        with pytest.raises(ClisupError) as caught:
            await view.feed.call("ping")
        assert caught.value.kind == "daemon_not_running"
        daemon.start()
        assert (await view.feed.call("ping"))["time"]

    watch(View(daemon), story)


def test_what_the_daemon_refuses_for_good_ends_the_feed(daemon: FakeDaemon) -> None:
    def gone(peer: Peer, params: dict[str, Any]) -> Any:
        raise UsageError("cannot find it", kind="session_not_found")

    daemon.handlers["session/subscribe"] = gone
    with pytest.raises(ClisupError, match="cannot find it"):
        asyncio.run(View(daemon).feed.run())


def test_a_daemon_with_other_journals_is_followed_from_now_on(daemon: FakeDaemon) -> None:
    subscribe = daemon.handlers["session/subscribe"]

    def refuse_the_cursor(peer: Peer, params: dict[str, Any]) -> Any:
        if "after_seq" in params:
            raise UsageError("cannot begin after 7", kind="invalid_params")
        return subscribe(peer, params)

    daemon.handlers["session/subscribe"] = refuse_the_cursor
    emit(daemon, 2)

    async def story(view: View) -> None:
        await view.until(lambda: view.states == [True])
        daemon.emit("notice", code="new", message="")
        await view.until(lambda: view.seqs == [3])

    watch(View(daemon, after_seq=7), story)
