"""A turn that goes on while its stream cannot: it is ended, and its prompt is not sent a second time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from harness import Harness

from clisup.errors import WorldError
from clisup.llm.failures import DaemonUnavailable, LLMError, Overloaded
from clisup.llm.fallbacks import Retry
from clisup.llm.models import Client, Model, resolve
from clisup.llm.tools import tool

BOUND_S = 90.0


@pytest.fixture
def daemon(serve: Callable[..., Harness]) -> Harness:
    return serve()


def demo(daemon: Harness) -> Model:
    return resolve("demo", socket=daemon.socket, cwd=str(daemon.cwd))


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """No payload can be read: what the daemon refuses may work later, and is retryable."""

    async def refused(*_: Any) -> Any:
        raise WorldError("cannot read the payload", kind="storage_failed")

    monkeypatch.setattr("clisup.llm.sessions.session_chat.whole", refused)


@pytest.mark.usefixtures("unreadable")
async def test_a_turn_whose_stream_fails_is_ended(daemon: Harness) -> None:
    with trio.fail_after(BOUND_S):
        async with demo(daemon).chat() as chat:
            with pytest.raises(Overloaded) as raised:
                async for _ in chat.stream("Hi.\n@stall"):
                    pass
            (end,) = daemon.call("session/events", session_id=chat.session_id, types=["turn_completed"])["events"]
    assert raised.value.side_effects
    assert end["outcome"] == "interrupted"


@pytest.mark.usefixtures("unreadable")
async def test_a_client_does_not_repeat_a_prompt_whose_turn_goes_on(daemon: Harness) -> None:
    told: list[Retry] = []
    with trio.fail_after(BOUND_S), pytest.raises(Overloaded):
        await Client(demo(daemon), on_retry=told.append).complete("@bash echo once >> ran.txt\n@stall")
    assert told == []


async def test_a_daemon_that_stays_away_while_a_tool_runs_tells_of_the_tool(
    daemon: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clisup.client.reconnect.RECONNECT_S", 0.3)
    monkeypatch.setattr("clisup.llm.sessions.session_chat.CLOSING_S", 0.2)
    began = trio.Event()

    @tool
    async def wait() -> None:
        """Wait for ever."""
        began.set()
        await trio.sleep_forever()

    async def kill() -> None:
        await began.wait()
        daemon.kill()

    failure: LLMError | None = None
    with trio.fail_after(BOUND_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            try:
                await demo(daemon).complete("@mcp wait {}", tools=[wait])
            except DaemonUnavailable as error:
                failure = error
    daemon.start()
    assert failure is not None and failure.side_effects
