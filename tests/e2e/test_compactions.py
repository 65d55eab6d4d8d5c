"""Compactions of the real claude that come to nothing: their turn says so, and the conversation stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.lab import ClaudeLab, poll, tokens_of
from tests.e2e.scenarios import (
    FORBIDDEN,
    OVERLOADED,
    Body,
    Reply,
    Respond,
    Scenario,
    Stall,
    in_turn,
    partial,
    prompts,
    say,
)

Compacting = Callable[..., tuple[ClaudeLab, str]]
NO_RETRY = {"CLAUDE_CODE_MAX_RETRIES": "0"}
pytestmark = pytest.mark.e2e


def stall(body: Body, n: int) -> Reply:
    return [Stall()]


def compact(here: ClaudeLab, session: str, *, typed: bool = False) -> dict[str, Any]:
    """Compact the session by its method, or by claude's own command in a prompt."""
    if typed:
        return here.turn("/compact", session=session, expand=True)
    with here.client() as client:
        return dict(client.call("session/compact", session_id=session, wait=True))


@pytest.fixture
def compacting(lab: Callable[..., ClaudeLab]) -> Compacting:
    """A lab whose first requests for a summary are answered so, and a session after its first turn."""

    def start(mode: str, *summaries: Respond, **options: Any) -> tuple[ClaudeLab, str]:
        here = lab(Scenario("compacting", in_turn(say("One."), *summaries, say("Last."))), **options)
        return here, here.turn("First.", mode=mode)["session_id"]

    return start


def goes_on_uncompacted(here: ClaudeLab, session: str) -> None:
    """Assert that the next turn has the whole conversation, and that completed turns tell the tokens of whole answers."""
    following = here.turn("Last.", session=session)
    assert (following["outcome"], following["text"]) == ("completed", "Last.")
    assert prompts(here.api.main_requests[-1].body) == ["First.", "Last."]
    completed = [end for end in here.events(session, "turn_completed") if end["outcome"] == "completed"]
    assert len(completed) == 2 and tokens_of(*completed) == here.api.served.tokens()
    statuses = [event["status"] for event in here.events(session, "status")]
    assert not {"compacted", "compact_boundary"} & set(statuses)


@pytest.mark.parametrize("mode", ["one-shot", "live"])
def test_a_compaction_that_the_api_refuses_is_a_failed_turn_with_its_error(compacting: Compacting, mode: str) -> None:
    here, session = compacting(mode, FORBIDDEN, OVERLOADED, env=NO_RETRY)
    done = compact(here, session)
    assert (done["outcome"], done["text"], done["error"]["kind"]) == ("failed", "", "permission")
    busy = compact(here, session, typed=mode == "one-shot")
    assert (busy["outcome"], busy["text"], busy["error"]["kind"]) == ("failed", "", "overloaded")
    assert busy["error"]["retryable"] and not done["error"]["retryable"]
    failed = [event for event in here.events(session, "status") if event["status"] == "compaction_failed"]
    assert [event["turn_id"] for event in failed] == ["t2", "t3"]
    assert tokens_of(done, busy) == (0, 0)
    goes_on_uncompacted(here, session)
    assert len(here.pids(session)) == (1 if mode == "live" else 4)


@pytest.mark.parametrize("summary", [stall, partial(Stall())], ids=["before its text", "in its text"])
@pytest.mark.parametrize("mode", ["one-shot", "live"])
def test_a_compaction_that_is_interrupted_is_an_interrupted_turn(
    compacting: Compacting, mode: str, summary: Respond
) -> None:
    here, session = compacting(mode, summary)
    with here.client() as client:
        client.call("session/compact", session_id=session)
        poll(lambda: len(here.api.main_requests) == 2, "the request for a summary")
        assert client.call("session/interrupt", session_id=session)["outcome"] == "interrupted"
    end = here.wait_for(session, "turn_completed", turn_id="t2")
    assert (end["outcome"], end["error"]["kind"]) == ("interrupted", "cancelled")
    goes_on_uncompacted(here, session)
    assert len(here.pids(session)) == (1 if mode == "live" else 3)
